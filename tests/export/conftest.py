"""What the tests of all exports share."""

import dataclasses
import pathlib
import re
from collections.abc import Callable

import pytest

from export.checks import calls


@pytest.fixture
def one_process(monkeypatch) -> None:
    """Saves the seconds in which export.check starts another process; test_calls.py does it."""
    monkeypatch.setattr(calls, "POINT", dataclasses.replace(calls.POINT, check=lambda _: None))


@pytest.fixture
def run_card(monkeypatch) -> Callable[[str], dict]:
    def run(folder: str) -> dict:
        path, variables = pathlib.Path(folder), {}
        monkeypatch.chdir(path.parent)
        code = re.search(r"```python\n(.*?)```", (path / "README.md").read_text(), re.S)[1]
        exec(code, variables)
        return variables

    return run

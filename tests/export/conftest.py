"""What the tests of all exports share."""

import pathlib
import re
from collections.abc import Callable

import pytest


@pytest.fixture
def run_card(monkeypatch) -> Callable[[str], dict]:
    def run(folder: str) -> dict:
        path, variables = pathlib.Path(folder), {}
        monkeypatch.chdir(path.parent)
        code = re.search(r"```python\n(.*?)```", (path / "README.md").read_text(), re.S)[1]
        exec(code, variables)
        return variables

    return run

"""What the tests of all exports share."""

import pathlib
import re
from collections.abc import Callable

import pytest


@pytest.fixture
def run_card(monkeypatch) -> Callable[[str], dict]:
    """A function that runs the code of a folder's model card, and returns its variables."""

    def run(folder: str) -> dict:
        path, variables = pathlib.Path(folder), {}
        monkeypatch.chdir(path.parent)
        code = re.search(r"```python\n(.*?)```", (path / "README.md").read_text(), re.S)[1]
        exec(code, variables)
        return variables

    return run

"""The project as a whole: its import rules, the maps of its files, and --help."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = ("tfrecords", "bert_tf", "export")


@pytest.fixture(autouse=True)
def in_a_checkout():
    if not (ROOT / "setup.cfg").exists():
        pytest.skip("the tests run without the checkout")


def test_imports_go_down_the_layers_only():
    """Oracle: the contracts of import-linter in setup.cfg."""
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_architecture_page_prints_the_tree():
    """Oracle: the files of the three packages; __init__.py files have no line of their own."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    tree = re.search(r"```\n(tfrecords/.*?)```", page, re.S)[1]
    printed, folders = set(), []
    for line in tree.splitlines():
        indent, name, clause = re.match(r"( *)(\S+) *(.*)", line).groups()
        assert clause, f"{name} has no clause"
        folders[len(indent) // 2 :] = [name.rstrip("/")] if name.endswith("/") else []
        if name.endswith(".py"):
            printed.add("/".join([*folders, name]))
    files = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    }
    assert printed == files


def test_the_readme_names_every_room():
    """Oracle: the folders of the three packages, and the pages in docs/."""
    readme = (ROOT / "README.md").read_text()
    rooms = [*PACKAGES, *(path.parent.name for path in (ROOT / "bert_tf").glob("*/__init__.py"))]
    assert [room for room in rooms if f"{room}/ " not in readme] == []
    pages = [path.name for path in (ROOT / "docs").glob("*.md")]
    assert [page for page in pages if f"(docs/{page})" not in readme] == []


@pytest.mark.parametrize(
    "module",
    sorted(
        f"{path.parent.name}.{path.stem}"
        for package in PACKAGES
        for path in (ROOT / package).glob("*.py")
        if "command.run(Options" in path.read_text()
    ),
)
def test_help_teaches_and_answers_at_once(module):
    """Oracle: the module's docstring and every flag's help; TensorFlow is not imported."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", module, "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "tensorflow" not in done.stderr
    assert f"python -m {module} --" in done.stdout
    assert "\n  --" in done.stdout

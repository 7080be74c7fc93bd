"""The project as a whole: its import rules, the maps of its files, and bert-tf."""

import graphlib
import importlib
import pathlib
import re
import subprocess
import sys

import grimp
import pytest

from bert_tf.__main__ import COMMANDS, main
from tfrecords.command_help import help_text

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


def test_no_module_imports_itself_through_others():
    """Oracle: a topological order of all modules exists; imports for annotations only do not count.

    A package that imports its own modules is no circle.
    """
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True)
    imports = {
        module: {
            found
            for found in graph.find_modules_directly_imported_by(module)
            if not found.startswith(f"{module}.")
        }
        for module in graph.modules
    }
    assert imports["bert_tf.finetuning.run"] and imports["export.encoder"]
    graphlib.TopologicalSorter(imports).prepare()


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
    """Oracle: the folders of the three packages, and the pages in docs/. It is read in minutes."""
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) < 150
    rooms = [*PACKAGES, *(path.parent.name for path in (ROOT / "bert_tf").glob("*/__init__.py"))]
    assert [room for room in rooms if f"{room}/ " not in readme] == []
    pages = [path.name for path in (ROOT / "docs").glob("*.md")]
    assert [page for page in pages if f"(docs/{page})" not in readme] == []


def test_bert_tf_has_every_command():
    """Oracles: the modules that are commands; setup.cfg names the entry."""
    modules = {
        f"{path.parent.name}.{path.stem}"
        for package in PACKAGES
        for path in (ROOT / package).glob("*.py")
        if "command.run(Options" in path.read_text()
    }
    assert set(COMMANDS.values()) == modules
    assert "    bert-tf = bert_tf.__main__:main\n" in (ROOT / "setup.cfg").read_text()


@pytest.mark.parametrize("module", COMMANDS.values())
def test_help_fits_a_screen_and_begins_with_an_example(module, monkeypatch):
    """Oracle: 50 lines of 100 columns; the lines that open the docstring."""
    monkeypatch.setenv("COLUMNS", "100")
    command = importlib.import_module(module)
    text = help_text(command.__doc__, command.Options, full=False)
    lines = text.splitlines()
    assert len(lines) <= 50 and max(map(len, lines)) <= 100
    assert len(lines[0]) <= 75 and lines[1] == ""
    assert lines[2].startswith(f"  python -m {module} ")
    assert max(map(len, help_text(command.__doc__, command.Options, full=True).splitlines())) <= 100


def test_bert_tf_lists_the_commands_at_once():
    """Oracles: the summary of every module; TensorFlow is not imported."""
    done = _bert_tf("--help", options=("-X", "importtime"))
    assert done.returncode == 0 and "tensorflow" not in done.stderr
    for name, module in COMMANDS.items():
        summary = importlib.import_module(module).__doc__.partition("\n")[0]
        assert f"\n  {name:<25}{summary}\n" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["pre-train"], "pre-train is not a command: did you mean pretrain?"),
        (["run_finetuning"], "run_finetuning is not a command: did you mean finetune?"),
        (["xyz"], "xyz is not a command: --help lists all commands"),
    ],
)
def test_bert_tf_suggests_the_nearest_command(arguments, line, capsys, monkeypatch):
    """Oracle: the line, and the exit code of a wrong command line."""
    monkeypatch.setattr(sys, "argv", ["/usr/bin/bert-tf", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert capsys.readouterr() == ("", f"bert-tf: error: {line}\n")


def test_bert_tf_runs_a_command():
    """Oracle: the error of the command, with what to type for help."""
    done = _bert_tf("results", "--fold=x")
    assert done.returncode == 2
    assert done.stderr == (
        "python -m bert_tf results: error: --fold is not a flag of this command: did you mean "
        "--folder? (see python -m bert_tf results --help)\n"
    )


def _bert_tf(*arguments, options=()):
    command = [sys.executable, *options, "-m", "bert_tf", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)

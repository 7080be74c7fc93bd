"""The project as a whole: its import rules, the maps of its files, and bert-tf."""

import ast
import collections
import configparser
import dataclasses
import graphlib
import importlib
import pathlib
import re
import runpy
import subprocess
import sys

import grimp
import pytest
import setuptools

import bert_tf
from bert_tf.__main__ import COMMANDS
from bert_tf.base import SITE, SUMMARY, __version__, process
from bert_tf.base.command import VERSION
from bert_tf.base.command_help import docs, flag_name, help_text, is_required, value_type
from bert_tf.finetuning.registry import MAKERS, TASKS

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = ("tfrecords", "bert_tf", "export")


@pytest.fixture(autouse=True)
def in_a_checkout(monkeypatch):
    # The width of help, also where the tests have no terminal.
    monkeypatch.setenv("COLUMNS", "100")
    if not (ROOT / "setup.cfg").exists():
        pytest.skip("the tests run without the checkout")


def test_imports_go_down_the_layers_only():
    """Oracle: the contracts of import-linter in setup.cfg."""
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_rooms_below_compression_do_not_name_it():
    """Oracle: the words of their files."""
    above = {"ablations", "cli", "comparison", "compression"}
    named = []
    for path in [*(ROOT / "bert_tf").rglob("*.py"), *(ROOT / "tfrecords").rglob("*.py")]:
        room = path.relative_to(ROOT).with_suffix("").parts[1]
        found = re.search("recipe|distillation|teacher", path.read_text(), re.IGNORECASE)
        if found and room not in above:
            named.append((str(path), found[0]))
    assert named == []


def test_no_module_imports_itself_through_others():
    """Oracle: a topological order of all modules exists; imports for annotations count, too.

    A package that imports its own modules is no circle.
    """
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=False)
    imports = {
        module: {
            found
            for found in graph.find_modules_directly_imported_by(module)
            if not found.startswith(f"{module}.")
        }
        for module in graph.modules
    }
    assert imports["bert_tf.finetuning.fine_tune"] and imports["export.encoder"]
    graphlib.TopologicalSorter(imports).prepare()


# What all commands have, all formats of weights, all families of tasks, and all lists of points.
SHARED = {
    *("Options", "run", "main"),
    *("NAME", "recognizes", "open_", "rows", "write", "download"),
    *("TASKS", "POINTS", "make_file"),
}


def test_a_public_name_is_defined_once():
    """Oracle: the definitions at the top of all modules; a few belong to every module of a kind."""
    modules = collections.defaultdict(set)
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            names = [x.id for x in targets if isinstance(x, ast.Name)]
            names += [x.id for y in targets if isinstance(y, ast.Tuple) for x in y.elts]
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names = [node.name]
            for name in names:
                modules[name].add(str(path.relative_to(ROOT)))
    public = {name for name in modules if not name.startswith("_")} - SHARED
    assert {name: modules[name] for name in public if len(modules[name]) > 1} == {}


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


def test_a_wheel_has_the_files_that_are_not_python():
    """Oracle: the files in the folders of the packages; setup.cfg declares those of a wheel."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    declared = {
        path
        for package, patterns in setup["options.package_data"].items()
        for pattern in patterns.split()
        for path in (ROOT / package.replace(".", "/")).glob(pattern)
    }
    files = {path for package in PACKAGES for path in (ROOT / package).rglob("*.*")}
    assert declared == {path for path in files if path.suffix not in (".py", ".pyc")}


def test_the_contents_name_every_room_and_page():
    """Oracle: the folders of the three packages, and the pages in docs/."""
    contents = (ROOT / "docs" / "contents.md").read_text()
    rooms = [*PACKAGES, *(path.parent.name for path in (ROOT / "bert_tf").glob("*/__init__.py"))]
    assert [room for room in rooms if f"{room}/ " not in contents] == []
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"contents.md"}
    assert [page for page in pages if f"({page})" not in contents] == []


def test_bert_tf_has_every_command():
    """Oracles: the modules that are commands; setup.cfg names the entry."""
    modules = {
        f"{package}.{path.stem}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if "command.run(__name__)" in path.read_text()
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
    assert len(lines[0]) <= 73 and lines[1] == ""
    assert lines[2].startswith(f"  python -m {module} ")
    assert max(map(len, help_text(command.__doc__, command.Options, full=True).splitlines())) <= 100


@pytest.mark.parametrize("module", COMMANDS.values())
def test_help_names_pages_by_addresses_that_exist(module):
    """Oracle: the pages in docs/; an installation has no such folder."""
    command = importlib.import_module(module)
    text = " ".join(help_text(command.__doc__, command.Options, full=True).split())
    assert "docs/" not in text
    pages = re.findall(rf"{SITE}/(\w+)\.html", text)
    assert len(pages) == text.count(SITE)
    assert [page for page in pages if not (ROOT / f"docs/{page}.md").exists()] == []


def test_errors_and_docstrings_name_pages_that_exist():
    """Oracles: the pages in docs/; the address of the site that mkdocs.yml builds."""
    source = "".join(x.read_text() for p in PACKAGES for x in (ROOT / p).rglob("*.py"))
    pages = re.findall(rf"\bdocs\([\"'](\w+)[\"']\)|{SITE}/(\w+)\.html", source)
    assert len(pages) >= 5
    for page in pages:
        assert (ROOT / f"docs/{''.join(page)}.md").exists(), page
    site = (ROOT / "mkdocs.yml").read_text()
    assert f"site_url: {SITE}/\n" in site and "use_directory_urls: false\n" in site
    assert docs("tags") == f"{SITE}/tags.html"
    assert docs("checkpoints") in bert_tf.finetune.__doc__


def test_one_sentence_says_what_the_project_is():
    """Oracle: the sentence in the package; README has it after its own opening."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["metadata"]["description"] == SUMMARY
    site = (ROOT / "mkdocs.yml").read_text()
    assert SUMMARY in " ".join(site.split())
    assert f"{SUMMARY}." in " ".join(_bert_tf("--help").stdout.split())
    citation = " ".join((ROOT / "CITATION.cff").read_text().split())
    assert SUMMARY in citation and f" version: {__version__} " in citation
    _, _, sentence = SUMMARY.partition(": ")
    assert f"{sentence}." in " ".join((ROOT / "README.md").read_text().split())


def test_the_package_index_shows_readme_with_addresses(monkeypatch):
    """Oracles: the files in the repository, and the pages of the site; no link is relative."""
    made = {}
    monkeypatch.setattr(setuptools, "setup", made.update)
    runpy.run_path(str(ROOT / "setup.py"))
    page = made["long_description"]
    links = re.findall(r"""\]\(([^)]+)\)|(?:src|srcset|href)="([^"]+)""", page)
    links = ["".join(link) for link in links]
    assert links and [x for x in links if not x.startswith(("https://", "#"))] == []
    files = [x.removeprefix(f"{SITE}/").partition("#")[0] for x in links if x.startswith(SITE)]
    files = [f"docs/{re.sub('html$', 'md', file)}" for file in files]
    files += re.findall(r"\(https://github.com/bert-tf/bert_tf/blob/main/(\S+)\)", page)
    assert len(files) > 10 and [x for x in files if not (ROOT / x).exists()] == []


def test_continuous_integration_calls_targets_that_exist():
    """Oracle: the targets of the Makefile."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    called = set()
    for path in [*(ROOT / ".github/workflows").glob("*.yml"), ROOT / ".ci/run"]:
        called |= set(re.findall(r"\bmake ([\w-]+)$", path.read_text(), re.M))
    assert {"test", "test-oldest", "docs", "package"} <= called <= targets


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
        (["--hepl"], "--hepl is not a command: did you mean --help?"),
        (["xyz"], "xyz is not a command: --help lists all commands"),
    ],
)
def test_bert_tf_suggests_the_nearest_command(arguments, line):
    """Oracle: the line, and the exit code of a wrong command line."""
    done = _bert_tf(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"python -m bert_tf: error: {line}\n"


def test_help_and_version_in_all_their_forms():
    """Oracles: the same command with --help; the version; the name that the user typed."""
    run = _bert_tf
    expected = run("pretrain", "--help").stdout
    assert expected.splitlines()[2].startswith("  python -m bert_tf pretrain --input_file")
    assert run("help", "pretrain").stdout == expected
    assert run("help").stdout == run("--help").stdout == run().stdout
    assert run("--version").stdout == run("pretrain", "--version").stdout == f"{VERSION}\n"
    assert run("help", "pretrian").stderr.endswith("did you mean pretrain?\n")
    alone = [sys.executable, "-m", "bert_tf.run_pretraining", "--help"]
    printed = subprocess.run(alone, capture_output=True, text=True).stdout
    assert printed == expected.replace("bert_tf pretrain ", "bert_tf.run_pretraining ")


def test_bash_completes_commands_flags_and_values():
    """Oracle: what the function of the script offers bash, which has set these variables."""
    done = _bert_tf("completion", options=("-X", "importtime"))
    assert "tensorflow" not in done.stderr
    assert done.stdout.endswith("\ncomplete -o default -F _bert_tf bert-tf\n")
    for typed, offered in (
        ("pretr", "pretrain"),
        ("help pretr", "pretrain"),
        ("pretrain --strat", "--strategy="),
        ("pretrain --strategy=cp", "cpu"),
        ("pretrain --nobias", "--nobias_correction"),
        ("compress --init_c", "--init_checkpoint="),
        ("pretrain --input_file=re", ""),
    ):
        state = f"COMP_LINE='bert-tf {typed}' COMP_POINT=99 COMP_WORDS=(bert-tf {typed})"
        call = "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _bert_tf 2>&-; echo ${COMPREPLY[@]}"
        shell = f"{done.stdout}{state}\n{call}"
        found = subprocess.run(["bash", "-c", shell], capture_output=True, text=True)
        assert found.stdout.strip() == offered


def test_bert_tf_runs_a_command():
    """Oracle: the error of the command, with what to type for help."""
    done = _bert_tf("ablation", "--do_train=x")
    assert done.returncode == 2
    assert done.stderr == (
        "python -m bert_tf ablation: error: --do_train is not a flag of this command: all rows are "
        "trained, so omit it (see python -m bert_tf ablation --help)\n"
    )


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("export", ["export-encoder"]), ("export", ["--help"]), ("tfrecords", ["inspect"])],
)
def test_a_file_with_the_name_of_a_package_is_named(name, arguments, tmp_path):
    """Oracle: the line; Python finds a file in the folder of the command first."""
    (tmp_path / f"{name}.py").write_text("")
    done = _bert_tf(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    other = f"{tmp_path}/{name}.py"
    assert f": error: {other} hides bert_tf's package {name}, which has the same" in done.stderr


def test_an_error_inside_our_packages_is_not_blamed_on_others(monkeypatch):
    """Oracle: Python's own message; no other file is in the way."""

    def fails(module):
        raise ImportError("cannot import name 'x' from 'export.encoder'", name="export.encoder")

    importlib.import_module("export")
    monkeypatch.setattr(process.importlib, "import_module", fails)
    for package in ("export", None):
        if not package:  # another distribution removed it
            monkeypatch.delitem(sys.modules, "export")
        with pytest.raises(ImportError, match="cannot import name 'x'"):
            process.import_command("export.encoder")


def _bert_tf(*arguments, options=(), cwd=None):
    command = [sys.executable, *options, "-m", "bert_tf", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


@pytest.mark.parametrize("name", COMMANDS)
def test_relations_name_flags_and_values_that_exist(name):
    """Oracle: the flags of the command, the choices of a flag and the names of tasks."""
    module = importlib.import_module(COMMANDS[name])
    for options_type in (module.Options, *(x for x, _ in getattr(module, "FORMS", {}).values())):
        fields = {field.name: field.metadata for field in dataclasses.fields(options_type)}
        for metadata in fields.values():
            needs = [part for needed in metadata["needs"] for part in needed.split(" or ")]
            for relation in (*needs, *metadata["instead_of"]):
                flag, _, value = relation.partition("=")
                known = {*TASKS, *MAKERS} if flag == "task" else fields[flag]["choices"]
                assert not value or value in known, relation


@pytest.mark.parametrize("name", COMMANDS)
def test_every_numeric_flag_has_limits(name):
    """Oracle: the flag that the message names, for numbers that no flag can have."""
    options_type = importlib.import_module(COMMANDS[name]).Options
    fields = dataclasses.fields(options_type)
    required = {
        field.name: (*field.metadata["choices"], "x")[0] for field in fields if is_required(field)
    }
    for field in fields:
        if value_type(field) not in (int, float):
            continue
        # Thresholds of scores have no lower limit.
        small = [-1, -(2**70)] * (field.name != "null_score_diff_threshold")
        large = [2**70, 10**400, float("inf"), -float("inf"), float("nan")]
        for value in (*small, *large):
            with pytest.raises(ValueError, match=f"^--{flag_name(field)} is .*: it must be "):
                options_type(**required | {field.name: value})

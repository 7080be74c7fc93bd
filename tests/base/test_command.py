"""Commands: flags, rejected values, exit codes and --help."""

import importlib
import json
import os
import signal
import subprocess
import sys
import types
from dataclasses import dataclass

import pytest

from bert_tf.__main__ import COMMANDS
from bert_tf.base import command
from bert_tf.base.command import option
from bert_tf.base.command_help import help_text

PROGRAM = """
'''Prints its options.

  python program.py --number=3
'''
import atexit, json, os, signal, sys, threading, time
from dataclasses import dataclass
from bert_tf.base import command
from bert_tf.base.command import option
from bert_tf.base.progress import say

command.import_tensorflow = lambda *_: None
# Background jobs of a shell inherit an ignored SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)

@dataclass(frozen=True)
class Options(command.Options):
    number: int = option(help="How many.", at_least=1)
    name: str | None = option(None, help="Whose.", aliases=("first_name",))
    fast: bool = option(True, help="Hurry.")
    kind: str = option("a", help="Which.", choices=("a", "b"))
    share: float | None = option(None, help="Of what.")
    place: str | None = option(None, help="Where.", kind="positional")
    absent_flags = {"cores": "all are used, so omit it"}
    if_out_of_memory = "use a smaller --number"

def run(options):
    if options.name == "bad":
        raise ValueError("bad.txt: line 3 is wrong;\\n  fix it")
    if options.name == "missing":
        open("/nowhere/at/all")
    if options.name == "remote":
        # TensorFlow's errors are of this type.
        raise RuntimeError("File system scheme 's3' not implemented (file: 's3://x')")
    if options.name == "large":
        raise MemoryError("Unable to allocate 1 TiB")
    if options.name in ("SIGINT", "SIGTERM"):
        os.kill(os.getpid(), getattr(signal, options.name))
    if options.name == "thread":
        atexit.register(print, "at exit")
        threading.Thread(target=time.sleep, args=(600,)).start()
    if options.name == "environment":
        import keras
        print(keras.config.backend(), keras.config.floatx(), os.environ["MPLBACKEND"])
    if options.name == "much":
        print("x" * 1_000_000)
    if options.name == "file":
        with open(options.place, "w") as file:
            print("about the file", file=sys.stderr)
            os.write(2, b"from a library")
            file.write("content")
    if options.name == "letters":
        print(json.dumps({"é": "中😀\\udcff"}, ensure_ascii=False))
    say("a note")
    print(options)

command.run(__name__)
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "program.py"
    path.write_text(PROGRAM)

    def call(
        *arguments: str, timeout: float | None = None, **environment: str
    ) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, path, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            env=os.environ | environment,
        )

    return call


def test_flags_become_options(program, tmp_path):
    """Oracle: the values given on the command line and in a flag file."""
    (tmp_path / "flags").write_text("--number=4\n--nofast\n")
    done = program(f"--flagfile={tmp_path}/flags", "--first_name=x", "here", "--kind=b")
    values = "number=4, name='x', fast=False, kind='b', share=None, place='here'"
    assert done.stdout == f"a note\nOptions({values})\n"
    assert (done.returncode, done.stderr) == (0, "")
    home = os.path.expanduser("~")
    assert f"name='{home}/x'" in program("--number=4", "--name=~/x").stdout
    (tmp_path / "flags").write_text("--quiet\n--number=4")
    assert program(f"--flagfile={tmp_path}/flags").stdout.startswith("Options(number=4")


def test_strings_without_a_flag(tmp_path):
    """Oracle: the arguments; those with the name of the flag come first. Other tuples get none."""
    path = tmp_path / "program.py"
    tuples = "words: tuple = option((), help='W.')\n    place: tuple = option(()"
    path.write_text(PROGRAM.replace("place: str | None = option(None", tuples))
    arguments = ("one text", "--number=1", "another", "--place=named")
    done = subprocess.run([sys.executable, path, *arguments], capture_output=True, text=True)
    assert "words=(), place=('named', 'one text', 'another'))" in done.stdout
    done = subprocess.run([sys.executable, path, "one text"], capture_output=True, text=True)
    assert "--number is required; 'one text' was read as --place" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--fast"], "--number is required"),
        (["--number=0"], "--number is 0: it must be 1 or more"),
        (["--number=1", "--name="], "--name is empty: give it a value or omit it"),
        (["--number=1.5"], "--number is '1.5': it must be an integer"),
        (["--number=1", "--fast=x"], "--fast is 'x': it must be true or false"),
        (["--number=1", "--kind=c"], "--kind=c: choose one of a, b"),
        (["--numbr=1"], "--numbr is not a flag of this command: did you mean --number?"),
        (["--versoin"], "--versoin is not a flag of this command: did you mean --version?"),
        (["--5 is bad"], "--5 is bad is not a flag: if this is a text, write -- before the texts"),
        (["--xyz=1"], "--xyz is not a flag of this command: --helpfull lists all flags"),
        (["--cores=1"], "--cores is not a flag of this command: all are used, so omit it"),
        (["--nokind"], "--nokind: --kind takes a value, as in --kind=VALUE"),
        (
            ["--number=1", "--name=ram://a"],
            "--name=ram://a: ram:// is lost on exit: name a file on disk",
        ),
        (["--number=1", "--name=a", "--first_name=b"], "same flag: give only one"),
        (["here", "more"], "unexpected argument 'more': flags are --name=value"),
        (
            ["--number=1", b"--name=\xe9"],
            r"--name is '\udce9', which is not UTF-8: rename the file",
        ),
        (
            ["--number=1", "--name=a,/dev/null"],
            "--name: /dev/null is a pipe or device: save its content as a file and name that",
        ),
    ],
)
def test_wrong_flags_are_one_line_with_exit_code_2(program, arguments, line):
    """Oracle: the line, alone on standard error, with what to type for help."""
    done = program(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("program: error: ")
    assert done.stderr.endswith(f"{line} (see {done.args[1]} --help)\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("bad", "bad.txt: line 3 is wrong; fix it"),
        ("missing", "[Errno 2] No such file or directory: '/nowhere/at/all'"),
        ("large", "out of memory: use a smaller --number"),
        ("remote", "File system scheme 's3' not implemented (file: 's3://x'): use a local copy"),
    ],
)
def test_other_errors_are_one_line_with_exit_code_1(program, name, line):
    """Oracle: the line, alone on standard error unless there is a traceback."""
    done = program("--number=1", f"--name={name}")
    assert (done.returncode, done.stderr) == (1, f"program: error: {line}\n")
    if name == "bad":
        detailed = program("--number=1", f"--name={name}", "--verbosity=1").stderr
        assert "Traceback" in detailed and detailed.endswith(done.stderr)


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_signals_end_the_program_without_a_traceback(program, name, code):
    """Oracle: the shell's exit codes, 128 plus the number of the signal."""
    assert code == 128 + getattr(signal, name)
    done = program("--number=1", f"--name={name}")
    assert done.returncode == code
    assert "Traceback" not in done.stderr


FULL = "No space left on device"


@pytest.mark.parametrize(
    ("flags", "streams", "code", "reason"),
    [
        *((flags, ">/dev/full", 1, FULL) for flags in ("", "--name=much", "--help", "--version")),
        ("", "1</dev/null", 1, "Bad file descriptor"),
        ("--name=SIGTERM", ">/dev/full", 143, None),
        *((flags, "| true", 128 + signal.SIGPIPE, None) for flags in ("", "--help")),
        *(("--name=file", streams, 0, None) for streams in ("<&-", ">&-", "<&- >&- 2>&-")),
        ("--name=bad", "<&- >&- 2>&-", 1, None),
        ("--name=file --share=x", "2>&-", 2, None),
    ],
)
def test_streams_that_are_closed_or_full(tmp_path, flags, streams, code, reason):
    """Oracles: the exit code; the system's reason, in one line; the file, which stays clean."""
    (tmp_path / "program.py").write_text(PROGRAM)
    line = f"{sys.executable} program.py --number=1 --place=file {flags} {streams}"
    shell = ["bash", "-o", "pipefail", "-c", line]
    done = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True)
    expected = f"program: error: cannot write to standard output: {reason}\n" if reason else ""
    assert done.returncode == code
    if flags == "--name=file":
        assert (tmp_path / "file").read_text() == "content"
    else:
        assert done.stderr == expected


@pytest.mark.slow
def test_commands_choose_their_backend(program, tmp_path):
    """Oracle: what Keras says; its own settings name another one and are damaged."""
    (tmp_path / ".keras").mkdir()
    for folder in (tmp_path, tmp_path / ".keras"):
        (folder / "keras.json").write_text(json.dumps({"backend": "jax", "floatx": 3}))
    settings = {"KERAS_BACKEND": "torch", "MPLBACKEND": "nonsense", "HOME": str(tmp_path)}
    settings |= {"KERAS_HOME": str(tmp_path), "KERAS_MAX_EPOCHS": "x"}
    done = program("--number=1", "--name=environment", **settings)
    assert done.stdout.splitlines()[0] == "tensorflow float32 agg"


@pytest.mark.slow
def test_slow_packages_are_imported_when_needed():
    """Oracle: the modules of the process, before and after the packages are used."""
    code = """if True:
        import sys
        from bert_tf.base import command
        command.import_tensorflow()
        print({"matplotlib", "sklearn"} & {name.split(".")[0] for name in sys.modules})
        import matplotlib.pyplot, sklearn.metrics
        print(sklearn.metrics.accuracy_score([1, 0], [1, 1]))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split("\n") == ["set()", "0.5", ""], done.stderr


def test_commands_that_change_no_weight_say_so():
    """Oracle: the commands for new text; all others train, write models or have none."""
    modules = {name: importlib.import_module(module) for name, module in COMMANDS.items()}
    found = {name for name, module in modules.items() if module.Options.keeps_weights}
    assert found == {"predict", "fill-mask", "extract-features", "explore"}


def test_another_backend_is_an_error_in_python(monkeypatch):
    """Oracle: the line, which names the backend and what to set."""
    monkeypatch.setitem(sys.modules, "keras", None)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    with pytest.raises(ValueError, match="on jax.* set KERAS_BACKEND=tensorflow"):
        command.Options()
    jax = types.SimpleNamespace(config=types.SimpleNamespace(backend=lambda: "torch"))
    monkeypatch.setitem(sys.modules, "keras", jax)
    with pytest.raises(ValueError, match="on torch.* set KERAS_BACKEND=tensorflow"):
        command.Options()


@pytest.mark.parametrize("encoding", ["ascii:strict", "utf-8"])
def test_every_terminal_gets_valid_json(program, encoding):
    """Oracle: Python's own reader of JSON."""
    done = program("--number=1", "--name=letters", PYTHONIOENCODING=encoding)
    assert json.loads(done.stdout.splitlines()[0]) == {"é": "中😀\udcff"}
    assert ("é" in done.stdout) == (encoding == "utf-8")
    bad = program("--number=1", "--kind=é", PYTHONIOENCODING=encoding)
    assert bad.returncode == 2 and bad.stderr.count("\n") == 1


def test_python_without_docstrings_is_refused():
    """Oracle: the line, alone; TensorFlow Text fails on import."""
    command = [sys.executable, "-OO", "-m", "bert_tf.fill_mask", "--help"]
    done = subprocess.run(command, capture_output=True, text=True)
    line = "python -OO removes docstrings, which TensorFlow Text needs: use python -O\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", line)


def test_the_program_does_not_wait_for_threads(program):
    """Oracles: the output, that of an exit handler included; the test's own time limit."""
    done = program("--number=1", "--name=thread", timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Options(" in done.stdout and done.stdout.endswith("at exit\n")


def test_help_is_printed_whatever_the_other_flags_are(program):
    """Oracle: the docstring and the exit code."""
    for flag in ("-h", "--helpfull"):
        done = program("--numbr=1", flag)
        assert (done.returncode, done.stderr) == (0, "")
        assert "python program.py --number=3" in done.stdout and "--[no]fast" in done.stdout


def test_wrong_values_are_named_in_python_too():
    """Oracle: the types and the range; an integer is a number, and a boolean is not."""

    @dataclass(frozen=True)
    class Options(command.Options):
        number: int = option(1, "")
        share: float | None = option(None, "", at_least=0, at_most=1)
        name: str | None = option(None, "")

    assert Options(share=1).share == 1
    for values, need in (
        ({"share": float("nan")}, "--share is nan: it must be from 0 to 1"),
        ({"number": None}, "--number is None: it must be an integer"),
        ({"share": True}, "--share is True: it must be a number"),
        ({"name": ["a"]}, r"--name is \['a'\]: it must be a string"),
    ):
        with pytest.raises(ValueError, match=need):
            Options(**values)


def test_relations_of_flags(monkeypatch):
    """Oracle: the sentences, worked by hand; --helpfull states the same relations."""

    @dataclass(frozen=True)
    class Options(command.Options):
        task: str = option("sst2", "Task.")
        a: int = option(0, "A.", needs=("task=csv or b", "c=x"))
        b: bool = option(False, "B.", instead_of=("c=y", "d"))
        c: str = option("x", "C.", choices=("x", "y"))
        d: str | None = option(None, "D.")

    for values in ({"a": 1, "task": "CS-V"}, {"a": 1, "b": True}, {"b": True}, {"c": "y"}):
        Options(**values)
    for values, sentence in (
        ({"a": 1}, "--a has no effect without --task=csv or --b: omit it, or add that"),
        ({"a": 1, "task": "csv", "c": "y"}, "--a has no effect without --c=x: omit it, or add"),
        ({"b": True, "c": "y"}, "--b does not suit --c=y: omit it"),
        ({"b": True, "d": "z"}, "--b and --d exclude each other: omit one"),
    ):
        with pytest.raises(ValueError, match=f"^{sentence}"):
            Options(**values)
    monkeypatch.setenv("COLUMNS", "100")
    lines = help_text("", Options, full=True).splitlines()
    assert "Default: 0. Only with --task=csv or --b and --c=x." in lines[2]
    assert lines[3].endswith("B. Not with --c=y or --d.")

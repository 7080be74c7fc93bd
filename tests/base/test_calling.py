"""Commands as functions, on a command that returns its flags."""

import dataclasses
import importlib
import inspect
import logging
import os
import pathlib
import pydoc
import re
import subprocess
import sys
import traceback
import types
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.base import command, progress
from bert_tf.base.calling import Form, checked, python_function
from bert_tf.base.command import option, rare_option
from bert_tf.base.files import named_errors


@dataclass(frozen=True, kw_only=True)
class _Options(command.Options):
    source_file: str = option(help="What to read, as --size says. More words.")
    files: tuple = option((), "Others.", kind="positional")
    size: int = option(3, "How many.", at_least=1, aliases=("count",))
    kind: str | None = rare_option(None, "Which. Default: as in --source_file.", choices=("a", "b"))
    from_: str | None = option(None, "Where it starts.")
    warm: bool = option(True, "Hurry.")

    absent_flags = {"cores": "all are used, so omit it"}
    if_out_of_memory = "use a smaller --size"
    needs_tensorflow = False


def _run(options):
    problems = {
        "bad": ValueError("--source_file=bad: give --nowarm or --count,\n or omit --from; --other"),
        "missing": FileNotFoundError(2, "No such file", "x"),
        "large": MemoryError("Unable to allocate 1 TiB"),
        "s3": RuntimeError("File system scheme 's3' not implemented"),
        "wrong": KeyError("ours"),
        **{str(code): SystemExit(code) for code in (1, 130, 143)},
    }
    if options.source_file in problems:
        raise problems[options.source_file]
    step = progress.for_caller("$ python -m bert_tf.work --size=3", "work(size=3)")
    progress.say(f"at work, as --size says:\n{step}")
    return options


@pytest.fixture(scope="module")
def call():
    """The function, which takes the file as `source` and is called `work`."""
    module = types.ModuleType("bert_tf.work", "Does work\non files.\n\nMore about it.")
    module.Options, module.run = _Options, _run
    form = Form(
        first=("source",),
        names={"source": "source_file"},
        defaults={"size": 5},
        returns="the flags.",
        example="work(1)",
        result=lambda options, returned: returned.values(),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "bert_tf.work", module)
        yield python_function("work", "bert_tf.work", form)


def test_values_become_those_of_flags(call, monkeypatch, capsys):
    """Oracle: the flags of the command, by hand."""
    monkeypatch.setenv("HOME", "/home/ann")
    others = {"files": (), "size": 5, "kind": None, "from_": None, "warm": True}
    assert call("x") == {"source_file": "x", **others}
    paths = [pathlib.Path("a/b"), "c,d"]
    found = call("x", files=paths, count=7, kind="a", from_="~/z", warm=False)
    assert call("x", from_=paths)["from_"] == "a/b,c,d" and found["files"] == ("a/b", "c,d")
    assert (found["size"], found["kind"], found["warm"]) == (7, "a", False)
    assert found["from_"] == "/home/ann/z"
    assert call(source_file="x", files="y", size=None)["files"] == ("y",)
    capsys.readouterr()
    call("x", quiet=True)
    assert capsys.readouterr().out == ""
    call("x")
    assert capsys.readouterr().out == "at work, as size says:\nwork(size=3)\n"
    _run(_Options(source_file="x"))
    expected = "at work, as --size says:\n$ python -m bert_tf.work --size=3\n"
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize(
    ("flags", "kind", "line"),
    [
        ({}, ValueError, "source is required"),
        ({"sorce": 1}, ValueError, "sorce is not an argument of work: did you mean source?"),
        ({"cores": 1}, ValueError, "cores is not an argument of work: all are used, so omit it"),
        ({"xyz": 1}, ValueError, "xyz is not an argument of work: help(bert_tf.work) lists all"),
        ({"size": 1, "count": 2}, ValueError, "size and count are the same: give only one"),
        ({"source": "x", "count": 0}, ValueError, "count is 0: it must be 1 or more"),
        ({"source": "x", "files": ("a", ["b"])}, ValueError, "files is ('a', ['b']): it must be s"),
        ({"source_file": 3}, ValueError, "source_file is 3: it must be a string"),
        ({"source": "x", "kind": "c"}, ValueError, "kind=c: choose one of a, b"),
        (
            {"source": "bad"},
            ValueError,
            "source=bad: give warm=False or count, or omit from_; --other",
        ),
        ({"source": "missing"}, FileNotFoundError, "[Errno 2] No such file: 'x'"),
        ({"source": "large"}, MemoryError, "out of memory: use a smaller size"),
        ({"source": "s3"}, ValueError, "File system scheme 's3' not implemented: use a local copy"),
        ({"source": "wrong"}, KeyError, "'ours'"),
        ({"source": "1"}, RuntimeError, "a process of this run ended with exit code 1"),
        ({"source": "130"}, KeyboardInterrupt, "stopped: the same call resumes"),
        ({"source": "143"}, SystemExit, "143"),
    ],
)
def test_errors_name_arguments(call, flags, kind, line):
    """Oracle: the lines; only SIGTERM ends the process."""
    with pytest.raises(kind) as caught:
        call(**flags, quiet=True)
    assert str(caught.value).startswith(line) and type(caught.value) is kind
    assert not progress._is_quiet()


@checked
def _draw(
    path: str | os.PathLike,
    size: int = 3,
    scale: float | None = None,
    *,
    warm: bool = False,
    data: Any = None,
):
    return path, size, scale, warm, data


def _fail(path: str):
    with named_errors(f"cannot read {path}"):
        raise tf.errors.NotFoundError(None, None, "no such disk")


def test_arguments_are_checked_by_their_types(monkeypatch):
    """Oracles: by hand; Python's own errors for the names of arguments."""
    monkeypatch.setenv("HOME", "/home/ann")
    numbers = dict(size=np.int64(8), scale=np.float32(0.5), warm=np.bool_(True))
    assert _draw(pathlib.Path("a"), **numbers) == ("a", 8, 0.5, True, None)
    assert _draw("~/b", 4, 1, data=[2]) == ("/home/ann/b", 4, 1, False, [2])
    for given, line in (
        ({"path": 5}, "path is 5: it must be a string"),
        ({"path": ["a"]}, "path is ['a']: it must be a string"),
        ({"path": ""}, "path is empty: give it a value or omit it"),
        ({"size": "64"}, "size is '64': it must be an integer"),
        ({"size": 3.5}, "size is 3.5: it must be an integer"),
        ({"size": float("nan")}, "size is nan: it must be an integer"),
        ({"size": None}, "size is None: it must be an integer"),
        ({"scale": True}, "scale is True: it must be a number"),
        ({"scale": float("nan")}, "scale is nan: it must be from"),
        ({"warm": "yes"}, "warm is 'yes': it must be true or false"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(line)}"):
            _draw(**{"path": "a"} | given)
    for given, line in (({}, "missing 1 required .*'path'"), ({"sise": 1}, "unexpected .*'sise'")):
        with pytest.raises(TypeError, match=rf"^_draw\(\) .*{line}"):
            _draw(**given)


def test_the_function_describes_itself(call):
    """Oracles: the signature and the docstring, by hand."""
    assert str(inspect.signature(call)) == (
        "(source: Any, *, files: tuple = (), size: int = 5, from_: str | None = None, "
        "warm: bool = True, kind: Optional[Literal['a', 'b']] = None, quiet: bool = False)"
    )
    assert (call.__name__, call.__qualname__, call.__module__) == ("work", "work", "bert_tf")
    for line in (
        "Does work on files.",
        "    source: What to read, as size says. Required.",
        "    size: How many. Default: 5.",
        "    kind: Which. Default: as in source. One of a, b.",
        "    work(1)",
    ):
        assert f"\n{line}\n" in f"\n{call.__doc__}"


@pytest.mark.parametrize("name", bert_tf._FUNCTIONS)
def test_every_function_has_the_flags_of_its_command(name):
    """Oracles: the command's dataclass; the help of Python."""
    function = getattr(bert_tf, name)
    assert function is getattr(bert_tf, name) and name in dir(bert_tf)
    accepted = {*inspect.signature(function).parameters}
    options = importlib.import_module(bert_tf._FUNCTIONS[name]).Options
    names = {field.name for field in dataclasses.fields(options)}
    if name == "finetune":
        names = {re.sub("^(train|dev|test)_file$", r"\1", x) for x in names}
    assert accepted == names | {"quiet"}
    text = pydoc.plain(pydoc.render_doc(function))
    assert f"{name}(" in text and max(map(len, text.splitlines()[3:])) <= 100


def test_help_lists_every_name():
    """Oracle: `__all__`."""
    listed = {*re.findall(r"\w+", bert_tf.__doc__)}
    assert {*bert_tf.__all__} - {"__version__"} <= listed and {*bert_tf.__all__} <= {*dir(bert_tf)}


def test_an_error_for_users_shows_only_their_lines(call):
    """Oracle: the frames of this file, without the error of TensorFlow behind one of ours.

    An error of another library keeps all of its own.
    """
    for function in (lambda: call("x", size=0.5), lambda: _draw("a", size=0.5)):
        with pytest.raises(ValueError) as caught:
            function()
        frames = traceback.extract_tb(caught.tb)
        assert {frame.filename for frame in frames} == {__file__}
        assert frames[-1].name == "<lambda>"
    with pytest.raises(OSError, match="^cannot read a: no such disk$") as caught:
        checked(_fail)("a")
    shown = traceback.format_exception(caught.value)
    assert "NotFoundError" not in "".join(shown)
    for source in ("bad", "wrong"):
        with pytest.raises((ValueError, KeyError)) as caught:
            call(source)
        assert traceback.extract_tb(caught.tb)[-1].name == "_run"


def test_an_error_leaves_the_logging_of_the_process_alone(call, monkeypatch):
    """Oracle: no handler, with which a later logging.basicConfig would do nothing."""
    monkeypatch.setattr(logging.root, "handlers", [])
    with pytest.raises(ValueError):
        call("x", size=0.5)
    assert logging.root.handlers == []


@pytest.mark.slow
def test_a_fresh_process_loads_without_the_log_of_tensorflow():
    """Oracle: nothing on standard error, also when the devices are used."""
    code = "import bert_tf; bert_tf.load_embedder; import tensorflow as tf; tf.zeros(1)"
    environment = {x: y for x, y in os.environ.items() if not x.startswith("TF_")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stderr == ""

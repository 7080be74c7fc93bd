"""The process of a command: its environment, its streams and its end."""

import atexit
import codecs
import contextlib
import contextvars
import faulthandler
import functools
import importlib
import io
import json
import logging
import os
import pathlib
import signal
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import NoReturn

# The exit code after the signal SIGPIPE.
NO_READER = 141
# Keras imports these for functions that no command uses: a third of the time to start.
_SLOW_AND_UNUSED = ("matplotlib", "sklearn")
# The error handler of streams that cannot encode a character, as in terminals without Unicode.
_ESCAPED = "bert_tf.escaped"
_CGROUP = pathlib.Path("/sys/fs/cgroup/memory.max")


@contextlib.contextmanager
def needed(packages: str, what: str) -> Iterator[None]:
    """Turns an ImportError in the block into advice; `what` says what needs the packages."""
    try:
        yield
    except ImportError:
        names = " and ".join(packages.split())
        raise ValueError(f"{what} {names}: pip install {packages}") from None


def import_command(module: str) -> ModuleType:
    """Imports the module of a command.

    Raises:
        ValueError: a file of the user or of another distribution has the name of a package here,
            and comes before it on Python's path.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        found = getattr(sys.modules.get(package), "__file__", None)
        is_ours = found == str(pathlib.Path(__file__).parents[2] / package / "__init__.py")
        if package not in ("export", "tfrecords") or not found or is_ours:
            raise
        raise ValueError(
            f"{found} hides bert_tf's package {package}, which has the same name: rename it, or "
            "run the command in another folder or environment"
        ) from None


@functools.cache
def prepare_process() -> None:
    """Shields the process from environment variables and from closed standard streams."""
    if sys.flags.optimize > 1:
        sys.exit("python -OO removes docstrings, which TensorFlow Text needs: use python -O")
    # Libraries read these on import. TensorFlow's real errors still arrive as exceptions; only log
    # messages are lost. A keras.json could name another backend, or another type for weights.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in [name for name in os.environ if name.startswith("KERAS_")]:
        del os.environ[name]
    os.environ["KERAS_BACKEND"] = "tensorflow"
    os.environ["KERAS_HOME"] = os.path.join(os.devnull, "keras")
    os.environ["MPLBACKEND"] = "agg"
    # Otherwise, a file that the command opens would get the descriptor of a closed stream.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdin = sys.stdin or open(0, closefd=False)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)
    sys.stderr = sys.stderr or open(2, "w", closefd=False)
    # As in JSON, so that JSON stays valid.
    escape = lambda e: (json.dumps(e.object[e.start : e.end])[1:-1], e.end)  # noqa: E731
    codecs.register_error(_ESCAPED, escape)
    sys.stderr.reconfigure(errors=_ESCAPED)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_StandardOutput(1, "w", closefd=False)),
        encoding=sys.stdout.encoding,
        errors=_ESCAPED,
        line_buffering=sys.stdout.line_buffering,
    )


class _StandardOutput(io.FileIO):
    """Standard output whose errors say that they are about standard output."""

    def write(self, data: bytes) -> int | None:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OSError(f"cannot write to standard output: {error.strerror}") from error


def check_backend() -> None:
    """Raises a ValueError if Keras has another backend than TensorFlow."""
    keras = sys.modules.get("keras")
    backend = keras.config.backend() if keras else os.environ.get("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        raise ValueError(
            f"Keras runs on {backend}, but this needs TensorFlow: set KERAS_BACKEND=tensorflow "
            "before importing Keras"
        )


def handle_signals() -> None:
    """Makes SIGTERM end the process as Ctrl-C does, which removes temporary files."""
    # Even while `import_tensorflow` discards standard error.
    with contextlib.suppress(OSError):
        faulthandler.enable(os.dup(2))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


_embedded = contextvars.ContextVar("embedded", default=False)


@contextlib.contextmanager
def embedded() -> Iterator[None]:
    """Says that the process is a user's, such as a notebook's, which no signal may end.

    Leaves out TensorFlow's warnings, such as that many functions were traced.
    """
    token, logger = _embedded.set(True), logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        _embedded.reset(token)


def is_embedded() -> bool:
    """Returns whether this thread is in such a block."""
    return _embedded.get()


def machine_memory() -> int:
    """Returns the memory of this machine, or of its container, in bytes."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _CGROUP.read_text().strip() if _CGROUP.exists() else "max"
    return min(memory, int(limit)) if limit.isdecimal() else memory


def check_memory(what: str, size: int) -> None:
    """Raises a ValueError if something takes more bytes than this machine has memory."""
    if size > (memory := machine_memory()):
        raise ValueError(
            f"{what} takes at least {size // 10**9:,} GB, but this machine has "
            f"{memory // 10**9:,}: choose a smaller value"
        )


# The process in which TensorFlow starts. One that is forked from it inherits the answer.
_starting_process = functools.cache(os.getpid)


def check_not_forked() -> None:
    """Raises an OSError in a process that was forked after TensorFlow started.

    The threads of TensorFlow do not survive a fork, so it would wait for them for ever. Whatever
    starts TensorFlow calls this, and whatever may be called after a fork.
    """
    if _starting_process() != os.getpid():
        raise OSError(
            "this process was forked after TensorFlow had started, which does not survive that: "
            "load models only in the new process, or start it with spawn (gunicorn without "
            "--preload)"
        )


def import_tensorflow(keeps_weights: bool = False) -> None:
    """Imports TensorFlow and lists its devices; discards what no log level keeps from printing.

    With `keeps_weights`, this process and its workers may compute faster on a CPU, but always with
    the values that weights had when they were first used.
    """
    prepare_process()
    if keeps_weights:
        os.environ.setdefault("TF_ONEDNN_ASSUME_FROZEN_WEIGHTS", "1")
    hidden = [name for name in _SLOW_AND_UNUSED if name not in sys.modules]
    try:
        # None makes an import fail as if the package were not installed.
        sys.modules.update(dict.fromkeys(hidden))
        import_quietly()
    finally:
        for name in hidden:
            del sys.modules[name]


def import_quietly() -> None:
    """The same in a process that is not a command's: leaves streams and libraries as they are."""
    check_not_forked()
    with quiet_imports():
        import tensorflow  # noqa: F401


@contextlib.contextmanager
def quiet_imports() -> Iterator[None]:
    """Hides what TensorFlow logs if the block imports it, and as it then lists its devices."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    is_first = "tensorflow" not in sys.modules
    with silent() if is_first else contextlib.nullcontext():
        yield
        if is_first and "tensorflow" in sys.modules:
            sys.modules["tensorflow"].config.list_physical_devices()


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Hides what C++ code writes to standard error."""
    saved = os.dup(2)
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def end_process(code: int) -> NoReturn:
    """Ends the process at once, after its exit handlers and with all output written.

    The usual way waits for the threads of downloads, and for those of `tf.data`, which sometimes
    take a minute to end.
    """
    # Among the handlers are those of multiprocessing and Beam, which end their processes.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)

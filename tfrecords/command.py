"""Runs commands: flags from a dataclass, a quiet TensorFlow and one-line error messages."""

import atexit
import contextlib
import dataclasses
import difflib
import faulthandler
import itertools
import math
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NoReturn

from absl import flags, logging

from tfrecords.command_help import flag_name, help_text, is_required, value_type
from tfrecords.progress import be_quiet, shows_bars

_NEEDS = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    tuple: "strings",
}
_HELP = {"-h", "--help", "--helpfull"}
# The exit code after the signal SIGPIPE.
_NO_READER = 141


def option(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    choices: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (),
    at_least: float = -math.inf,
    at_most: float = math.inf,
    positional: bool = False,
    rare: bool = False,
) -> Any:
    """Declares a field of `Options` that becomes the flag of the same name.

    Args:
        default: the default value; without one, the flag is required.
        help: the text for --helpfull; --help shows its first sentence, and its default.
        choices: the allowed values; empty to allow any value.
        aliases: alternative names of the flag.
        at_least, at_most: the range of a number.
        positional: the value may also be given without the name of the flag; the strings of a
            `tuple` take all arguments without one.
        rare: --help leaves the flag to --helpfull.
    """
    metadata = {
        "help": help,
        "choices": choices,
        "aliases": aliases,
        "at_least": at_least,
        "at_most": at_most,
        "positional": positional,
        "rare": rare,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Options:
    """Base class of every command's flags. Checks their values on creation.

    Attributes:
        absent_flags: names that users of other programs know -> what to do instead.
        if_out_of_memory: what needs less memory.

    Raises:
        ValueError: a value has the wrong type, a number is out of range, a string is empty, not
            UTF-8, not a choice or the name of a pipe; names the flag.
    """

    absent_flags: ClassVar[Mapping[str, str]] = {}
    if_out_of_memory: ClassVar[str] = "end other programs, or use a machine with more memory"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, name = getattr(self, field.name), flag_name(field)
            if not _fits(value, field):
                raise ValueError(f"--{name} is {value!r}: it must be {_NEEDS[value_type(field)]}")
            if isinstance(value, str):
                _check_string(name, value)
            choices = field.metadata["choices"]
            if choices and value is not None and value not in choices:
                raise ValueError(f"--{name}={value}: choose one of {', '.join(choices)}")
            if not isinstance(value, int | float):
                continue
            low, high = field.metadata["at_least"], field.metadata["at_most"]
            if not (math.isfinite(value) and low <= value <= high):
                limits = f"{low} or more" if high == math.inf else f"from {low} to {high}"
                need = "a number" if low == -math.inf else limits
                raise ValueError(f"--{name} is {value}: it must be {need}")


def run(options_type: type, function: Callable[[Any], None]) -> None:
    """Parses the command line into `options_type`, calls `function` with it and ends the process.

    A user can fix what a `ValueError` or an `OSError` reports, and a lack of memory. Each of them
    is one line on standard error; `--verbosity=1` adds the traceback. The exit codes are 0, 1 for
    such an error, 2 for a wrong flag, 130 or 143 after SIGINT or SIGTERM, and 141 if
    whatever reads the output ends first, as with `| head`.
    """
    # TensorFlow reads these on import, and no command imports it before this point. Real errors
    # still arrive as exceptions; only log messages are lost.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    if wanted := _HELP & set(itertools.takewhile("--".__ne__, sys.argv)):
        doc = sys.modules[function.__module__].__doc__
        try:
            print(help_text(doc, options_type, full="--helpfull" in wanted), flush=True)
        except BrokenPipeError:
            end_process(_NO_READER)
        return
    with contextlib.suppress(OSError, ValueError):  # standard error is not a file
        faulthandler.enable()
    # Exit in the same way as after Ctrl-C, which removes temporary files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        _call(options_type, function)
        end_process(0)
    except SystemExit as stop:
        end_process(stop.code)


def import_tensorflow() -> None:
    """Imports TensorFlow and lists its devices without the log messages they print.

    Some of the messages appear before any log level takes effect, so standard error is discarded
    during the import.
    """
    saved = os.dup(2)
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 2)
    try:
        import tensorflow as tf

        tf.config.list_physical_devices()
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def end_process(code: int) -> None:
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


def _call(options_type: type, function: Callable[[Any], None]) -> None:
    """Calls the function; raises SystemExit, after a message, for what a user can fix."""
    try:
        options = _options(options_type)
        import_tensorflow()
        function(options)
        sys.stdout.flush()
        return
    except KeyboardInterrupt:
        print(f"\n{_program()}: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(_NO_READER)
    except Exception as error:
        message = _message(error, options_type)
        if message is None:
            raise
        logging.debug("traceback", exc_info=True)
    # Outside the `except` block, so that all objects the error refers to are freed before exit.
    _fail(message, 1)


def _options(options_type: type) -> Any:
    """Reads the command line; raises SystemExit, after a message, if it is wrong."""
    try:
        for field in dataclasses.fields(options_type):
            _define_flag(field)
        flags.DEFINE_boolean("quiet", False, None)
        return _parsed_options(options_type, _parse(options_type))
    except ValueError as error:
        _fail(f"{error} (see {_typed()} --help)", 2)


def _message(error: Exception, options_type: type) -> str | None:
    """Returns the line for an error that a user can fix; None for all others."""
    if isinstance(error, MemoryError) or "ResourceExhausted" in type(error).__name__:
        tensor = re.search(r"tensor with shape\[[\d,]*\]", str(error))
        wanted = f" ({tensor[0]})" if tensor else ""
        return f"out of memory{wanted}: {options_type.if_out_of_memory}"
    if isinstance(error, ValueError | OSError):
        return str(error)
    if "File system scheme" in str(error):
        return f"{getattr(error, 'message', error)}: use a local copy"
    return None


def _fail(message: str, code: int) -> NoReturn:
    """Ends the program with an error message."""
    print(f"{_program()}: error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


def _program() -> str:
    return os.path.splitext(os.path.basename(sys.argv[0]))[0]


def _typed() -> str:
    """Returns how the user called the command."""
    module = getattr(sys.modules["__main__"].__spec__, "name", "__main__")
    return sys.argv[0] if module.endswith("__main__") else f"python -m {module}"


def _parse(options_type: type) -> list[str]:
    """Parses the command line, and returns the arguments that are not flags.

    Raises:
        ValueError: a flag is unknown, or has a value of another type.
    """
    try:
        extra = flags.FLAGS(sys.argv)[1:]
        logging.use_absl_handler()
        logging.set_verbosity(flags.FLAGS.verbosity)
        if flags.FLAGS.quiet:
            be_quiet()
        if not shows_bars():
            os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        return extra
    except flags.UnrecognizedFlagError as error:
        message = _unknown_flag(error.flagname, options_type)
    except flags.IllegalFlagValueError as error:
        message = _illegal_value(str(error))
    except flags.Error as error:
        message = str(error).removeprefix("ERROR:: ")
    raise ValueError(message)


def _unknown_flag(name: str, options_type: type) -> str:
    # absl reads --noNAME as --NAME=false.
    names = [flag_name(field) for field in dataclasses.fields(options_type)] + ["quiet"]
    bare = name.removeprefix("no")
    if bare in names:
        return f"--{name}: --{bare} takes a value, as in --{bare}=VALUE"
    answers = options_type.absent_flags
    similar = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean --{similar[0]}?" if similar else "--helpfull lists all flags"
    answer = answers.get(name) or answers.get(bare) or hint
    return f"--{name} is not a flag of this command: {answer}"


def _illegal_value(message: str) -> str:
    """Turns absl's "flag --NAME=VALUE: REASON" into our style."""
    name, value = re.match(r"flag --(\w+)=(.*?): ", message, re.S).groups()
    flag = flags.FLAGS[name]
    if choices := getattr(flag.parser, "enum_values", None):
        return f"--{name}={value}: choose one of {', '.join(choices)}"
    need = {"int": int, "float": float, "bool": bool}[flag.flag_type()]
    return f"--{name} is {value!r}: it must be {_NEEDS[need]}"


def _parsed_options(options_type: type, extra: list[str]) -> Any:
    fields = dataclasses.fields(options_type)
    values = {field.name: flags.FLAGS[flag_name(field)].value for field in fields}
    for field in fields:
        if value_type(field) is tuple:
            values[field.name] = (*(values[field.name] or ()), *extra)
            extra = []
        if field.metadata["positional"] and values[field.name] is None and extra:
            values[field.name] = extra.pop(0)
    if extra:
        raise ValueError(f"unexpected argument {extra[0]!r}: flags are --name=value")
    for field in fields:
        if is_required(field) and values[field.name] is None:
            raise ValueError(f"--{flag_name(field)} is required")
        for alias in field.metadata["aliases"]:
            # An alias sets the flag itself, too.
            if flags.FLAGS[field.name].present > flags.FLAGS[alias].present > 0:
                raise ValueError(f"--{alias} and --{field.name} are the same flag: give only one")
    for name, value in values.items():
        if isinstance(value, str) and value.startswith("~/"):
            # Shells do not expand "~" after "--flag=".
            values[name] = os.path.expanduser(value)
    return options_type(**values)


def _define_flag(field: dataclasses.Field) -> None:
    arguments = dict(
        name=flag_name(field),
        default=None if is_required(field) else field.default,
        help=None,
    )
    if choices := field.metadata["choices"]:
        flags.DEFINE_enum(enum_values=choices, **arguments)
    else:
        define = {
            str: flags.DEFINE_string,
            int: flags.DEFINE_integer,
            float: flags.DEFINE_float,
            bool: flags.DEFINE_boolean,
            tuple: flags.DEFINE_multi_string,
        }
        define[value_type(field)](**arguments)
    for alias in field.metadata["aliases"]:
        flags.DEFINE_alias(alias, field.name)


def _check_string(name: str, value: str) -> None:
    """Raises a ValueError for a value that no flag can have; it may name files."""
    if value == "":
        raise ValueError(f"--{name} is empty: give it a value or omit it")
    if value != value.encode(errors="ignore").decode():
        raise ValueError(f"--{name} is {ascii(value)}, which is not UTF-8: rename the file")
    for path in [value, *value.split(",")]:
        if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
            raise ValueError(
                f"--{name}: {path} is a pipe or device: save its content as a file and name that"
            )


def _fits(value: Any, field: dataclasses.Field) -> bool:
    kind = value_type(field)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, field.type) or (kind is float and isinstance(value, int))

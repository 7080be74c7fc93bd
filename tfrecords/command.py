"""Runs commands: flags from a dataclass, a quiet TensorFlow and one-line error messages."""

import atexit
import contextlib
import dataclasses
import difflib
import functools
import math
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from absl import app, flags, logging

_NEEDS = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    tuple: "strings",
}


def option(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    choices: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (),
    at_least: float = -math.inf,
    at_most: float = math.inf,
    positional: bool = False,
) -> Any:
    """Declares a field of `Options` that becomes the flag of the same name.

    Args:
        default: the default value; without one, the flag is required.
        help: the text for --help.
        choices: the allowed values; empty to allow any value.
        aliases: alternative names of the flag.
        at_least, at_most: the range of a number.
        positional: the value may also be given without the name of the flag; the strings of a
            `tuple` take all arguments without one.
    """
    metadata = {
        "help": help,
        "choices": choices,
        "aliases": aliases,
        "at_least": at_least,
        "at_most": at_most,
        "positional": positional,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Options:
    """Base class of every command's flags. Checks their values on creation.

    Attributes:
        absent_flags: names that users of other programs know -> what to do instead.
        if_out_of_memory: what needs less memory.

    Raises:
        ValueError: a value has the wrong type, a number is out of range, a string is empty or not
            a choice; names the flag.
    """

    absent_flags: ClassVar[Mapping[str, str]] = {}
    if_out_of_memory: ClassVar[str] = "end other programs, or use a machine with more memory"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, name = getattr(self, field.name), flag_name(field)
            if not _fits(value, field):
                raise ValueError(f"--{name} is {value!r}: it must be {_NEEDS[_type(field)]}")
            if value == "":
                raise ValueError(f"--{name} is empty: give it a value or omit it")
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


def flag_name(field: dataclasses.Field) -> str:
    """Returns the name of a field's flag: "from" for `from_`, as `from` is a keyword of Python."""
    return field.name.removesuffix("_")


def run(options_type: type, function: Callable[[Any], None]) -> None:
    """Parses the command line into `options_type` and calls `function` with it.

    A user can fix what a `ValueError` or an `OSError` reports, and a lack of memory. Each of them
    ends the program with exit code 1 and one line on standard error; `--verbosity=1` adds the
    traceback.
    """
    # TensorFlow reads these on import, and no command imports it before this point. Real errors
    # still arrive as exceptions; only log messages are lost.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    # For --help, absl prints the docstring of the main module. A console script has none.
    sys.modules["__main__"].__doc__ = sys.modules[function.__module__].__doc__
    for field in dataclasses.fields(options_type):
        _define_flag(field)
    app.run(
        functools.partial(_main, options_type, function),
        flags_parser=functools.partial(_parse, options_type),
    )


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


def _main(options_type: type, function: Callable[[Any], None], arguments: list[str]) -> None:
    if logging.get_verbosity() == logging.INFO:
        # At absl's default level, TensorFlow logs messages that only its developers need.
        logging.set_verbosity(logging.WARNING)
    # Exit in the same way as after Ctrl-C, which removes temporary files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        _call(options_type, function, arguments)
        end_process(0)
    except SystemExit as stop:
        end_process(stop.code)


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


def _call(options_type: type, function: Callable[[Any], None], arguments: list[str]) -> None:
    """Calls the function; raises SystemExit, after a message, for what a user can fix."""
    try:
        options = _parsed_options(options_type, arguments)
        import_tensorflow()
        function(options)
        sys.stdout.flush()
        return
    except KeyboardInterrupt:
        print(f"\n{_program()}: interrupted", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        message = _message(error, options_type)
        if message is None:
            raise
        logging.debug("traceback", exc_info=True)
    # Outside the `except` block, so that all objects the error refers to are freed before exit.
    _fail(message)


def _message(error: Exception, options_type: type) -> str | None:
    """Returns the line for an error that a user can fix; None for all others."""
    if isinstance(error, MemoryError) or "ResourceExhausted" in type(error).__name__:
        tensor = re.search(r"tensor with shape\[[\d,]*\]", str(error))
        wanted = f" ({tensor[0]})" if tensor else ""
        return f"out of memory{wanted}: {options_type.if_out_of_memory}"
    if isinstance(error, ValueError | OSError):
        return str(error)
    return None


def _fail(message: str) -> None:
    """Ends the program with an error message."""
    print(f"{_program()}: error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(1)


def _program() -> str:
    return os.path.splitext(os.path.basename(sys.argv[0]))[0]


def _parse(options_type: type, arguments: Sequence[str]) -> list[str]:
    """Parses the command line, and returns the arguments that are not flags."""
    try:
        return flags.FLAGS(["--help" if argument == "-h" else argument for argument in arguments])
    except flags.UnrecognizedFlagError as error:
        _fail(_unknown_flag(error.flagname, options_type))
    except flags.IllegalFlagValueError as error:
        _fail(_illegal_value(str(error)))
    except flags.Error as error:
        _fail(str(error).removeprefix("ERROR:: "))
    except SystemExit:
        sys.exit(0)  # absl's --help exits with 1


def _unknown_flag(name: str, options_type: type) -> str:
    # absl reads --noNAME as --NAME=false.
    names = [flag_name(field) for field in dataclasses.fields(options_type)]
    bare = name.removeprefix("no")
    if bare in names:
        return f"--{name}: --{bare} takes a value, as in --{bare}=VALUE"
    answers = options_type.absent_flags
    similar = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean --{similar[0]}?" if similar else "--help lists all flags"
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


def _parsed_options(options_type: type, arguments: Sequence[str]) -> Any:
    fields = dataclasses.fields(options_type)
    values = {field.name: flags.FLAGS[flag_name(field)].value for field in fields}
    extra = arguments[1:]
    for field in fields:
        if _type(field) is tuple:
            values[field.name] = (*(values[field.name] or ()), *extra)
            extra = []
        if field.metadata["positional"] and values[field.name] is None and extra:
            values[field.name] = extra.pop(0)
    if extra:
        raise ValueError(f"unexpected argument {extra[0]!r}: flags are --name=value")
    for field in fields:
        if _is_required(field) and values[field.name] is None:
            raise ValueError(f"--{flag_name(field)} is required: see --help")
        for alias in field.metadata["aliases"]:
            # An alias sets the flag itself, too.
            if flags.FLAGS[field.name].present > flags.FLAGS[alias].present > 0:
                raise ValueError(f"--{alias} and --{field.name} are the same flag: give only one")
    return options_type(**values)


def _define_flag(field: dataclasses.Field) -> None:
    required = _is_required(field)
    arguments = dict(
        name=flag_name(field),
        default=None if required else field.default,
        help=f"{field.metadata['help']}{' Required.' * required}",
        module_name=sys.argv[0],
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
        define[_type(field)](**arguments)
    for alias in field.metadata["aliases"]:
        flags.DEFINE_alias(alias, field.name, module_name=sys.argv[0])


def _is_required(field: dataclasses.Field) -> bool:
    return field.default is dataclasses.MISSING


def _type(field: dataclasses.Field) -> type:
    """Returns the type of a flag's value: for a union such as `str | None`, the first."""
    return getattr(field.type, "__args__", (field.type,))[0]


def _fits(value: Any, field: dataclasses.Field) -> bool:
    kind = _type(field)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, field.type) or (kind is float and isinstance(value, int))

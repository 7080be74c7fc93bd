"""Runs commands: flags from a dataclass, a quiet TensorFlow and one-line error messages."""

import dataclasses
import functools
import math
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from absl import app, flags, logging


def option(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    choices: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (),
    at_least: float = -math.inf,
    at_most: float = math.inf,
) -> Any:
    """Declares a field of `Options` that becomes the flag of the same name.

    Args:
        default: the default value; without one, the flag is required.
        help: the text for --help.
        choices: the allowed values; empty to allow any value.
        aliases: alternative names of the flag.
        at_least, at_most: the range of a number.
    """
    metadata = {
        "help": help,
        "choices": choices,
        "aliases": aliases,
        "at_least": at_least,
        "at_most": at_most,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Options:
    """Base class of every command's flags. Checks their values on creation.

    Raises:
        ValueError: a number is out of range, a string is empty or not a choice; names the flag.
    """

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value == "":
                raise ValueError(f"--{field.name} is empty: give it a value or omit it")
            choices = field.metadata["choices"]
            if choices and value is not None and value not in choices:
                raise ValueError(f"--{field.name}={value}: choose one of {', '.join(choices)}")
            if not isinstance(value, int | float):
                continue
            low, high = field.metadata["at_least"], field.metadata["at_most"]
            if not (math.isfinite(value) and low <= value <= high):
                limits = f"{low} or more" if high == math.inf else f"from {low} to {high}"
                need = "a number" if low == -math.inf else limits
                raise ValueError(f"--{field.name} is {value}: it must be {need}")


def run(options_type: type, function: Callable[[Any], None]) -> None:
    """Parses the command line into `options_type` and calls `function` with it.

    A user can fix what a `ValueError` or an `OSError` reports. Either one ends the program with
    exit code 1 and one line on standard error; `--verbosity=1` adds the traceback.
    """
    # TensorFlow reads these on import, and no command imports it before this point. Real errors
    # still arrive as exceptions; only log messages are lost.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    # For --help, absl prints the docstring of the main module. A console script has none.
    sys.modules["__main__"].__doc__ = sys.modules[function.__module__].__doc__
    for field in dataclasses.fields(options_type):
        _define_flag(field)
    app.run(functools.partial(_main, options_type, function))


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
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected argument {arguments[1]!r}: flags are --name=value")
    # Exit in the same way as after Ctrl-C, which removes temporary files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    program = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    try:
        options = _parsed_options(options_type)
        import_tensorflow()
        function(options)
        return
    except KeyboardInterrupt:
        print(f"\n{program}: interrupted", file=sys.stderr)
        sys.exit(130)
    except (ValueError, OSError) as error:
        logging.debug("traceback", exc_info=True)
        message = " ".join(str(error).split())
    # Outside the `except` block, so that all objects the error refers to are freed before exit.
    print(f"{program}: error: {message}", file=sys.stderr)
    sys.exit(1)


def _parsed_options(options_type: type) -> Any:
    fields = dataclasses.fields(options_type)
    values = {field.name: flags.FLAGS[field.name].value for field in fields}
    for field in fields:
        if _is_required(field) and values[field.name] is None:
            raise ValueError(f"--{field.name} is required: see --help")
    return options_type(**values)


def _define_flag(field: dataclasses.Field) -> None:
    required = _is_required(field)
    arguments = dict(
        name=field.name,
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
        }
        # For a union such as `str | None`, the first type is the flag's.
        kind = getattr(field.type, "__args__", (field.type,))[0]
        define[kind](**arguments)
    for alias in field.metadata["aliases"]:
        flags.DEFINE_alias(alias, field.name, module_name=sys.argv[0])


def _is_required(field: dataclasses.Field) -> bool:
    return field.default is dataclasses.MISSING

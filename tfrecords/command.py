"""What commands share: flags made from a dataclass, quiet TensorFlow logs, one-line errors."""

import dataclasses
import math
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from absl import app, flags, logging

from tfrecords import quiet


def option(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    choices: tuple[str, ...] = (),
    at_least: float = -math.inf,
    at_most: float = math.inf,
) -> Any:
    """A field of `Options` that becomes the flag of its name, required where it has no default."""
    metadata = {"help": help, "choices": choices, "at_least": at_least, "at_most": at_most}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Options:
    """The base of every command's flags: their values are checked as they are set.

    Raises:
        ValueError: for a number out of its range or an empty string; names the flag.
    """

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value == "":
                raise ValueError(f"--{field.name} is empty; give it a value or leave it out")
            if not isinstance(value, int | float):
                continue
            low, high = field.metadata["at_least"], field.metadata["at_most"]
            if not (math.isfinite(value) and low <= value <= high):
                limits = f"{low} or more" if high == math.inf else f"from {low} to {high}"
                need = "a number" if low == -math.inf else limits
                raise ValueError(f"--{field.name} is {value}; it must be {need}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceOptions(Options):
    """The flags of every command that trains: where, and in which precision."""

    precision: str = option(
        "float32",
        help="Type of the activations and matrix products; variables stay float32. With float16 "
        "the loss is scaled.",
        choices=("float32", "bfloat16", "float16"),
    )
    strategy: str = option(
        "auto",
        help="Devices to use; auto takes the TPU named, else all GPUs, else the CPU.",
        choices=("auto", "cpu", "gpu", "tpu"),
    )
    tpu_name: str | None = option(None, help="The TPU; leave it out on a TPU virtual machine.")
    tpu_zone: str | None = option(None, help="The zone of --tpu_name.")
    gcp_project: str | None = option(None, help="The project of --tpu_name.")


def run(options_type: type, function: Callable[[Any], None]) -> None:
    """Parses the command line into `options_type` and calls `function` with it.

    A `ValueError` or `OSError`, which is how this project reports what a user can mend, ends the
    program with one line on standard error and exit code 1; `--verbosity=1` adds the traceback.
    """
    # TensorFlow reads these when it is first imported, which every command puts off until now.
    # Its errors come as exceptions, too, so that only notes are lost.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    program = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    # absl prints the main module's docstring for --help; a console script's main module has none.
    sys.modules["__main__"].__doc__ = sys.modules[function.__module__].__doc__
    for field in dataclasses.fields(options_type):
        _define_flag(field)

    def main(arguments: list[str]) -> None:
        if logging.get_verbosity() == logging.INFO:
            # absl's default, at which TensorFlow tells what interests only its developers.
            logging.set_verbosity(logging.WARNING)
        if len(arguments) > 1:
            raise app.UsageError(f"unexpected argument {arguments[1]!r}: flags are --name=value")
        # As Ctrl-C does, a polite kill leaves no temporary files.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        names = [field.name for field in dataclasses.fields(options_type)]
        try:
            values = {name: flags.FLAGS[name].value for name in names}
            for field in dataclasses.fields(options_type):
                if _required(field) and values[field.name] is None:
                    raise ValueError(f"--{field.name} is missing; --help says more")
            options = options_type(**values)
            quiet.import_tensorflow()
            function(options)
            return
        except KeyboardInterrupt:
            print(f"\n{program}: interrupted", file=sys.stderr)
            sys.exit(130)
        except (ValueError, OSError) as error:
            logging.debug("traceback", exc_info=True)
            message = " ".join(str(error).split())
        # Only now, so that what the error held on to is gone before the interpreter ends.
        print(f"{program}: error: {message}", file=sys.stderr)
        sys.exit(1)

    app.run(main)


def _define_flag(field: dataclasses.Field) -> None:
    default = None if _required(field) else field.default
    help = f"{field.metadata['help']}{' Required.' * _required(field)}"
    arguments = dict(name=field.name, default=default, help=help, module_name=sys.argv[0])
    if choices := field.metadata["choices"]:
        flags.DEFINE_enum(enum_values=choices, **arguments)
        return
    define = {
        str: flags.DEFINE_string,
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
        bool: flags.DEFINE_boolean,
    }
    # `str | None` and the like: the flag is of the first type named.
    kind = getattr(field.type, "__args__", (field.type,))[0]
    define[kind](**arguments)


def _required(field: dataclasses.Field) -> bool:
    return field.default is dataclasses.MISSING

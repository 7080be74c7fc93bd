"""Runs commands: flags from a dataclass, a quiet TensorFlow and one-line error messages."""

import contextlib
import dataclasses
import difflib
import functools
import itertools
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NoReturn, Self

from absl import flags, logging

from bert_tf.base import __version__
from bert_tf.base.command_help import (
    flag_name,
    help_text,
    is_required,
    spelled_flags,
    value_type,
)
from bert_tf.base.process import (
    NO_READER,
    check_backend,
    end_process,
    handle_signals,
    import_tensorflow,
    prepare_process,
)
from bert_tf.base.progress import be_quiet, shows_bars

# How messages call the types of values.
_NEEDS = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    tuple: "strings",
}
_HELP = {"h", "help", "helpfull"}
VERSION = f"bert-tf {__version__}"
# Libraries hold sizes in 32 bits.
_LARGEST = 2**31 - 1


def option(
    default: Any = dataclasses.MISSING,
    help: str = "",
    *,
    choices: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (),
    at_least: float = -_LARGEST,
    at_most: float = _LARGEST,
    kind: str = "common",
    role: str = "training",
    needs: tuple[str, ...] = (),
    instead_of: tuple[str, ...] = (),
) -> Any:
    """Declares a field of `Options` that becomes the flag of the same name.

    Args:
        default: the default value; without one, the flag is required.
        help: the text for --helpfull; --help shows its first sentence, and its default.
        choices: the allowed values; empty to allow any value.
        aliases: alternative names of the flag.
        at_least, at_most: the range of a number.
        kind: "common"; "rare", which --help leaves to --helpfull; or "positional": the value may
            also be given without the name of the flag. The strings of a positional `tuple` take
            all such arguments.
        role: what the flag says. "training": what is trained or created; a command that resumes or
            evaluates a run takes the run's value. "evaluation": what is evaluated, and how; the
            run's value, unless the flag is given. "place": where files and devices are, and what
            to do; what was made does not depend on it, but on the contents of the files.
        needs: flags without which this one has no effect; of "A or B", one will do. "NAME=VALUE"
            stands for a flag with this value, by default or given.
        instead_of: flags, or values of flags, that do not go with this one.
    """
    metadata = dict(help=help, choices=choices, aliases=aliases, kind=kind, role=role)
    metadata |= dict(at_least=at_least, at_most=at_most, needs=needs, instead_of=instead_of)
    return dataclasses.field(default=default, metadata=metadata)


rare_option = functools.partial(option, kind="rare")


@dataclasses.dataclass(frozen=True)
class Options:
    """Base class of every command's flags. Checks their values on creation.

    Attributes:
        absent_flags: names that users of other programs know -> what to do instead.
        if_out_of_memory: what needs less memory.
        needs_tensorflow: whether the command computes anything.
        keeps_weights: whether it computes only with weights that stay as they were loaded.
        given: the names of the flags that the user gave.
    """

    given: ClassVar[frozenset[str]] = frozenset()
    absent_flags: ClassVar[Mapping[str, str]] = {}
    if_out_of_memory: ClassVar[str] = "end other programs, or use a machine with more memory"
    needs_tensorflow: ClassVar[bool] = True
    keeps_weights: ClassVar[bool] = False

    def __new__(cls, **flags: Any) -> Self:
        options = super().__new__(cls)
        given = frozenset(name for name, value in flags.items() if value is not None)
        object.__setattr__(options, "given", given)
        return options

    def __post_init__(self) -> None:
        if self.needs_tensorflow:
            check_backend()
        for field in dataclasses.fields(self):
            value, name = getattr(self, field.name), flag_name(field)
            if not _fits(value, field):
                needed = _NEEDS[value_type(field)]
                raise ValueError(f"--{name} is {value!r:.60}: it must be {needed}")
            if isinstance(value, str):
                _check_string(name, value)
            choices = field.metadata["choices"]
            if choices and value is not None and value not in choices:
                raise ValueError(f"--{name}={value}: choose one of {', '.join(choices)}")
            if not isinstance(value, int | float):
                continue
            low, high = field.metadata["at_least"], field.metadata["at_most"]
            if not low <= value <= high:
                open_end = high == _LARGEST and value < low
                need = f"{low} or more" if open_end else f"from {low} to {high}"
                raise ValueError(f"--{name} is {value}: it must be {need}")
        self._check_relations()

    def _check_relations(self) -> None:
        """Raises a ValueError for a flag without those it needs, or with one that excludes it."""
        unusual = self.unusual
        for field in dataclasses.fields(self):
            name = flag_name(field)
            if field.name not in unusual:
                continue
            for needed in field.metadata["needs"]:
                if not any(map(self._states, needed.split(" or "))):
                    others = spelled_flags(needed)
                    advice = "omit it, or add that"
                    raise ValueError(f"--{name} has no effect without {others}: {advice}")
            for other in filter(self._states, field.metadata["instead_of"]):
                if "=" in other:
                    raise ValueError(f"--{name} does not suit --{other}: omit it")
                raise ValueError(f"--{name} and --{other} exclude each other: omit one")

    def _states(self, relation: str) -> bool:
        """Returns whether the flags have what a relation names: a flag, or a value of one."""
        name, _, value = relation.partition("=")
        found = getattr(self, name)
        if not value:
            return name in self.unusual or bool(found)
        # --task=SST-2 is --task=sst2.
        return str(found).lower().replace("-", "") == value.replace("-", "")

    @classmethod
    def names(cls, *roles: str) -> list[str]:
        """Returns the names of the flags with some roles; see `option`."""
        return [x.name for x in dataclasses.fields(cls) if x.metadata["role"] in roles]

    def values(self, *left_out: str) -> dict[str, Any]:
        """Returns the flags with their values, without those of some roles."""
        names = [x.name for x in dataclasses.fields(self)]
        return {x: getattr(self, x) for x in names if x not in self.names(*left_out)}

    def changed(self, **flags: Any) -> Self:
        """Returns the flags with other values, as if the user had given the same flags."""
        options = dataclasses.replace(self, **flags)
        object.__setattr__(options, "given", self.given)
        return options

    @property
    def unusual(self) -> dict[str, Any]:
        """The flags whose values are not their defaults."""
        fields = ((field, getattr(self, field.name)) for field in dataclasses.fields(self))
        return {field.name: value for field, value in fields if value != field.default}

    def refuse(self, names: Iterable[str], why: str) -> None:
        """Raises a ValueError if one of some flags is given."""
        if name := next(filter(self.unusual.__contains__, names), None):
            raise ValueError(f"--{name} {why}: omit it")

    def with_saved(self, saved: Mapping[str, Any], *roles: str) -> Self:
        """Returns the flags; those of some roles that were not given take the saved values."""
        unset = {*self.names(*roles)} - self.given
        return self.changed(**{x: saved[x] for x in unset if x in saved})


def late(name: str) -> Callable[[Any], Any]:
    """Returns the function MODULE:NAME, which is imported when it is called: --help stays fast."""
    return lambda options: pkgutil.resolve_name(name)(options)


def run(name: str) -> NoReturn:
    """Parses the command line, runs a command and ends the process.

    Args:
        name: a module, whose docstring is the help. Its `Options` has the flags, and `run(options)`
            does the work. The pair in `FORMS`, if there is one, replaces both if a flag of that
            name is given.
    """
    module = sys.modules[name]
    options_type, function = module.Options, module.run
    given = itertools.takewhile("--".__ne__, sys.argv[1:])
    names = {text.lstrip("-").partition("=")[0] for text in given if text.startswith("-")}
    for flag, form in getattr(module, "FORMS", {}).items():
        if flag in names:
            options_type, function = form

    def call() -> None:
        if _HELP & names:
            # The example is typed as this command was.
            doc = (module.__doc__ or "").replace(f"python -m {name} ", f"{_typed()} ")
            print(help_text(doc, options_type, full="helpfull" in names))
        elif "version" in names:
            print(VERSION)
        else:
            options = _options(options_type)
            if options_type.needs_tensorflow:
                import_tensorflow(options_type.keeps_weights)
            function(options)

    main(call, options_type.if_out_of_memory)


def main(function: Callable[[], None], if_out_of_memory: str = "") -> NoReturn:
    """Calls a function whose output and errors are a user's, and ends the process.

    A user can fix what a `ValueError` or an `OSError` reports, and a lack of memory. Each of them
    is one line on standard error; `--verbosity=1` adds the traceback. The exit codes are 0, 1 for
    such an error, 2 for a wrong flag, 130 or 143 after SIGINT or SIGTERM, and 141 if
    whatever reads the output ends first, as with `| head`.
    """
    prepare_process()
    handle_signals()
    code = 0
    try:
        function()
        sys.stdout.flush()
    except SystemExit as stop:
        code = stop.code
    except KeyboardInterrupt:
        print(f"\n{_program()}: interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        code = NO_READER
    except Exception as error:
        message = error_line(error, if_out_of_memory)
        if message is None:
            raise
        _print_error(message)
        code = 1
    # All objects that an error refers to are free by now.
    end_process(code)


def _options(options_type: type) -> Any:
    """Reads the command line; raises SystemExit, after a message, if it is wrong."""
    kinds = {bool: flags.DEFINE_boolean, tuple: flags.DEFINE_multi_string}
    try:
        for field in dataclasses.fields(options_type):
            kinds.get(value_type(field), flags.DEFINE_string)(flag_name(field), None, None)
            for alias in field.metadata["aliases"]:
                flags.DEFINE_alias(alias, field.name)
        flags.DEFINE_boolean("quiet", False, None)
        return _parsed_options(options_type, _parse(options_type))
    except ValueError as error:
        fail(f"{error} (see {_typed()} --help)", 2)


def error_line(error: Exception, if_out_of_memory: str) -> str | None:
    """Returns what to print for an error that a user can fix; None for all others.

    With `--verbosity=1`, or after `absl.logging.set_verbosity(1)`, logs the traceback.
    """
    # Otherwise, absl would give the logging of a user's process a handler.
    if logging.level_debug():
        logging.debug("traceback", exc_info=error)
    if isinstance(error, MemoryError) or "ResourceExhausted" in type(error).__name__:
        tensor = re.search(r"tensor with shape\[[\d,]*\]", str(error))
        wanted = f" ({tensor[0]})" if tensor else ""
        return f"out of memory{wanted}: {if_out_of_memory}"
    if isinstance(error, ValueError | OSError):
        return str(error)
    if "File system scheme" in str(error):
        return f"{getattr(error, 'message', error)}: use a local copy"
    return None


def fail(message: str, code: int) -> NoReturn:
    """Ends the program with an error message of one line."""
    _print_error(message)
    sys.exit(code)


def _print_error(message: str) -> None:
    with contextlib.suppress(OSError):
        print(f"{_program()}: error: {' '.join(message.split())}", file=sys.stderr)


def _program() -> str:
    return os.path.splitext(os.path.basename(sys.argv[0]))[0]


def _typed() -> str:
    """Returns how the user called the command."""
    module = getattr(sys.modules["__main__"].__spec__, "name", "__main__")
    return sys.argv[0] if module.endswith("__main__") else f"python -m {module}"


def _parse(options_type: type) -> list[str]:
    """Parses the command line, and returns the arguments that are not flags."""
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
        name, value = re.match(r"flag --(\w+)=(.*?): ", str(error), re.S).groups()
        kind = bool if flags.FLAGS[name].boolean else int
        message = f"--{name} is {value!r}: it must be {_NEEDS[kind]}"
    except flags.Error as error:
        message = str(error).removeprefix("ERROR:: ")
    raise ValueError(message)


def _unknown_flag(name: str, options_type: type) -> str:
    # absl reads --noNAME as --NAME=false.
    names = [flag_name(field) for field in dataclasses.fields(options_type)] + ["quiet"]
    bare = name.removeprefix("no")
    if bare in names:
        return f"--{name}: --{bare} takes a value, as in --{bare}=VALUE"
    if " " in name:
        return f"--{name} is not a flag: if this is a text, write -- before the texts"
    known = [*names, "help", "helpfull", "version"]
    answer = options_type.absent_flags.get(bare) or advice_on(
        name, known, options_type, "--helpfull lists all flags"
    )
    return f"--{name} is not a flag of this command: {answer}"


def advice_on(name: str, known: Iterable[str], options_type: type, otherwise: str) -> str:
    """Returns what to give in place of a flag that does not exist, or `otherwise`."""
    similar = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean --{similar[0]}?" if similar else otherwise
    return options_type.absent_flags.get(name) or hint


def _parsed_options(options_type: type, extra: list[str]) -> Any:
    given, missing = {}, []
    for field in dataclasses.fields(options_type):
        name, kind = flag_name(field), value_type(field)
        value = flags.FLAGS[name].value
        is_positional = field.metadata["kind"] == "positional"
        if kind is tuple:
            value = tuple(value or ())
            if is_positional:
                value, extra = (*value, *extra), []
        elif is_positional and value is None and extra:
            value = extra.pop(0)
        for alias in field.metadata["aliases"]:
            # An alias sets the flag itself, too.
            if flags.FLAGS[name].present > flags.FLAGS[alias].present > 0:
                raise ValueError(f"--{alias} and --{name} are the same flag: give only one")
        if value is None:
            missing += [name] if is_required(field) else []
            continue
        # Shells do not expand "~" after "--flag=".
        if kind is str and "ram://" in value:
            raise ValueError(f"--{name}={value}: ram:// is lost on exit: name a file on disk")
        given[field.name] = os.path.expanduser(value) if str(value).startswith("~/") else value
        if kind in (int, float):
            # `Options` refuses text that is not a number.
            with contextlib.suppress(ValueError):
                given[field.name] = kind(value)
    if extra:
        raise ValueError(f"unexpected argument {extra[0]!r}: flags are --name=value")
    if missing:
        read = (f"; {x[0]!r} was read as --{y}" for y, x in given.items() if type(x) is tuple and x)
        raise ValueError(f"--{missing[0]} is required{next(read, '')}")
    return options_type(**given)


def _check_string(name: str, value: str) -> None:
    """Raises a ValueError for a value that no flag can have; it may name files."""
    if value == "":
        raise ValueError(f"--{name} is empty: give it a value or omit it")
    if value != value.encode(errors="ignore").decode():
        raise ValueError(f"--{name} is {ascii(value)}, which is not UTF-8: rename the file")
    for path in [value, *value.split(",")]:
        if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
            advice = "save its content as a file and name that"
            raise ValueError(f"--{name}: {path} is a pipe or device: {advice}")


def _fits(value: Any, field: dataclasses.Field) -> bool:
    kind = value_type(field)
    if isinstance(value, bool):
        return kind is bool
    if isinstance(value, tuple) and not all(isinstance(x, str) for x in value):
        return False
    return isinstance(value, field.type) or (kind is float and isinstance(value, int))

"""Commands as Python functions: flags become arguments, and errors name those."""

import copy
import dataclasses
import functools
import inspect
import os
import re
import sys
import textwrap
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, field
from typing import Any, Literal

from bert_tf.base.command import Options, advice_on, error_line, option
from bert_tf.base.command_help import explanation, flag_name, is_required, ordered_flags, value_type
from bert_tf.base.process import embedded, import_command, import_quietly
from bert_tf.base.progress import quietly, wording

_WIDTH = 90
_OURS = ("bert_tf", "export", "tfrecords")
_DOC = """{about}

Example:
    {example}

The arguments are the flags of `python -m {module}`.
None stands for the default. A list stands for comma-separated values; paths may be
`pathlib.Path`. Prints what the command prints.{data}

Args:
{arguments}
    quiet: Print only warnings and results.

Returns:
    {returns}

Raises:
    ValueError, OSError: one line that names the argument or the file, and what to do;
        `absl.logging.set_verbosity(1)` adds the whole traceback.
    KeyboardInterrupt: Ctrl-C, or interrupting a notebook's kernel, stopped it. Finished work
        stays, and the same call resumes.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Form:
    """How a function differs from its command."""

    first: tuple[str, ...]  # the arguments that may be positional
    returns: str  # for the docstring, like the next two
    example: str
    data: str = ""  # what `names` take
    names: Mapping[str, str] = field(default_factory=dict)  # argument -> flag of another name
    defaults: Mapping[str, Any] = field(default_factory=dict)  # flags with other defaults
    # Maps the given flags to the command's.
    prepare: Callable[[dict[str, Any]], dict[str, Any]] = lambda flags: flags
    # Maps the flags and what the command returns to what the function returns.
    result: Callable[[Any, Any], Any] = lambda options, returned: returned


def python_function(name: str, module: str, form: Form) -> Callable:
    """Returns the function bert_tf.NAME that does what the command in a module does."""
    command = import_command(module)
    options_type, arguments = command.Options, {x: y for y, x in form.names.items()}
    fields = {arguments.get(x.name, x.name): copy.copy(x) for x in ordered_flags(options_type)}
    fields = {x: fields[x] for x in sorted(fields, key=functools.partial(_place, form, fields))}
    for flag in fields.values():
        flag.default = form.defaults.get(flag.name, flag.default)
    # All names of an argument: also its flag's, and aliases.
    names = {x: key for key, flag in fields.items() for x in (flag.name, *flag.metadata["aliases"])}
    names |= {key: key for key in fields}
    spoken = {x: x for x in [*names, "quiet"]}
    spoken |= {flag_name(flag): key for key, flag in fields.items()}
    signature = _signature(fields, form)

    def function(*first: Any, quiet: bool = False, **others: Any) -> Any:
        as_called = {flag_name(fields[names[x]]): x for x in others if x in names}
        with in_python(options_type, spoken | as_called), quietly(quiet), embedded():
            used: dict[str, str] = {}
            for key in others:
                if key not in names:
                    advice = f"help(bert_tf.{name}) lists all arguments"
                    advice = advice_on(key, spoken, options_type, advice)
                    raise ValueError(f"{key} is not an argument of {name}: {advice}")
                if (other := used.setdefault(names[key], key)) != key:
                    raise ValueError(f"{other} and {key} are the same: give only one")
            if len(first) > len(form.first):
                raise ValueError(f"{name} takes only {' and '.join(form.first)} without names")
            given = {argument: others[key] for argument, key in used.items()}
            positional = dict(zip(form.first, first, strict=False))
            if twice := next(filter(positional.__contains__, given), None):
                raise ValueError(f"{twice} is given twice, once without its name: give only one")
            given = positional | given
            given = {x: y if x in form.names else _joined(y, fields[x]) for x, y in given.items()}
            flags = {fields[x].name: _value(y, fields[x]) for x, y in given.items()}
            flags = {**form.defaults, **{x: y for x, y in flags.items() if y is not None}}
            flags = form.prepare(flags)
            for flag in fields.values():
                if is_required(flag) and flag.name not in flags:
                    raise ValueError(f"--{flag_name(flag)} is required")
            options = options_type(**flags)
            if options_type.needs_tensorflow and "tensorflow" not in sys.modules:
                import_quietly()
            return form.result(options, command.run(options))

    function.__name__ = function.__qualname__ = name
    function.__module__ = "bert_tf"
    function.__signature__ = signature
    about = " ".join(command.__doc__.strip().partition("\n\n")[0].split())
    lines = [line for key in fields for line in _described(key, fields[key], spoken)]
    parts = dict(about=about, module=module, arguments="\n".join(lines), data=form.data)
    example = form.example.replace("\n", "\n    ")
    function.__doc__ = _DOC.format(**parts, returns=form.returns, example=example)
    return function


def _place(form: Form, fields: Mapping[str, dataclasses.Field], name: str) -> tuple[int, int]:
    """Returns where to list an argument: positional ones first, then data, and rare ones last."""
    if name in form.first:
        return 0, form.first.index(name)
    if name in form.names:
        return 1, 0
    flag = fields[name]
    return 2, 0 if is_required(flag) else 2 if flag.metadata["kind"] == "rare" else 1


def _signature(fields: Mapping[str, dataclasses.Field], form: Form) -> inspect.Signature:
    first, named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters = []
    for name, flag in fields.items():
        default = inspect.Parameter.empty if is_required(flag) else flag.default
        about = dict(default=default, annotation=Any if name in form.names else _annotation(flag))
        parameters.append(inspect.Parameter(name, first if name in form.first else named, **about))
    quiet = inspect.Parameter("quiet", named, default=False, annotation=bool)
    return inspect.Signature([*parameters, quiet])


def _annotation(flag: dataclasses.Field) -> Any:
    """Returns the type of a flag as an argument; Python's None is the default of any flag."""
    if choices := flag.metadata["choices"]:
        return Literal[choices] if isinstance(flag.type, type) else Literal[choices] | None
    return flag.type


def _described(name: str, flag: dataclasses.Field, spoken: Mapping[str, str]) -> list[str]:
    """Returns the lines of an argument in a docstring."""
    text = explanation(flag, full=False)
    if choices := flag.metadata["choices"]:
        text += f" One of {', '.join(choices)}."
    indents = dict(initial_indent=" " * 4, subsequent_indent=" " * 8)
    text = f"{name}: {_renamed(text, spoken)}"
    return textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False, **indents)


def _joined(value: Any, flag: dataclasses.Field) -> Any:
    """Returns a list for a flag of comma-separated values as a string; other values as is."""
    of_texts = isinstance(value, list | tuple) and value_type(flag) is str
    if not of_texts or not all(isinstance(x, str | int | os.PathLike) for x in value):
        return value
    return ",".join(str(x) if isinstance(x, int) else with_home(x) for x in value)


def _value(value: Any, flag: dataclasses.Field) -> Any:
    """Returns the value of a flag as a command would have it; other data stays as it is."""
    if isinstance(value, list | tuple):
        return tuple(map(with_home, value)) if isinstance((), flag.type) else value
    # NumPy's scalars.
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    value = with_home(value)
    return (value,) if isinstance(value, str) and value_type(flag) is tuple else value


def with_home(value: Any) -> Any:
    """Returns a path as a string with the home folder in place of "~", other values as is."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    return os.path.expanduser(value) if isinstance(value, str) and value[:2] == "~/" else value


def called_options(function: str, options_type: type, given: Mapping[str, Any]) -> Any:
    """Returns the options that the arguments of a function state; refuses others."""
    fields = {field.name: field for field in dataclasses.fields(options_type)}
    for name in given.keys() - fields.keys():
        advice = advice_on(name, fields, options_type, f"choose one of {', '.join(fields)}")
        raise ValueError(f"{name} is not an argument of {function}: {advice}")
    return options_type(**{name: _value(value, fields[name]) for name, value in given.items()})


def showing_settings(options_type: type) -> Callable[[Callable], Callable]:
    """Returns a decorator that shows flags as the arguments of a function of **settings."""

    def show(function: Callable) -> Callable:
        signature = inspect.signature(function)
        *first, _ = signature.parameters.values()
        named = [
            inspect.Parameter(
                flag.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=flag.default,
                annotation=_annotation(flag),
            )
            for flag in dataclasses.fields(options_type)
            if flag.name not in signature.parameters
        ]
        function.__signature__ = signature.replace(parameters=[*first, *named])
        return function

    return show


def checked(function: Callable) -> Callable:
    """Checks the arguments of a function as flags are checked, by the types that it annotates.

    Only arguments of strings, numbers and booleans are checked. A path may be a `pathlib.Path` or
    begin with "~", and a number one of NumPy.
    """
    signature = inspect.signature(function)
    fields = [
        (x.name, x.annotation, option(MISSING if x.default is x.empty else x.default))
        for x in signature.parameters.values()
        if _first(x.annotation) in (str, int, float, bool)
    ]
    form = dict(bases=(Options,), frozen=True, namespace={"needs_tensorflow": False})
    options_type = dataclasses.make_dataclass(function.__name__, fields, kw_only=True, **form)
    names = [name for name, *_ in fields]

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(*arguments, **named)
        except TypeError:
            return function(*arguments, **named)  # Python's own message
        given = {x: bound.arguments[x] for x in names if x in bound.arguments}
        with in_python(options_type):
            options = called_options(function.__name__, options_type, given)
            bound.arguments |= {x: getattr(options, x) for x in given}
            return function(*bound.args, **bound.kwargs)

    call.__signature__ = signature  # Keras reads this one
    return call


def _first(annotation: Any) -> Any:
    return annotation.__args__[0] if isinstance(annotation, types.UnionType) else annotation


class in_python:
    """Raises errors instead of exiting. In errors and notes, flags become names of arguments.

    An error that our code raised for a user has no cause, and its traceback ends where the user
    called it.
    """

    def __init__(self, options_type: type, spoken: Mapping[str, str] | None = None):
        self._options_type = options_type
        self._spoken = spoken or {x.name: x.name for x in dataclasses.fields(options_type)}

    def __enter__(self) -> None:
        self._token = wording.set(functools.partial(_renamed, spoken=self._spoken))

    def __exit__(self, _: object, error: BaseException | None, frames: Any) -> None:
        wording.reset(self._token)
        if isinstance(error, SystemExit):
            # SIGTERM asks the whole process to end.
            if error.code == 130:
                raise KeyboardInterrupt("stopped: the same call resumes") from None
            if error.code != 143:
                raise RuntimeError(
                    f"a process of this run ended with exit code {error.code}; see the error "
                    'above. In a script, call bert_tf under if __name__ == "__main__":'
                ) from None
        if not isinstance(error, Exception):
            return
        line = error_line(error, self._options_type.if_out_of_memory)
        if line is None:
            return
        line = _renamed(" ".join(line.split()), self._spoken)
        if not isinstance(error, ValueError | OSError):
            new = ValueError if "File system scheme" in str(error) else MemoryError
            raise new(line) from None
        # Errors of the system have other arguments than their message.
        if len(error.args) == 1:
            error.args = (line,)
        while frames.tb_next:
            frames = frames.tb_next
        if frames.tb_frame.f_globals["__name__"].partition(".")[0] in _OURS:
            error.__traceback__ = error.__cause__ = None


def _renamed(text: str, spoken: Mapping[str, str]) -> str:
    """Returns a text with arguments in place of flags: --flag=x becomes argument=x."""

    def argument(match: re.Match) -> str:
        name, bare = match[1], match[1].removeprefix("no")
        return spoken.get(name) or (f"{spoken[bare]}=False" if bare in spoken else match[0])

    return re.sub(r"--(\w+)", argument, text)

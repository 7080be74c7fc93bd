"""Commands as users read them in --help and --helpfull, and as they type them."""

import dataclasses
import itertools
import os
import re
import shlex
import shutil
import textwrap
from collections.abc import Iterable

from bert_tf.base import SITE

_MARGIN = 28
_NARROWEST, _WIDEST = 40, 100
# What precedes the text of a line that may be broken: the indent of a continuation line, the name
# of a row, the mark of a list item, or nothing. Lines of examples do not match.
_HEAD = re.compile(r" {8,}(?=\S)|  \S.*?  +(?=[^#\s])|- |(?=\S)")
_MOST_CHOICES = 60  # letters
COMMON_FLAGS = [
    ("--quiet", "Print only warnings, errors and results."),
    ("--flagfile=VALUE", "Read flags from a file, one per line."),
    ("--verbosity=1", "Add a traceback to errors."),
    ("--version", "Print the version of bert-tf."),
]
_MORE = "\n--helpfull says more, and lists all flags."


def docs(page: str) -> str:
    """Returns the address of a page of the documentation, such as "checkpoints"."""
    return f"{SITE}/{page}.html"


def with_addresses(text: str) -> str:
    """Returns a text with the addresses of pages in place of their files, docs/checkpoints.md."""
    return re.sub(r"docs/(\w+)\.md", lambda match: docs(match[1]), text)


def flag_name(field: dataclasses.Field) -> str:
    """Returns the name of a field's flag: "from" for `from_`, as `from` is a keyword of Python."""
    return field.name.removesuffix("_")


def spelled_flags(relation: str) -> str:
    """Returns the flags in "A or B" as users type them."""
    return " or ".join(f"--{flag}" for flag in relation.split(" or "))


def is_required(field: dataclasses.Field) -> bool:
    """Returns whether the flag has no default."""
    return field.default is dataclasses.MISSING


def value_type(field: dataclasses.Field) -> type:
    """Returns the type of a flag's value: for a union such as `str | None`, the first."""
    return getattr(field.type, "__args__", (field.type,))[0]


def help_text(doc: str, options_type: type, *, full: bool) -> str:
    """Returns the help of a command, in lines as wide as the terminal; with `full`, --helpfull.

    `doc` is a summary, examples and a paragraph; further ones are for --helpfull.
    """
    about = doc.strip() if full else "\n\n".join(doc.strip().split("\n\n")[:3])
    fields = [
        field for field in ordered_flags(options_type) if full or field.metadata["kind"] != "rare"
    ]
    flags = [(f"--{_spelled(field)}", explanation(field, full)) for field in fields]
    lines = [*table(flags, _MARGIN), _MORE]
    if full:
        lines = table(flags + COMMON_FLAGS, _MARGIN)
    return wrapped("\n".join([f"{with_addresses(about)}\n\nFlags:", *lines]).lstrip())


def table(rows: Iterable[tuple[str, str]], margin: int) -> list[str]:
    """Returns a row for each name and text; the text begins after `margin` columns."""
    return [
        f"  {name:<{margin - 2}}{text}"
        if len(name) <= margin - 4
        else f"  {name}\n{' ' * margin}{text}"
        for name, text in rows
    ]


def wrapped(text: str) -> str:
    """Breaks lines that are wider than the terminal, except examples, which are indented.

    First joins the lines of each paragraph, list item ("- text") and row ("  name   text").
    """
    lines: list[str] = []
    margin = -1
    for line in text.split("\n"):
        if line and len(line) - len(line.lstrip()) == margin and not line.startswith("- "):
            lines[-1] += f" {line.lstrip()}"
        else:
            head = _HEAD.match(line)
            margin = len(head[0]) if head else -1
            lines.append(line)
    return "\n".join(map(_broken, lines))


def _broken(line: str) -> str:
    head = _HEAD.match(line)
    if not head or len(line) <= _width():
        return line
    name, margin = head[0], " " * len(head[0])
    if len(margin) > _width() // 2:
        # Too little room beside the name.
        name, margin = f"{name.rstrip()}\n{' ' * 6}".lstrip("\n"), " " * 6
    text = textwrap.wrap(
        line[head.end() :], _width() - len(margin), break_long_words=False, break_on_hyphens=False
    )
    return name + f"\n{margin}".join(text)


def _width() -> int:
    columns = shutil.get_terminal_size((_WIDEST, 0)).columns
    return min(max(columns, _NARROWEST), _WIDEST)


def ordered_flags(options_type: type) -> list[dataclasses.Field]:
    """Returns the flags: required ones and data first, then the command's own, then shared ones."""
    classes = options_type.__mro__
    own = {
        name: -i for i, cls in enumerate(classes) for name in vars(cls).get("__annotations__", ())
    }
    return sorted(
        dataclasses.fields(options_type),
        key=lambda x: (not is_required(x) and x.metadata["role"] != "data", -own[x.name]),
    )


def _spelled(field: dataclasses.Field) -> str:
    name, kind = flag_name(field), value_type(field)
    if kind is bool:
        return name if field.default is False else f"[no]{name}"
    choices = "|".join(field.metadata["choices"])
    value = {int: "N", float: "X"}.get(kind, "VALUE")
    return f"{name}={choices if 0 < len(choices) <= _most_choices(field) else value}"


def _most_choices(field: dataclasses.Field) -> int:
    return min(_MOST_CHOICES, _width() - len(f"  --{flag_name(field)}="))


def explanation(field: dataclasses.Field, full: bool) -> str:
    """Returns the help of a flag, without `full` its first sentence, and the default."""
    first, *others = re.split(r"(?<=\.)\s+(?=[A-Z`-])", field.metadata["help"])
    parts = [first, *(part for part in others if full or part.startswith("Default:"))]
    default, choices = field.default, field.metadata["choices"]
    if is_required(field):
        parts.append("Required.")
    elif default not in (None, ()) and default is not False:
        parts.append(f"Default: {'true' if default is True else default}.")
    if needs := field.metadata["needs"]:
        parts.append(f"Only with {' and '.join(map(spelled_flags, needs))}.")
    if full and (others := field.metadata["instead_of"]):
        parts.append(f"Not with --{' or --'.join(others)}.")
    if full and len("|".join(choices)) > _most_choices(field):
        parts.append(f"One of {', '.join(choices)}.")
    if full and field.metadata["aliases"]:
        parts.append(f"Also: --{', --'.join(field.metadata['aliases'])}.")
    return with_addresses(" ".join(parts))


def command_line(module: str, *texts: str, **flags: object) -> str:
    """Returns a command that can be pasted into a shell, whatever its values contain.

    `texts` are arguments without the name of a flag. None leaves a flag out.
    """
    arguments = []
    for name, value in flags.items():
        if isinstance(value, bool):
            arguments.append(f"--{name}" if value else f"--no{name}")
        elif value is not None:
            arguments.append(f"--{name}={shlex.quote(str(value))}")
    return " ".join(["python -m", module, *arguments, *map(shlex.quote, texts)])


def python_call(function: str, **arguments: object) -> str:
    """Returns the call of a function of bert_tf. None leaves an argument out."""
    given = [f"{name}={value!r}" for name, value in arguments.items() if value is not None]
    return f"bert_tf.{function}({', '.join(given)})"


def unused_name(name: str) -> str:
    """Returns `name`, or else the first of name-2, name-3, ... that does not exist yet.

    A suffix stays at the end: data.tfrecord, data-2.tfrecord.
    """
    stem, suffix = os.path.splitext(name)
    numbered = (f"{stem}-{number}{suffix}" for number in itertools.count(2))
    return next(path for path in itertools.chain([name], numbered) if not os.path.exists(path))

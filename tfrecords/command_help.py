"""The flags of a command as --help and --helpfull show them."""

import dataclasses
import re
import shutil
import textwrap

_MARGIN = 28
_MOST_CHOICES = 60  # letters
_ALWAYS = """\
  --quiet                   Print only warnings, errors and results.
  --flagfile=VALUE          Read flags from a file, one per line.
  --verbosity=1             Add a traceback to errors."""
_MORE = "\n--helpfull says more, and lists all flags."


def flag_name(field: dataclasses.Field) -> str:
    """Returns the name of a field's flag: "from" for `from_`, as `from` is a keyword of Python."""
    return field.name.removesuffix("_")


def is_required(field: dataclasses.Field) -> bool:
    """Returns whether the flag has no default."""
    return field.default is dataclasses.MISSING


def value_type(field: dataclasses.Field) -> type:
    """Returns the type of a flag's value: for a union such as `str | None`, the first."""
    return getattr(field.type, "__args__", (field.type,))[0]


def help_text(doc: str, options_type: type, *, full: bool) -> str:
    """Returns the help of a command.

    Args:
        doc: what it does: a summary, examples and a paragraph; further ones are for --helpfull.
        options_type: its flags. Required ones come first, then its own, then shared ones.
        full: whether to show all flags with their whole help, as --helpfull does.
    """
    about = doc.strip() if full else "\n\n".join(doc.strip().split("\n\n")[:3])
    fields = [field for field in ordered_flags(options_type) if full or not field.metadata["rare"]]
    flags = "\n".join(_flag(field, full) for field in fields)
    more = _ALWAYS if full else _MORE
    return f"{about}\n\nFlags:\n{flags}\n{more}"


def ordered_flags(options_type: type) -> list[dataclasses.Field]:
    """Returns the flags: required ones first, then the command's own, then shared ones."""
    classes = options_type.__mro__
    own = {
        name: -i for i, cls in enumerate(classes) for name in vars(cls).get("__annotations__", ())
    }
    return sorted(
        dataclasses.fields(options_type),
        key=lambda field: (not is_required(field), -own[field.name]),
    )


def _flag(field: dataclasses.Field, full: bool) -> str:
    width = min(shutil.get_terminal_size((100, 0)).columns, 100)
    lines = textwrap.wrap(_explanation(field, full), max(width, 60) - _MARGIN)
    head = f"  --{_spelled(field)}"
    first = [head.ljust(_MARGIN) + lines.pop(0)] if len(head) < _MARGIN - 1 else [head]
    return "\n".join([*first, *(" " * _MARGIN + line for line in lines)])


def _spelled(field: dataclasses.Field) -> str:
    name, kind = flag_name(field), value_type(field)
    if kind is bool:
        return name if field.default is False else f"[no]{name}"
    choices = "|".join(field.metadata["choices"])
    value = {int: "N", float: "X"}.get(kind, "VALUE")
    return f"{name}={choices if 0 < len(choices) <= _MOST_CHOICES else value}"


def _explanation(field: dataclasses.Field, full: bool) -> str:
    first, *others = re.split(r"(?<=\.)\s+(?=[A-Z`-])", field.metadata["help"])
    parts = [first, *(part for part in others if full or part.startswith("Default:"))]
    default, choices = field.default, field.metadata["choices"]
    if is_required(field):
        parts.append("Required.")
    elif default not in (None, ()) and default is not False:
        parts.append(f"Default: {'true' if default is True else default}.")
    if full and len("|".join(choices)) > _MOST_CHOICES:
        parts.append(f"One of {', '.join(choices)}.")
    if full and field.metadata["aliases"]:
        parts.append(f"Also: --{', --'.join(field.metadata['aliases'])}.")
    return " ".join(parts)

"""What the cells of tables hold: lists, numbers and names."""

import ast
import io
import json
import math
import re
import tokenize
import unicodedata
import warnings
from collections.abc import Sequence
from typing import Any

from bert_tf.tables.rows import parse_row

# Characters that only choose the look of the character before them.
_VARIATIONS = "\ufe0e\ufe0f"
# The most characters of a column's name that a message shows.
_LONGEST_NAME = 40
# The start of a list, and cells that were probably meant as lists.
_LIST = re.compile(r"[\[({]|(?:frozen)?set\(|array\(")
_BROKEN_LIST = re.compile(
    r"\[.*\]|\{.*\}|\(\s*(?:['\"].*|\))|(?:(?:frozen)?set|array)\(.*", re.DOTALL
)
_OPENING_QUOTES = "\"'“„‘«"
_QUOTED = r"""\s*(?:"(.*?)"|'(.*?)'|[“„‘«](.*?)[”“’»])\s*"""
# What may separate names of classes; all but spaces are rare in names.
_SEPARATORS = "|;/,\n\t，；、•·&+"


def shown(value: Any) -> str:
    """Returns the beginning of a cell, for messages."""
    return json.dumps(value, default=repr)[:50]


def short_name(name: str) -> str:
    """Returns the name of a column in quotes, for messages."""
    return repr(name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}...")


def as_number(value: Any) -> float:
    """Returns the number that a cell holds; NaN if it holds none."""
    try:
        # Python reads True as 1 and 1_000 as 1000.
        return math.nan if isinstance(value, bool) or "_" in str(value) else float(value)
    except (TypeError, ValueError):
        return math.nan
    except OverflowError:
        return math.inf


def fold(name: str) -> str:
    """Returns a name without differences in case, spaces and forms of characters."""
    name = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    visible = (c for c in name if unicodedata.category(c) != "Cf" and c not in _VARIATIONS)
    return " ".join("".join(visible).split())


def is_empty(value: Any) -> bool:
    """Returns whether a cell holds nothing, or an empty list."""
    return value in (None, []) or (isinstance(value, str) and not value.strip())


def class_name(text: str) -> str:
    """Returns the name of a class in composed form (NFC), without spaces around it."""
    return unicodedata.normalize("NFC", text.strip())


def is_plain(name: str, separator: str) -> bool:
    """Returns whether a class name can be read back after joining names with the separator."""
    if name[:1] in (*_OPENING_QUOTES, "") or _LIST.match(name):
        return False
    parts = split(name + separator + name, separator)
    one_line = len(name.splitlines()) == 1 and "\t" not in name
    return one_line and [*map(class_name, parts)] == [name] * 2


def join_classes(names: Sequence[str], separator: str) -> str:
    """Returns a cell that holds these classes: with the separator, or as a list if need be."""
    if all(is_plain(name, separator) for name in names):
        return separator.join(names)
    return f"[{', '.join(map(as_json, names))}]"


def as_json(name: str) -> str:
    """Returns a name as an element of a JSON list."""
    # Files of predictions may hold no line breaks. Unicode has more of them than ASCII.
    return json.dumps(name, ensure_ascii=len(name.splitlines()) > 1)


def parse_list(text: str) -> list | None:
    """Returns the items of a JSON list, or of a Python list, tuple or set, in quotes or not.

    Returns None if the text does not start like a list.
    """
    text = text.strip()
    inside = text[1:-1].strip()
    if text[:1] in ("'", '"') and text[-1] == text[0] and _BROKEN_LIST.fullmatch(inside):
        value = _parse_value(text)
        text = value.strip() if isinstance(value, str) else inside
    if not _LIST.match(text):
        return None
    value = _parse_value(text)
    if value is None:
        raise ValueError("neither JSON nor Python")
    if not isinstance(value, list | tuple | set):
        raise ValueError("not one")
    return list(value)


def _parse_value(text: str) -> Any:
    """Returns the value of JSON, or else of a Python literal; None if the text is neither."""
    try:
        return parse_row(text)
    except (ValueError, RecursionError):
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of backslashes
            tree = ast.parse(text, mode="eval")
        strings = sum(
            isinstance(x, ast.Constant) and isinstance(x.value, str) for x in ast.walk(tree)
        )
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        # NumPy writes ['a' 'b'], which Python reads as ['ab'].
        if strings == sum(token.type == tokenize.STRING for token in tokens):
            return ast.literal_eval(tree)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError):
        pass
    return None


def resembles_list(text: str) -> bool:
    """Returns whether a text is a list, or was probably meant as one."""
    try:
        return parse_list(text) is not None
    except ValueError:
        return bool(_BROKEN_LIST.fullmatch(text.strip()))


def split(text: str, separator: str) -> list[str]:
    """Returns the parts of a text between separators, without empty ones.

    Quotes around a part are left out; it may contain separators.
    """
    pattern = rf"(?:{_QUOTED}|(.*?))(?:{re.escape(separator)}|\Z)"
    parts = (match[match.lastindex] for match in re.finditer(pattern, text, re.DOTALL))
    return [part for part in parts if part.strip()]


def other_separator(cells: Sequence[str], separator: str) -> tuple[str, int, int] | None:
    """Returns what seems to separate names instead, in how many cells, and of how many; or None.

    Lists do not count. At least a tenth of the other cells hold it, and hardly any `separator`. A
    space separates names only if these are fewer than the cells that differ.
    """
    cells = [cell for cell in cells if cell.strip() and not _LIST.match(cell.strip(" '\""))]
    counts = {x: sum(x in cell for cell in cells) for x in _SEPARATORS}
    words = [cell.split() for cell in cells]
    if len({word for parts in words for word in parts}) < len({*map(tuple, words)}):
        counts[" "] = sum(" " in cell for cell in cells)
    other = max(counts, key=counts.get)
    least = max(len(cells), 100 * sum(separator in cell for cell in cells)) / 10
    return (other, counts[other], len(cells)) if counts[other] >= max(least, 1) else None

"""Reads and writes lists in the cells of tables."""

import ast
import io
import json
import re
import tokenize
import unicodedata
import warnings
from collections.abc import Sequence
from typing import Any

from bert_tf.finetuning.tables import parse_json

# The start of a list, and cells that were probably meant as lists.
_LIST = re.compile(r"[\[({]|(?:frozen)?set\(|array\(")
_BROKEN_LIST = re.compile(r"\[.*\]|\{.*\}|\(\s*['\"].*|array\(.*", re.DOTALL)


def class_name(text: str) -> str:
    """Returns the name of a class in composed form (NFC), without spaces around it."""
    return unicodedata.normalize("NFC", text.strip())


def is_plain(name: str, separator: str) -> bool:
    """Returns whether a class name can be read back after joining names with the separator."""
    parts = split(name + separator + name, separator)
    one_line = len(name.splitlines()) == 1 and "\t" not in name
    return one_line and not _LIST.match(name) and [*map(class_name, parts)] == [name] * 2


def join_classes(names: Sequence[str], separator: str) -> str:
    """Returns a cell from which `labels.read_several` reads these classes."""
    if all(is_plain(name, separator) for name in names):
        return separator.join(names)
    return f"[{', '.join(map(as_json, names))}]"


def as_json(name: str) -> str:
    """Returns a name as an element of a JSON list."""
    # Files of predictions may hold no line breaks. Unicode has more of them than ASCII.
    return json.dumps(name, ensure_ascii=len(name.splitlines()) > 1)


def parse_list(text: str) -> list | None:
    """Returns the items of a JSON list, or of a Python list, tuple or set.

    Returns None if the text does not start like a list.

    Raises:
        ValueError: it starts like a list, but is not one.
    """
    text = text.strip()
    if not _LIST.match(text):
        return None
    try:
        value = parse_json(text)
    except (ValueError, RecursionError):
        value = _parse_python(text)
    if not isinstance(value, list | tuple | set):
        raise ValueError("neither JSON nor Python")
    return list(value)


def _parse_python(text: str) -> Any:
    """Returns the value of a Python literal; None if the text is not one."""
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
    """Returns the parts of a text between separators, without empty ones."""
    return [part for part in text.split(separator) if part.strip()]

"""Tables in memory: rows of any format in columns, and lists, numbers and names in cells."""

import ast
import io
import json
import math
import re
import tokenize
import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bert_tf.base.content import is_unicode
from bert_tf.tables.memory import TableInMemory
from bert_tf.tables.rows import Numbered, parse_row, read_rows

# Characters that only choose the look of the character before them.
_VARIATIONS = "\ufe0e\ufe0f"
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
    try:
        return json.dumps(value, default=repr)[:50]
    except (TypeError, ValueError):  # keys that JSON lacks, numbers of more than 4,300 digits
        return f"of the type {type(value).__name__}"


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
    value = value.strip() if isinstance(value, str) else value
    return value is None or (isinstance(value, str | list) and not value)


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
    """Returns the items of a JSON list, or of a Python list, tuple or set; None for other text."""
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
    """Returns the parts of a text between separators, without empty ones, and without quotes."""
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


@dataclass(frozen=True)
class Table:
    """The rows of a file, in columns.

    Attributes:
        path: the file, for messages.
        lines: the number of the line on which each row begins, or of each `unit`.
        columns: the cells by the name of their column: strings, or any JSON value; None where a
            JSON object lacks the key. Bytes that are not UTF-8 are lone surrogates.
        unit: what `lines` count: "line", "object" of a JSON list or "row" of Parquet.
    """

    path: str
    lines: list[int]
    columns: dict[str, list[Any]]
    unit: str = "line"

    @classmethod
    def of(cls, path: str, rows: Iterable[Numbered], unit: str, names: Iterable = ()) -> "Table":
        """Returns a table with at least the columns `names`; raises the error of a bad row."""
        lines, columns = [], {name: [] for name in names}
        for line, row in rows:
            if isinstance(row, ValueError):
                raise row
            columns |= {name: [None] * len(lines) for name in row if name not in columns}
            for name, cells in columns.items():
                cells.append(row.get(name))
            lines.append(line)
        return cls(path, lines, columns, unit)

    @property
    def is_exact(self) -> bool:
        """Whether cells hold the user's own values: in memory and Parquet. Others were typed."""
        return self.unit == "row"

    @property
    def marks_lists(self) -> bool:
        """Whether a list of one item differs from the item; in TFRecord files, it does not."""
        return self.unit != "record"

    def __len__(self) -> int:
        return len(self.lines)

    def at(self, row: int) -> str:
        """Returns where a row is, for messages."""
        return f"{self.path}, {self.unit} {self.lines[row]:,}"

    def column(self, name: str, advice: str = "") -> list[Any]:
        """Returns the cells of a column.

        Raises:
            ValueError: there is no such column.
        """
        if name not in self.columns:
            raise ValueError(f"{self.path} has no column {name!r}, only {self.names()}{advice}")
        return self.columns[name]

    def names(self) -> str:
        """Returns the names of the columns, for messages."""
        return ", ".join(map(short_name, self.columns))

    def texts(self, name: str, needed: bool = True) -> list[bytes]:
        """Returns the texts of a column; unless they are `needed`, missing ones and null are b"".

        Raises:
            ValueError: there is no such column, or a cell holds something else.
        """
        texts = self.column(name)
        if not needed:
            texts = ["" if text is None else text for text in texts]
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                value = "missing or null" if text is None else shown(text)
                raise ValueError(f"{self.at(row)}: {name!r} is {value}, not a string")
        # Lone surrogates stand for bytes that are not UTF-8; the report counts such texts.
        return [text.encode(errors="surrogatepass") for text in texts]

    def ids(self, name: str | None) -> tuple[list[str] | None, tuple[str, ...]]:
        """Returns the id of each row, "" if it has none, and notes on repeated ids.

        Without the name of a column, the ids are None.
        """
        if name is None:
            return None, ()
        for row, value in enumerate(self.columns[name]):
            if not isinstance(value, str | int | float | None):
                raise ValueError(f"{self.at(row)}: the id is {shown(value)}, not text or a number")
            if isinstance(value, str) and not is_unicode(value):
                raise ValueError(f"{self.at(row)}: the id is not UTF-8: save the file as UTF-8")
        ids = ["" if value is None else str(value) for value in self.columns[name]]
        known = list(filter(None, ids))
        repeated = len(known) - len(set(known))
        return ids, (f"{repeated:,} with the id of an earlier one",) if repeated else ()

    def words(self, row: int, name: str, kind: str) -> tuple[str, ...]:
        """Returns the words or tags in a cell; `kind` is "word" or "tag", for messages."""
        values = cell = self.columns[name][row]
        if isinstance(cell, str):
            values = self.parse_list(row, cell)
        # A single word, not a text of several.
        if not self.marks_lists and not isinstance(values, list) and len(str(cell).split()) == 1:
            values = [cell]
        # Tags may also be numbers.
        if not isinstance(values, list) or not all(
            type(x) is int or (isinstance(x, str) and is_unicode(x)) for x in values
        ):
            raise ValueError(f"{self.at(row)}: {name!r} is not a list of strings")
        if "" in values:
            raise ValueError(f"{self.at(row)}: {kind} {values.index('') + 1} of {name!r} is empty")
        return tuple(map(str, values))

    def parse_list(self, row: int, text: str) -> list | None:
        """Returns the items of the list that a text of a row states; None if it states none."""
        try:
            return parse_list(text)
        except ValueError as error:
            if not self.marks_lists:
                return None
            raise ValueError(
                f"{self.at(row)}: {shown(text)} starts like a list, but is {error}: write "
                '["a", "b"], or ["(a)"] for a single name that starts with a bracket'
            ) from None


def read_table(path: str | TableInMemory, quoted: bool | None = None) -> Table:
    """Reads a table; the end of its name, before that of a compressed file, states the format.

    - `.csv`: fields are separated by the most frequent of comma, semicolon and tab in the first
      line, or by | if it has none of them, or as a line such as `sep=;` before it states.
    - `.tsv`: quotes are text, unless the fields are `quoted` as in `.csv`. If that is unknown, they
      are if the whole file follows its rules.
    - `.json`, `.jsonl`: an object per line, or a list of objects.
    - `.parquet`, and `.tfrecord` with a `tf.train.Example` per record.

    Blank lines are skipped, except in a file with a single column, where they are empty cells.
    Prints the number of fields with line breaks, if any, because stray quotes also cause them.

    Raises:
        ValueError: the file is damaged, empty or of another kind; the message names the line.
        OSError: it cannot be read.
    """
    unit, rows = read_rows(path, quoted)
    return Table.of(str(path), rows, unit)

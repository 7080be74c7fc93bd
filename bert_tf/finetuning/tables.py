"""Reads the files of users, and their tables: CSV, TSV and JSON lines."""

import csv
import io
import json
import math
import re
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from bert_tf.corpus.content import checked_content
from bert_tf.corpus.sources import is_json
from tfrecords.progress import counted, say

CONLL_FORM = (
    "a file that has a word and its tag on every line, separated by a tab, and a blank line after "
    "every sentence"
)
# The standard library's limit is 128 kB per field; a mail with attachments is larger.
_LARGEST_FIELD = 2**31 - 1
# The line with which Excel states the delimiter.
_DELIMITER_LINE = re.compile(r'"?sep=(.)"?\1*\r?(?=\n)', re.IGNORECASE)
_COMPRESSED = {"gz", "bz2", "xz", "zst", "zip"}
# A field of a tab-separated file, quoted or without any quote, and what ends it.
_FIELD = re.compile(r'("[^"]*+(?:""[^"]*+)*+"|[^"\t\n]*+)(\t|\r?\n|\Z)')
# Characters that only choose the look of the character before them.
_VARIATIONS = "\ufe0e\ufe0f"
# The most characters of a column's name that a message shows.
_LONGEST_NAME = 40


@dataclass(frozen=True)
class Table:
    """The rows of a file, in columns.

    Attributes:
        path: the file, for messages.
        lines: the number of the line on which each row begins, or of each object of a JSON list.
        columns: the cells by the name of their column: strings, or any JSON value; None where a
            JSON object lacks the key. Bytes that are not UTF-8 are lone surrogates.
        unit: what `lines` count: "line" or "object".
    """

    path: str
    lines: list[int]
    columns: dict[str, list[Any]]
    unit: str = "line"

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
        return ", ".join(map(shortened, self.columns))

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields the number of the line and the cells of each row."""
        for line, *cells in zip(self.lines, *self.columns.values(), strict=True):
            yield line, dict(zip(self.columns, cells, strict=True))

    def texts(self, name: str) -> list[bytes]:
        """Returns the texts of a column.

        Raises:
            ValueError: there is no such column, or a cell holds something else.
        """
        texts = self.column(name)
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                value = "missing or null" if text is None else shown(text)
                raise ValueError(f"{self.at(row)}: {name!r} is {value}, not a string")
        # Lone surrogates stand for bytes that are not UTF-8; the report counts such texts.
        return [text.encode(errors="surrogatepass") for text in texts]


def read_file(path: str) -> bytes:
    """Returns the decompressed content of a file, without its UTF-8 byte order mark if any."""
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise FileNotFoundError(f"{path}: no such file")
    return b"".join(checked_content(path))


def find_file(data_dir: str, *names: str, advice: str = "name their folder as --data_dir") -> str:
    """Returns the path of the first of these files that exists in a folder."""
    for name in names:
        if tf.io.gfile.exists(f"{data_dir}/{name}"):
            return f"{data_dir}/{name}"
    raise FileNotFoundError(f"{data_dir} contains neither {' nor '.join(names)}: {advice}")


def shown(value: Any) -> str:
    """Returns the beginning of a cell, for messages."""
    return json.dumps(value, default=repr)[:50]


def shortened(name: str) -> str:
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


def read_table(path: str) -> Table:
    """Reads a table; the end of its name determines the format.

    - `.csv`: the first line names the columns; quoted fields may contain anything, quotes doubled.
      Fields are separated by the most frequent of comma, semicolon and tab in the first line, or
      by | if it has none of them. A line such as `sep=;` before it states the separator.
    - `.tsv`: the first line names the columns; tabs separate the fields. Quotes are text, unless
      the whole file follows the quoting rules of `.csv`; if so, prints a note. With a line `sep=`,
      it is read as `.csv`.
    - `.json`, `.jsonl`, compressed or not: an object per line, whose keys name the columns, or a
      list of such objects.

    Blank lines are skipped, except in a file with a single column, where they are empty cells. A
    byte order mark is skipped, too. Line ends may be those of Windows. Prints the number of fields
    with line breaks, if any, because stray quotes also cause them.

    Raises:
        ValueError: the file is damaged, empty or of another kind; the message names the line.
        OSError: it cannot be read.
    """
    readers = {"csv": _csv_rows, "tsv": _tsv_rows, "json": _json_rows, "jsonl": _json_rows}
    kind = "json" if is_json(path) else path.rpartition(".")[2].lower()
    if kind in _COMPRESSED:
        raise ValueError(f"{path}: compressed tables are not supported: decompress it first")
    if kind not in readers:
        raise ValueError(
            f"{path}: the name must end in .{', .'.join(readers)}: rename it. For CoNLL files, use "
            "--task=ner"
        )
    content = read_file(path).decode(errors="surrogateescape")
    if kind == "tsv" and _DELIMITER_LINE.match(content):
        kind = "csv"
    rows = list(readers[kind](path, content))
    if not rows:
        if "\r" in content and "\n" not in content:
            raise ValueError(
                f"{path} is a single line with carriage returns: save the file with the line ends "
                "of Unix or Windows"
            )
        raise ValueError(f"{path} holds no examples")
    lines, values = zip(*rows, strict=True)
    names = dict.fromkeys(name for row in values for name in row)
    columns = {name: [row.get(name) for row in values] for name in names}
    is_list = kind in ("json", "jsonl") and _is_list(content)
    return Table(path, list(lines), columns, "object" if is_list else "line")


def _csv_rows(
    path: str, content: str, delimiter: str | None = None
) -> Iterator[tuple[int, dict[str, str]]]:
    if stated := _DELIMITER_LINE.match(content):
        # The rest of the line stays, so that all others keep their numbers.
        delimiter, content = stated[1], content[stated.end() :]
    header = content.lstrip("\r\n").partition("\n")[0]
    if not delimiter:
        common = max(",;\t", key=header.count)
        delimiter = common if common in header or "|" not in header else "|"
    # It ends a row for the csv module, although writers leave it unquoted. Texts lose nothing:
    # to the tokenizer it is a space.
    content = re.sub("\r(?!\n)", " ", content)
    csv.field_size_limit(_LARGEST_FIELD)
    rows = csv.reader(io.StringIO(content, newline=""), delimiter=delimiter, strict=True)
    yield from _named(path, _numbered(path, rows))


def _numbered(path: str, rows: Iterator[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Yields the rows with the numbers of the lines on which they begin; counts line breaks."""
    line, broken = 1, []
    try:
        for fields in rows:
            broken += [line for field in fields if "\n" in field]
            yield line, fields
            line = rows.line_num + 1
    except csv.Error as error:
        problem = "a quote is not closed" if "end of data" in str(error) else str(error)
        raise ValueError(
            f'{path}, line {line:,}: {problem}; inside a quoted field, a quote is written ""'
        ) from None
    if broken:
        say(
            f"{path}: {counted(len(broken), 'field')} with line breaks, the first in line "
            f'{broken[0]:,}. If you expect none, look there for a stray ", which joins rows.'
        )


def _tsv_rows(path: str, content: str) -> Iterator[tuple[int, dict[str, str]]]:
    # The csv module and splitlines also split at a lone carriage return, which is text here.
    lines = (line.removesuffix("\r") for line in content.removesuffix("\n").split("\n"))
    rows = [line.split("\t") if line else [] for line in lines]
    in_quotes = sum(len(x) > 1 and x[0] == x[-1] == '"' for fields in rows for x in fields)
    if '"' in content and _is_quoted(content, rows):
        say(f"{path}: its fields are quoted as in .csv files and are read that way.")
        yield from _csv_rows(path, content, "\t")
        return
    if in_quotes:
        say(
            f"{path}: kept the quotes around {counted(in_quotes, 'field')} as text, because not "
            "all fields follow the quoting rules of .csv. To find out where, name the file .csv."
        )
    yield from _named(path, enumerate(rows, 1))


def _is_quoted(content: str, plain: list[list[str]]) -> bool:
    """Returns whether a tab-separated file follows the quoting rules of `.csv` throughout.

    `plain` are its rows if quotes are read as text.
    """
    rows, end = [[]], 0
    for match in _FIELD.finditer(content):
        if match.start() != end:
            return False
        rows[-1].append(match[1])
        if match[2] != "\t":
            rows.append([])
        end = match.end()
    header, *rows = (row for row in rows if row not in ([], [""]))
    if not rows or any(len(row) != len(header) for row in rows):
        return False
    if any(len(row) != len(plain[0]) for row in plain if row):
        return True
    # Both readings fit. Stray quotes could join rows, but doubled quotes are deliberate.
    columns = [*zip(*rows, strict=True)]
    quoted = [[x[1:-1] for x in column if x[:1] == '"'] for column in columns]
    if any("\n" in x or "\t" in x for column in quoted for x in column):
        return False
    always = [len(some) == len(column) > 1 for some, column in zip(quoted, columns, strict=True)]
    # Some writers also quote fields with commas.
    needed = [all('""' in x or "," in x for x in some) for some in quoted]
    doubled = any('""' in x for some in quoted for x in some)
    return (doubled or any(always)) and all(map(max, always, needed))


def _named(
    path: str, rows: Iterator[tuple[int, list[str]]]
) -> Iterator[tuple[int, dict[str, str]]]:
    names, nameless = None, []
    for line, fields in rows:
        if not fields and not (names and len(names) == 1):
            continue
        if names is None:
            names = [name.strip() for name in fields]
            if twice := {name for name in names if name and names.count(name) > 1}:
                raise ValueError(f"{path}: the first line names {min(twice)!r} twice")
        elif not fields:
            yield line, {names[0]: ""}
        elif len(fields) != len(names):
            raise ValueError(
                f"{path}, line {line:,}: {counted(len(fields), 'column')}, but the first line has "
                f"{len(names)}: {', '.join(map(repr, names))}"
            )
        else:
            # The first column may be the index of the rows.
            nameless += [
                line for name, cell in zip(names[1:], fields[1:], strict=True) if cell and not name
            ]
            yield line, dict(zip(names, fields, strict=True))
    if nameless:
        say(
            f"{path}: ignored {counted(len(nameless), 'cell')} in columns without a name, the "
            f"first in line {nameless[0]:,}."
        )


def _json_rows(path: str, content: str) -> Iterator[tuple[int, dict[str, Any]]]:
    if _is_list(content):
        rows, unit = enumerate(_parse(path, 1, content), 1), "object"
    else:
        lines = enumerate(content.split("\n"), 1)
        rows, unit = ((n, _parse(path, n, line)) for n, line in lines if line.strip()), "line"
    rows = [*rows]
    for number, row in rows:
        if not isinstance(row, dict):
            raise ValueError(
                f"{path}, {unit} {number:,} is not a JSON object: write one per line, such as "
                '{"text": "...", "label": "..."}'
            )
    if len(rows) == 1 and _is_nested([*rows[0][1].values()]):
        raise ValueError(
            f"{path} holds all rows in one object: write one object per line, as pandas does with "
            'to_json(path, orient="records", lines=True)'
        )
    yield from rows


def _is_list(content: str) -> bool:
    return content.lstrip().startswith("[")


def _is_nested(values: Collection[Any]) -> bool:
    """Returns whether the values of an object hold columns or rows, as pandas writes them."""
    parts = [part for value in values if isinstance(value, list) for part in value]
    return all(isinstance(value, dict | list) for value in values) and (
        any(isinstance(value, dict) for value in values)
        or any(isinstance(part, dict | list) for part in parts)
    )


def _parse(path: str, line: int, text: str) -> Any:
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        problem = f"{error.msg} at column {error.colno}"
        raise ValueError(
            f"{path}, line {line + error.lineno - 1:,} is not JSON: {problem}; write one object "
            "per line, or a list of objects"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}, line {line:,} cannot be read: {error}") from None


def parse_json(line: str) -> Any:
    """Returns the value of a line of JSON; NaN is None."""
    # Programs write NaN for empty cells; it is not JSON, and neither is Infinity.
    return json.loads(line, object_pairs_hook=_object, parse_constant=lambda constant: None)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"it names {max(keys, key=keys.count)!r} twice")
    return row

"""Reads the files of users, and their tables: CSV, TSV, JSON lines and Parquet."""

import json
import math
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from bert_tf.base.input_files import check_single
from bert_tf.corpus.content import checked_content
from bert_tf.finetuning.table_rows import Numbered, read_rows

CONLL_FORM = (
    "a file that has a word and its tag on every line, separated by a tab, and a blank line after "
    "every sentence"
)
# Characters that only choose the look of the character before them.
_VARIATIONS = "\ufe0e\ufe0f"
# The most characters of a column's name that a message shows.
_LONGEST_NAME = 40


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


def read_file(path: str) -> bytes:
    """Returns the decompressed content of a file, without its UTF-8 byte order mark if any."""
    check_single(path)
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
    """Reads a table; the end of its name, before that of a compressed file, states the format.

    - `.csv`: fields are separated by the most frequent of comma, semicolon and tab in the first
      line, or by | if it has none of them, or as a line such as `sep=;` before it states.
    - `.tsv`: quotes are text, unless the whole file follows the quoting rules of `.csv`.
    - `.json`, `.jsonl`: an object per line, or a list of objects.
    - `.parquet`, and `.tfrecord` with a `tf.train.Example` per record.

    Blank lines are skipped, except in a file with a single column, where they are empty cells.
    Prints the number of fields with line breaks, if any, because stray quotes also cause them.

    Raises:
        ValueError: the file is damaged, empty or of another kind; the message names the line.
        OSError: it cannot be read.
    """
    unit, rows = read_rows(path, whole=True)
    return Table.of(path, rows, unit)

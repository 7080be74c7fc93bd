"""Tables in memory: rows of any format in columns, and what their cells hold."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bert_tf.base.content import is_unicode
from bert_tf.tables.cells import parse_list, short_name, shown
from bert_tf.tables.rows import Numbered, read_rows


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
        ids = ["" if value is None else str(value) for value in self.columns[name]]
        for row, value in enumerate(ids):
            if not is_unicode(value):
                raise ValueError(f"{self.at(row)}: the id is not UTF-8: save the file as UTF-8")
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
            raise ValueError(
                f"{self.at(row)}: {kind} {values.index('') + 1:,} of {name!r} is empty"
            )
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

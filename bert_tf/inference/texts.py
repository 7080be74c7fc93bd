"""Reads the texts that commands are given: arguments, lines, or rows of tables."""

import codecs
import contextlib
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bert_tf.corpus.content import check_encoding
from bert_tf.corpus.sources import read_blocks
from bert_tf.finetuning import table_rows
from bert_tf.finetuning.columns import Columns, find_columns
from bert_tf.finetuning.labels import read_ids, read_words
from bert_tf.finetuning.table_rows import table_kind
from bert_tf.finetuning.tables import Table, fold
from bert_tf.runs.run import Run
from tfrecords.input_files import expand_files

CHUNK_LINES = 1024
_BLOCK_BYTES = 2**20


def read_chunks(texts: Sequence[str], input_file: str | None) -> Iterator[list[bytes]]:
    """Yields the texts, or else the lines of a file or of standard input, in chunks.

    A chunk is a single line if someone types in a terminal, who thus gets each answer at once.
    """
    if texts:
        # Arguments that are not UTF-8 arrive with surrogates.
        lines = (text.encode("utf-8", "surrogateescape") for text in texts)
    elif input_file:
        lines = read_lines(input_file)
    else:
        lines = _standard_input()
    typed = is_typed(texts, input_file)
    if typed:
        print("Type one text per line, and end with Ctrl-D.", file=sys.stderr)
    return in_chunks(lines, 1 if typed else CHUNK_LINES)


def input_files(names: str | None) -> list[str | None]:
    """Returns the files that --input_file names; None stands for other input."""
    return expand_files(names) if names else [None]


def is_typed(texts: Sequence[str], input_file: str | None) -> bool:
    """Returns whether someone types the texts in a terminal."""
    return not texts and not input_file and sys.stdin.isatty()


def _standard_input() -> Iterator[bytes]:
    for number, line in enumerate(sys.stdin.buffer):
        if number == 0:
            check_encoding(line, "standard input")
        yield (line if number else line.removeprefix(codecs.BOM_UTF8)).rstrip(b"\r\n")


def in_chunks(items: Iterable, size: int) -> Iterator[list]:
    """Yields lists of `size` items; the last one may be shorter."""
    iterator = iter(items)
    return iter(lambda: list(itertools.islice(iterator, size)), [])


def read_lines(file: str) -> Iterator[bytes]:
    """Yields the lines of a text file without their ends (LF or CRLF); blank lines, too."""
    for block in read_blocks([file], _BLOCK_BYTES, layout=None):
        for line in block.data.removesuffix(b"\n").split(b"\n"):
            yield line.removesuffix(b"\r")


class Row(NamedTuple):
    """An example in a file.

    Attributes:
        texts: a line; or the texts of a row, UTF-8 bytes or a list of choices.
        id: the row's id; None if it has none.
    """

    texts: bytes | tuple
    id: Any = None


# The number of a row, and the row or what is wrong with it.
Numbered = tuple[int, Row | ValueError]


def columns_of_run(run: Run | None) -> Columns:
    """Returns the columns of texts and labels that a fine-tuning run was trained on."""
    flags = run.flags if run else {}
    names = ("text_column", "text_b_column", "label_column", "label_type")
    *found, kind = map(flags.get, names)
    # Where sentences are lists of words, the model takes whole texts.
    return Columns.of(*found, kind) if flags.get("task") == "csv" and kind != "tags" else Columns()


def is_table(path: str | None) -> bool:
    """Returns whether the name of a file is that of a table."""
    return bool(table_kind(path or ""))


def read_rows(
    path: str,
    given: Columns,
    trained: Columns = Columns(),  # noqa: B008
    inputs: Sequence[str] = ("text",),
    has_choices: bool = False,
) -> Iterator[Numbered]:
    """Reads a table as run_finetuning reads a test file; prints its guesses to standard error.

    The first rows decide which columns to read. A row that cannot be read is a ValueError.

    Args:
        given: the columns that flags name.
        trained: those that the model's run read; `inputs` replace them if the table has only these.
        inputs: the names of one or two texts.
        has_choices: whether the last one is a list of texts.
    """
    columns = None
    with contextlib.redirect_stdout(sys.stderr):
        unit, numbered = table_rows.read_rows(path)
    chunks = in_chunks(numbered, CHUNK_LINES)

    def next_chunk() -> list | None:
        with contextlib.redirect_stdout(sys.stderr):
            return next(chunks, None)

    for chunk in iter(next_chunk, None):
        if not columns:
            good = [item for item in chunk if not isinstance(item[1], ValueError)]
            if not good:
                raise chunk[0][1]
            table = Table.of(path, good, unit)
            with contextlib.redirect_stdout(sys.stderr):
                flags = ((given.text, trained.text), (given.text_b, trained.text_b))
                wanted = Columns(*map(_choose, [table] * 2, flags, inputs), labels=trained.labels)
                columns = find_columns(table, wanted, labelled=False)
            names = [name for name in (columns.text, columns.text_b, columns.id) if name]
        for line, row in chunk:
            if not isinstance(row, ValueError):
                try:
                    row = _row(Table.of(path, [(line, row)], unit, names), columns, has_choices)
                except ValueError as error:
                    row = error
            yield line, row


def _row(table: Table, columns: Columns, has_choices: bool) -> Row:
    """Returns the only row of a table."""
    names = [name for name in (columns.text, columns.text_b) if name]
    texts = [table.texts(name)[0] for name in names[: len(names) - has_choices]]
    if has_choices:
        texts.append([*read_words(table, 0, names[-1], "choice")])
        if not texts[-1]:
            raise ValueError(f"{table.at(0)}: {names[-1]!r} holds no choice")
    read_ids(table, columns.id)  # checks it
    return Row(tuple(texts), table.columns[columns.id][0] if columns.id else None)


def _choose(table: Table, flags: tuple[str | None, str | None], name: str) -> str | None:
    """Returns the column of an input: that of a flag, or else of the run, or of its own name."""
    given, saved = flags
    known = set(map(fold, table.columns))
    # A single text is also found under other names.
    default = saved or (name if name != "text" else None)
    return given or next((x for x in (saved, name) if x and fold(x) in known), default)


def read_texts(
    texts: Sequence[str], input_file: str | None, text_column: str | None
) -> Iterator[list[bytes]]:
    """Yields chunks of texts: those of a table, or those that `read_chunks` yields."""
    for file in input_files(input_file):
        check_columns(file, text_column)
        if is_table(file):
            yield from in_chunks(_texts_of_rows(file, text_column), CHUNK_LINES)
        else:
            yield from read_chunks(texts, file)


def _texts_of_rows(file: str, text_column: str | None) -> Iterator[bytes]:
    for _, row in read_rows(file, Columns(text_column)):
        if isinstance(row, ValueError):
            raise row
        yield row.texts[0]


def check_columns(input_file: str | None, *names: str | None) -> None:
    """Raises a ValueError if flags name columns, but the input is not a table."""
    flags = [f"--{x}_column" for x, name in zip(("text", "text_b"), names, strict=False) if name]
    if flags and not is_table(input_file):
        raise ValueError(
            f"{' and '.join(flags)} is only for an --input_file named .csv, .tsv, .json, .jsonl, "
            ".parquet or .tfrecord: omit it"
        )

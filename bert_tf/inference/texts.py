"""Reads the texts that commands are given: arguments, lines, or rows of tables."""

import codecs
import contextlib
import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bert_tf.corpus.content import check_encoding
from bert_tf.corpus.sources import is_json, read_blocks
from bert_tf.finetuning.columns import Columns, find_columns
from bert_tf.finetuning.labels import read_ids, read_words
from bert_tf.finetuning.tables import Table, fold, read_table
from bert_tf.runs.run import Run

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
    typed = not texts and not input_file and sys.stdin.isatty()
    if typed:
        print("Type one text per line, and end with Ctrl-D.", file=sys.stderr)
    return in_chunks(lines, 1 if typed else CHUNK_LINES)


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


_TABLE = re.compile(r".*\.(csv|tsv)(\.(gz|bz2|xz|zst|zip))?", re.IGNORECASE | re.DOTALL)


class Row(NamedTuple):
    """The texts of a row, UTF-8 bytes or a list of choices, and its id; None if it has none."""

    texts: tuple
    id: Any


def columns_of_run(run: Run | None) -> Columns:
    """Returns the columns of texts and labels that a fine-tuning run was trained on."""
    flags = run.flags if run else {}
    names = ("text_column", "text_b_column", "label_column", "label_type")
    *found, kind = map(flags.get, names)
    # Where sentences are lists of words, the model takes whole texts.
    return Columns.of(*found, kind) if flags.get("task") == "csv" and kind != "tags" else Columns()


def is_table(path: str | None) -> bool:
    """Returns whether the name of a file is that of a table."""
    return bool(_TABLE.fullmatch(path or "")) or is_json(path or "")


def read_rows(
    path: str,
    given: Columns,
    trained: Columns = Columns(),  # noqa: B008
    inputs: Sequence[str] = ("text",),
    has_choices: bool = False,
) -> list[Row]:
    """Reads a table as run_finetuning reads a test file; prints its guesses to standard error.

    Args:
        given: the columns that flags name.
        trained: those that the model's run read; `inputs` replace them if the table has only these.
        inputs: the names of one or two texts.
        has_choices: whether the last one is a list of texts.
    """
    with contextlib.redirect_stdout(sys.stderr):
        table = read_table(path)
        flags = ((given.text, trained.text), (given.text_b, trained.text_b))
        wanted = map(_choose, [table] * 2, flags, inputs)
        columns = find_columns(table, Columns(*wanted, labels=trained.labels), labelled=False)
    names = [name for name in (columns.text, columns.text_b) if name]
    texts = [*map(table.texts, names[: len(names) - has_choices])]
    if has_choices:
        choices = [list(read_words(table, row, names[-1], "choice")) for row in range(len(table))]
        if [] in choices:
            raise ValueError(f"{table.at(choices.index([]))}: {names[-1]!r} holds no choice")
        texts.append(choices)
    read_ids(table, columns.id)  # checks them
    ids = table.columns[columns.id] if columns.id else [None] * len(table)
    return [Row(row, id_) for row, id_ in zip(zip(*texts, strict=True), ids, strict=True)]


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
    check_columns(input_file, text_column)
    if not is_table(input_file):
        return read_chunks(texts, input_file)
    rows = read_rows(input_file, Columns(text_column))
    return in_chunks((row.texts[0] for row in rows), CHUNK_LINES)


def check_columns(input_file: str | None, *names: str | None) -> None:
    """Raises a ValueError if flags name columns, but the input is not a table."""
    flags = [f"--{x}_column" for x, name in zip(("text", "text_b"), names, strict=False) if name]
    if flags and not is_table(input_file):
        raise ValueError(
            f"{' and '.join(flags)} is only for an --input_file named .csv, .tsv, .json or .jsonl: "
            "omit it"
        )

"""Reads texts from the tables that run_finetuning reads."""

import contextlib
import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bert_tf.corpus.sources import is_json
from bert_tf.finetuning.columns import Columns, open_table
from bert_tf.finetuning.labels import read_ids
from bert_tf.inference.lines import CHUNK_LINES, in_chunks, read_chunks

_TABLE = re.compile(r".*\.(csv|tsv)(\.(gz|bz2|xz|zst|zip))?", re.IGNORECASE | re.DOTALL)


class Row(NamedTuple):
    """The texts of a row in UTF-8, and its id if the table has ids."""

    texts: tuple[bytes, ...]
    id: str | None


def is_table(path: str | None, with_json: bool = True) -> bool:
    """Returns whether the name of a file is that of a table; JSON lines count if `with_json`."""
    return bool(_TABLE.fullmatch(path or "")) or (with_json and is_json(path or ""))


def read_rows(path: str, wanted: Columns) -> list[Row]:
    """Reads a table as run_finetuning reads a test file; prints its guesses to standard error.

    Raises:
        ValueError, OSError: see `open_table`; also if the table is compressed.
    """
    if not path.lower().endswith((".csv", ".tsv", ".json", ".jsonl")):
        raise ValueError(f"{path}: compressed tables are not supported: decompress it first")
    with contextlib.redirect_stdout(sys.stderr):
        table, columns = open_table(path, wanted, labelled=False)
    texts = [table.texts(name) for name in (columns.text, columns.text_b) if name]
    ids = read_ids(table, columns.id)[0] or [None] * len(table)
    return [Row(row, id_) for row, id_ in zip(zip(*texts, strict=True), ids, strict=True)]


def read_texts(
    texts: Sequence[str], input_file: str | None, text_column: str | None
) -> Iterator[list[bytes]]:
    """Yields chunks of texts: those of a table, or those that `read_chunks` yields.

    Raises:
        ValueError, OSError: the file cannot be read, or `text_column` is given without a table.
    """
    check_columns(input_file, text_column)
    if not is_table(input_file):
        return read_chunks(texts, input_file)
    rows = read_rows(input_file, Columns(text_column))
    return in_chunks((row.texts[0] for row in rows), CHUNK_LINES)


def check_columns(input_file: str | None, *names: str | None) -> None:
    """Raises a ValueError if flags name columns, but the input is not a table."""
    if any(names) and not is_table(input_file):
        raise ValueError(
            "--text_column and --text_b_column need an --input_file named .csv, .tsv, .json or "
            ".jsonl: omit them"
        )

"""Writes predictions, JSON objects in parts, as JSON lines, CSV, TSV or Parquet."""

import csv
import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.finetuning.tables import import_pyarrow
from bert_tf.inference.texts import in_chunks
from tfrecords.writer import join_files, whole_file

_BATCH_ROWS = 1024


def join_answers(parts: Sequence[str], path: str) -> None:
    """Joins files of JSON lines into one, in the format that its name states."""
    ending = os.path.splitext(path)[1]
    if ending == ".jsonl":
        join_files(parts, path)
        return

    def read() -> Iterator[dict[str, Any]]:
        for part in parts:
            with tf.io.gfile.GFile(part) as file:
                yield from map(json.loads, file)

    with whole_file(path) as temporary:
        if ending == ".parquet":
            _write_parquet(temporary, read)
        else:
            _write_table(temporary, read, "\t" if ending == ".tsv" else ",")


def _write_table(path: str, read: Callable[[], Iterator[dict[str, Any]]], delimiter: str) -> None:
    """Writes a row of cells; a probability by label has a column, and a list is JSON."""
    with tf.io.gfile.GFile(path, "w") as file:
        names = _names(map(_cells, read()))
        writer = csv.DictWriter(file, names, delimiter=delimiter, lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(_cells, read()))


def _names(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Returns the names in rows, some of which may have no id, with the id first."""
    return sorted(dict.fromkeys(name for row in rows for name in row), key="id".__ne__)


def _cells(row: dict[str, Any]) -> dict[str, Any]:
    cells = {}
    for name, value in row.items():
        if isinstance(value, dict):
            cells |= {f"p({label})": share for label, share in value.items()}
        else:
            is_list = isinstance(value, list)
            cells[name] = json.dumps(value, ensure_ascii=False) if is_list else value
    return cells


def _write_parquet(path: str, read: Callable[[], Iterator[dict[str, Any]]]) -> None:
    pyarrow = import_pyarrow()
    names = _names(read())
    # JSON lines may mix them.
    kinds = {type(row["id"]) for row in read() if "id" in row}
    convert = {"id": str} if len(kinds) > 1 else {}

    def batches() -> Iterator[list[dict[str, Any]]]:
        rows = (row | {x: f(row[x]) for x, f in convert.items() if x in row} for row in read())
        return in_chunks(({name: row.get(name) for name in names} for row in rows), _BATCH_ROWS)

    # Empty lists have no type.
    schema = functools.reduce(
        lambda *pair: pyarrow.unify_schemas(pair, promote_options="permissive"),
        (pyarrow.Table.from_pylist(rows).schema for rows in batches()),
    )
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for rows in batches():
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))

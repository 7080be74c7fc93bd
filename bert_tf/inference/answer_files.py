"""Writes predictions, JSON objects in parts, as JSON lines, CSV, TSV or Parquet."""

import csv
import functools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

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
    names = dict.fromkeys(name for row in read() for name in _cells(row))
    names = sorted(names, key="id".__ne__)
    with tf.io.gfile.GFile(path, "w") as file:
        writer = csv.DictWriter(file, names, delimiter=delimiter, lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(_cells, read()))


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
    from pyarrow import Table, parquet, unify_schemas

    batches = functools.partial(in_chunks, size=_BATCH_ROWS)
    # Values may be missing from the first rows, and with them their types.
    tables = (Table.from_pylist(rows) for rows in batches(read()))
    schema = functools.reduce(
        lambda *pair: unify_schemas(pair, promote_options="permissive"), (x.schema for x in tables)
    )
    with parquet.ParquetWriter(path, schema) as writer:
        for rows in batches(read()):
            writer.write_table(Table.from_pylist(rows, schema))

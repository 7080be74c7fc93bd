"""Writes predictions: JSON lines, tables, Parquet or TFRecord."""

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from bert_tf.base.files import read_file
from bert_tf.base.output_files import join_files
from bert_tf.base.progress import progress_bar
from bert_tf.inference.inference_options import PredictOptions
from bert_tf.inference.texts import Example, in_groups, rows_in, together
from bert_tf.tables.parquet import import_pyarrow, write_tables
from tfrecords.features import serialize_example, write_records

_BATCH_ROWS = 1024
# Opens the predictions, once more at each call.
Read = Callable[[], Iterator[dict[str, Any]]]


def json_line(example: Example, answer: Mapping[str, Any]) -> str:
    """Returns an example and its prediction as JSON, without the end of the line."""
    # Times, and what else JSON lacks, become strings.
    return json.dumps(together(example, answer), ensure_ascii=False, default=str)


def join_predictions(options: PredictOptions, parts: Sequence[str], path: str) -> None:
    """Joins files of JSON lines into one at `path`, in the format that the output's name states."""
    ending = os.path.splitext(options.output_file)[1]
    if ending == ".jsonl":
        join_files(parts, path)
        return

    def read() -> Iterator[dict[str, Any]]:
        shown = dict(total=len(parts), desc=f"Writing {ending}", unit=" parts", delay=2)
        for part in progress_bar(iterable=parts, **shown):
            yield from map(json.loads, read_file(part).splitlines())

    if ending == ".tfrecord":
        write_records(path, map(_example, _with_plain_cells(read, {int})()))
    elif ending == ".parquet":
        _write_parquet(path, _with_plain_cells(read, {int, float, bool, list, dict}))
    else:
        _write_table(path, read, "\t" if ending == ".tsv" else ",")


def _write_table(path: str, read: Read, delimiter: str) -> None:
    """Writes a row of cells; a probability by label has a column; lists are JSON."""
    with tf.io.gfile.GFile(path, "w") as file:
        names = _names(map(cells_of, read()))
        # With ends of \r\n, it also quotes a lone \r, which is a line end to many readers.
        unix = SimpleNamespace(write=lambda row: file.write(row.removesuffix("\r\n") + "\n"))
        writer = csv.DictWriter(unix, names, delimiter=delimiter)
        writer.writeheader()
        for row in map(cells_of, read()):
            writer.writerow({name: _text(value) for name, value in row.items()})


def _names(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Returns the names in rows, some of which may have no id, with the id first."""
    return sorted(dict.fromkeys(name for row in rows for name in row), key="id".__ne__)


def cells_of(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row in which the probability of each label has a name of its own."""
    cells = {}
    for name, value in row.items():
        is_shares = name == "probabilities" and isinstance(value, dict)
        named = {f"p({x})": y for x, y in value.items()} if is_shares else {name: value}
        cells = together(cells, named)
    return cells


def _with_plain_cells(read: Read, exact: set[type]) -> Read:
    """Makes the cells of columns with several types strings; and ids, unless kept exactly."""
    kinds: dict[str, set[type]] = {}
    for name, x in (cell for row in read() for cell in row.items() if cell[1] is not None):
        kind = str if type(x) is int and abs(x) >= 2**63 else type(x)
        kinds.setdefault(name, set()).add(kind)
    inexact = [x for x, y in kinds.items() if len(y) > 1 or str in y or (x == "id" and y - exact)]
    return lambda: (
        row | {x: _text(row[x]) for x in inexact if row.get(x) is not None} for row in read()
    )


def _example(row: dict[str, Any]) -> bytes:
    """Returns a row as a serialized `tf.train.Example`; objects are JSON."""
    lists = {}
    for name, value in cells_of(row).items():
        values = value if isinstance(value, list) else [value]
        is_plain = {*map(type, values)} in ({int}, {float})
        lists[name] = values if is_plain else [_text(x).encode() for x in values]
    return serialize_example(lists)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _write_parquet(path: str, read: Read) -> None:
    pyarrow = import_pyarrow()
    names = _names(read())

    def batches() -> Iterator[list[dict[str, Any]]]:
        rows = ({name: row.get(name) for name in names} for row in read())
        return in_groups(rows, rows_in, _BATCH_ROWS)

    # Empty lists have no type.
    schemas = dict.fromkeys(pyarrow.Table.from_pylist(rows).schema for rows in batches())
    schema = pyarrow.unify_schemas([*schemas], promote_options="permissive")
    write_tables(path, (pyarrow.Table.from_pylist(rows, schema) for rows in batches()))

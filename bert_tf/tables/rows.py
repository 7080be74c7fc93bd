"""Reads tables row by row: CSV, TSV, JSON lines, Parquet and TFRecord."""

import io
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from bert_tf.base.content import read_lines
from bert_tf.base.files import check_single, plain_message
from bert_tf.base.progress import say
from bert_tf.base.storage import file_size
from bert_tf.tables.delimited import DELIMITER_LINE, Numbered, csv_rows, is_quoted, tsv_rows
from bert_tf.tables.memory import TableInMemory
from bert_tf.tables.parquet import parquet_rows, plain_cell
from tfrecords.features import parse_example
from tfrecords.records import FRAME_BYTES, compression_of, serialized_records

_BLOCK_BYTES = 2**20
_KINDS = ("csv", "tsv", "json", "jsonl", "parquet", "tfrecord")


class NoRows(ValueError):
    """A file holds no rows."""


def not_empty(path: str, content: bytes) -> bytes:
    """Returns the content of a file; raises a `NoRows` if it is blank."""
    if not content.strip():
        raise NoRows(f"{path} is empty")
    return content


def read_rows(
    path: str | TableInMemory, quoted: bool | None = None
) -> tuple[str, Iterator[Numbered]]:
    """Reads the rows of a table one by one, without keeping them in memory; see `read_table`.

    In place of an unreadable row, yields a ValueError, and continues. A list of JSON objects is
    read as a whole. Returns what the numbers of the rows count (see `Table`), and the rows; raises
    a `NoRows` if there are none, and a ValueError if their format or the names of their columns are
    unknown.
    """
    if isinstance(path, TableInMemory):
        return "row", _at_least_one(path.name, path.rows())
    check_single(path)
    kind = table_kind(path)
    if not kind or path.lower().endswith(".zip"):
        raise ValueError(
            f"{path}: the name must end in .{', .'.join(_KINDS)}, and .gz, .bz2, .xz or .zst if it "
            "is compressed: rename, convert or decompress it. For CoNLL files, use --task=ner"
        )
    if not file_size(path):
        raise NoRows(f"{path} is empty")
    if kind == "parquet":
        return "row", _at_least_one(path, parquet_rows(path))
    if kind == "tfrecord":
        return "record", _at_least_one(path, _tfrecord_rows(path))
    unit, head = "line", next(_texts(path), "")
    if kind in ("json", "jsonl"):
        unit = "object" if head.lstrip().startswith("[") else "line"
        rows = _json_rows(path, unit)
    elif kind == "csv" or DELIMITER_LINE.match(head):
        rows = csv_rows(path, _lines(path), head)
    else:
        rows = tsv_rows(path, _lines(path), tsv_is_quoted(path) if quoted is None else quoted)
    return unit, _at_least_one(path, rows, "\r" in head and "\n" not in head)


def tsv_is_quoted(path: str) -> bool:
    """Returns whether all of a `.tsv` file is quoted as `.csv` files are, and says so."""
    if quoted := is_quoted(path, _lines(path)):
        say(f"{path}: its fields are quoted as in .csv files and are read that way.")
    return quoted


def _at_least_one(
    path: str, rows: Iterator[Numbered], single_line: bool = False
) -> Iterator[Numbered]:
    if not (row := next(rows, None)):
        if single_line:
            raise ValueError(
                f"{path} is a single line with carriage returns: save the file with the line ends "
                "of Unix or Windows"
            )
        raise NoRows(f"{path} holds no examples")
    yield row
    yield from rows


def table_kind(path: str | TableInMemory) -> str | None:
    """Returns the format of a table, "memory" or one of `_KINDS`; None if a file is not a table."""
    if isinstance(path, TableInMemory):
        return "memory"
    # As TensorFlow names the shards of a file.
    name = re.sub(r"-\d+-of-\d+$", "", path.lower())
    found = re.search(rf"\.({'|'.join(_KINDS)})(\.(gz|bz2|xz|zst|zip))?$", name)
    return found and found[1]


def _texts(path: str) -> Iterator[str]:
    """Yields the content of a file in parts of whole lines."""
    for lines in read_lines(path, _BLOCK_BYTES):
        yield lines.decode(errors="surrogateescape")


def _lines(path: str) -> Iterator[str]:
    """Yields the lines of a file with their ends, of which a lone carriage return is none."""
    return itertools.chain.from_iterable(map(io.StringIO, _texts(path)))


def _tfrecord_rows(path: str) -> Iterator[Numbered]:
    number = size = 0
    try:
        for number, serialized in enumerate(serialized_records(path), 1):
            size += len(serialized) + FRAME_BYTES
            if example := parse_example(serialized):
                features = example.features.feature  # in no certain order
                yield number, {name: _value(features[name]) for name in sorted(features)}
            else:
                yield number, ValueError(f"{path}, record {number:,} is not a tf.train.Example")
    except tf.errors.OpError as error:
        raise ValueError(
            f"{path}, record {number + 1:,}: truncated, or not a TFRecord file "
            f"({plain_message(error)})"
        ) from None
    # TensorFlow mistakes the first bytes of a truncated record for the end of the file.
    if not compression_of(path) and size != tf.io.gfile.stat(path).length:
        raise ValueError(f"{path}, record {number + 1:,}: truncated in its first bytes")


def _value(feature: tf.train.Feature) -> Any:
    """Returns the value of a feature, a list if it has several, or None if it has none."""
    kind = feature.WhichOneof("kind")
    values = plain_cell([*getattr(feature, kind).value]) if kind else []
    return values if len(values) > 1 else next(iter(values), None)


def _json_rows(path: str, unit: str) -> Iterator[Numbered]:
    is_list = unit == "object"
    values = _parse(path, 1, "".join(_texts(path))) if is_list else _lines(path)
    for number, row in enumerate(values, 1):
        if is_list or row.strip():
            try:
                row = row if is_list else _parse(path, number, row.rstrip("\n"))
                if not isinstance(row, dict):
                    raise ValueError(
                        f"{path}, {unit} {number:,} is not a JSON object: write one per line, such "
                        'as {"text": "...", "label": "..."}'
                    )
            except ValueError as error:
                row = error
            yield number, row


def _parse(path: str, line: int, text: str) -> Any:
    try:
        return parse_row(text)
    except json.JSONDecodeError as error:
        problem = f"{error.msg} at column {error.colno}"
        raise ValueError(
            f"{path}, line {line + error.lineno - 1:,} is not JSON: {problem}; write one object "
            "per line, or a list of objects"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}, line {line:,} cannot be read: {error}") from None


def parse_row(line: str) -> Any:
    """Returns the value of a line of JSON; NaN is None."""
    # Programs write NaN for empty cells; it is not JSON, and neither is Infinity.
    return json.loads(line, object_pairs_hook=_object, parse_constant=lambda constant: None)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"it names {max(keys, key=keys.count)!r} twice")
    return row

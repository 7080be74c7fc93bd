"""Reads Parquet files batch by batch, with a whole row group in memory, and writes them."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import tensorflow as tf

from bert_tf.base.files import output_stream, reading
from bert_tf.base.process import needed

_BATCH_ROWS = 1024


def import_pyarrow() -> ModuleType:
    """Returns pyarrow, with its `parquet`; raises a ValueError if it is not installed."""
    with needed("pyarrow", "Parquet files need"):
        import pyarrow.parquet
    return pyarrow


def parquet_rows(path: str, column: str | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the numbers of rows, and their cells by the name of their column, or only of one.

    Raises a ValueError for a damaged file or a missing column, and an OSError if it cannot be read.
    """
    number = 0
    with _opened(path, lambda: number + 1) as content:
        if len(names := content.schema_arrow.names) > len({*names}):
            raise ValueError(f"{path} has two columns named {max(names, key=names.count)!r}")
        if column and column not in names:
            known = ", ".join(map(repr, names))
            raise ValueError(f"{path} has no column {column!r}, only {known}")
        batches = content.iter_batches(_BATCH_ROWS, columns=[column] if column else None)
        rows = (row for batch in batches for row in _with_plain_times(batch).to_pylist())
        for number, row in enumerate(rows, 1):
            yield number, plain_cell(row)


def parquet_texts(path: str, column: str) -> Iterator[str]:
    """Yields the texts in a column; raises a ValueError for a row without text."""
    for number, row in parquet_rows(path, column):
        if not isinstance(row[column], str):
            raise ValueError(f"{path}, row {number:,}: {column!r} holds no text")
        yield row[column]


def parquet_bytes(path: str, column: str) -> int:
    """Returns about how many bytes a column holds, as the file states it."""
    with _opened(path, lambda: 1) as content:
        metadata = content.metadata
        groups = map(metadata.row_group, range(metadata.num_row_groups))
        parts = [group.column(i) for group in groups for i in range(metadata.num_columns)]
        return sum(x.total_uncompressed_size for x in parts if x.path_in_schema == column)


def write_tables(path: str, tables: Iterable["pyarrow.Table"]) -> None:  # noqa: F821
    """Writes tables with the same columns, one after the other."""
    with tf.io.gfile.GFile(path, "wb") as file, contextlib.ExitStack() as stack:
        writer = None
        for table in tables:
            if not writer:
                writer = import_pyarrow().parquet.ParquetWriter(output_stream(file), table.schema)
                stack.enter_context(writer)
            writer.write_table(table)


@contextlib.contextmanager
def _opened(path: str, row: Callable[[], int]) -> Iterator["pyarrow.parquet.ParquetFile"]:  # noqa: F821
    """Opens a file; its errors name the number of the row that `row` returns."""
    pyarrow = import_pyarrow()
    with reading(path) as file:
        # pyarrow reads local files in less memory. Other files must have `closed`.
        methods = dict(read=file.read, seek=file.seek, tell=file.tell)
        source = SimpleNamespace(**methods, closed=False) if "://" in path else path
        try:
            yield pyarrow.parquet.ParquetFile(source)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            if isinstance(error, OSError) and error.errno:
                raise
            problem = " ".join(str(error).split())
            raise ValueError(f"{path}, row {row():,}: damaged or not Parquet ({problem})") from None


def _with_plain_times(batch: Any) -> Any:
    """Returns a batch of pyarrow with times as strings, because Python's have no nanoseconds."""
    pyarrow = import_pyarrow()
    is_time, text = pyarrow.types.is_temporal, pyarrow.string()
    columns = [x.cast(text) if is_time(x.type) else x for x in batch.columns]
    return pyarrow.RecordBatch.from_arrays(columns, batch.schema.names)


def plain_cell(value: Any) -> Any:
    """Returns a value with the types of JSON; NaN and infinity are None, as in JSON."""
    if isinstance(value, dict):
        return {str(name): plain_cell(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        # Vectors of numbers are long, and no texts or ids.
        is_vector = value and isinstance(value[0], int | float)
        return value if is_vector else [plain_cell(item) for item in value]
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)

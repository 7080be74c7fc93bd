"""Reads the texts that Python code gives: strings, pairs, dicts, and data frames of pandas.

pandas is not imported: whatever has the methods of its data frames is one.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import tensorflow as tf

from bert_tf.inference.texts import TextRow, parse_line, texts_of_rows
from bert_tf.tables.columns import Columns

_SOURCE, _UNIT = "the input", "row"


def is_frame(values: Any) -> bool:
    """Returns whether values are a data frame."""
    return hasattr(values, "columns") and hasattr(values, "assign")


def is_example(value: Any, signature: Sequence[tf.TensorSpec]) -> bool:
    """Returns whether a value is a single example: a text, a dict, or a tuple of the inputs."""
    if isinstance(value, tuple):
        return len(value) == len(signature) > 1 and isinstance(value[0], str | bytes)
    return isinstance(value, str | bytes | Mapping)


def given_rows(
    values: Any, signature: Sequence[tf.TensorSpec], trained: Columns, given: Columns
) -> Iterator[TextRow | ValueError]:
    """Yields the texts of a data frame, or of examples; or what is wrong with them.

    Args:
        signature: the inputs of the model.
        trained: the columns that its run was trained on.
        given: those that the user names.
    """
    names = [spec.name for spec in signature]
    if given.text_b and len(names) == 1:
        raise ValueError("--text_b_column is only for models of pairs of texts: omit it")
    if not isinstance(values, Iterable):
        raise ValueError(
            f"{_SOURCE} is {values!r:.60}: give a text, a dict, a list or a data frame"
        )
    values = _rows_of_frame(values) if is_frame(values) else iter(values)
    first = [*islice(values, 1)]
    values = enumerate(chain(first, values), 1)
    if not (first and isinstance(first[0], Mapping)):
        if given != Columns():
            raise ValueError("--text_column and --text_b_column are only for data frames and dicts")
        yield from (_row(number, value, signature) for number, value in values)
        return
    has_choices = signature[-1].shape.rank == 2
    rows = map(_cells, values)
    found = texts_of_rows(_SOURCE, _UNIT, rows, given, trained, names, has_choices)
    yield from (row for _, row in found)


def _rows_of_frame(frame: Any) -> Iterator[dict[Any, Any]]:
    columns = [frame.iloc[:, place].tolist() for place in range(len(frame.columns))]
    return (dict(zip(frame.columns, cells, strict=True)) for cells in zip(*columns, strict=True))


def _cells(numbered: tuple[int, Any]) -> tuple[int, dict[str, Any] | ValueError]:
    number, row = numbered
    if not isinstance(row, Mapping):
        return number, _wrong(number, row, "the first one is a dict")
    return number, {str(name): None if _is_missing(x) else x for name, x in row.items()}


def _row(number: int, value: Any, signature: Sequence[tf.TensorSpec]) -> TextRow | ValueError:
    """Returns the texts of a string, read as a line, or those of a pair."""
    try:
        if isinstance(value, str | bytes):
            return TextRow(parse_line(_encoded(value), signature))
    except ValueError as error:
        return _wrong(number, value, error)
    needed = "the model needs " + (" and ".join(spec.name for spec in signature))
    if len(signature) == 1 or not isinstance(value, tuple | list) or len(value) != len(signature):
        return _wrong(number, value, needed)
    has_choices, (*texts, last) = signature[-1].shape.rank == 2, value
    choices = [*last] if has_choices and isinstance(last, tuple | list) else []
    texts += [] if has_choices else [last]
    if bool(choices) != has_choices or not all(isinstance(x, str | bytes) for x in texts + choices):
        return _wrong(number, value, needed)
    return TextRow((*map(_encoded, texts), *([choices] if has_choices else [])))


def _encoded(text: str | bytes) -> bytes:
    # Lone surrogates are dropped, as bytes that are not UTF-8 are.
    return text if isinstance(text, bytes) else text.encode(errors="surrogatepass")


def _wrong(number: int, value: Any, needed: Any) -> ValueError:
    shown = "missing" if _is_missing(value) else f"{value!r:.60}"
    return ValueError(f"{_SOURCE}, {_UNIT} {number:,} is {shown}: {needed}")


def _is_missing(value: Any) -> bool:
    """Returns whether a value is None, NaN, or pandas' NA or NaT."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")

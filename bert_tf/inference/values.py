"""Reads texts that Python code passes: strings, pairs, dicts, and pandas data frames.

Whatever has the methods of a data frame is one, so pandas is not imported.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.inference.texts import TextRow, parse_line, texts_of_rows
from bert_tf.tables.columns import Columns
from bert_tf.tables.memory import rows_in_memory

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
    """Yields the texts of a data frame or of examples, or errors in their place.

    Args:
        signature: the inputs of the model.
        trained: the columns that its run was trained on.
        given: those that the user names.
    """
    if given.text_b and len(signature) == 1:
        raise ValueError("--text_b_column is only for models of pairs of texts: omit it")
    if not isinstance(values, Iterable):
        needed = "a text, a dict, a list or a data frame"
        raise ValueError(f"{_SOURCE} is {values!r:.60}: give {needed}")
    values = rows_in_memory(values, _SOURCE) if is_frame(values) else values
    rows = ((number, _cells(number, x, signature)) for number, x in enumerate(values, 1))
    names, has_choices = [spec.name for spec in signature], signature[-1].shape.rank == 2
    found = texts_of_rows(_SOURCE, _UNIT, rows, given, trained, names, has_choices)
    return (row for _, row in found)


def _cells(
    number: int, value: Any, signature: Sequence[tf.TensorSpec]
) -> dict[str, Any] | ValueError:
    """Returns the inputs of an example by their names; a string is read as a line."""
    names = [spec.name for spec in signature]
    needed, texts = f"the model needs {' and '.join(names)}", value
    if isinstance(value, str | bytes):
        line = value if isinstance(value, bytes) else value.encode(errors="surrogatepass")
        try:
            # What is not UTF-8 becomes lone surrogates, as in tables.
            texts = parse_line(line, signature)
            texts = [
                x.decode(errors="surrogateescape") if isinstance(x, bytes) else x for x in texts
            ]
        except ValueError as error:
            needed = error
    elif len(names) == 1 and not isinstance(value, Mapping):
        texts = None
    if isinstance(texts, tuple | list) and len(texts) == len(names):
        value = dict(zip(names, texts, strict=True))
    if isinstance(value, Mapping):
        return {str(name): None if _is_missing(x) else x for name, x in value.items()}
    shown = "missing" if _is_missing(value) else f"{value!r:.60}"
    return ValueError(f"{_SOURCE}, {_UNIT} {number:,} is {shown}: {needed}")


def _is_missing(value: Any) -> bool:
    """Returns whether a value is None, NaN, or pandas' NA or NaT."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")

"""Files that show predictions, and aligned tables."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import softmax

from bert_tf.base.output_files import atomic_write


def class_columns(
    logits: np.ndarray, labels: np.ndarray | None, classes: Sequence[Any], names: Sequence[str]
) -> dict[str, Sequence[Any]]:
    """Returns the columns label (if known), prediction, and p(NAME), the probability of each class.

    `labels` are int [N], `logits` [N, C], and `classes` how to write each label or prediction.
    """
    columns = {} if labels is None else {"label": [classes[label] for label in labels]}
    columns["prediction"] = [classes[label] for label in logits.argmax(axis=-1)]
    probabilities = softmax(logits, axis=-1).T
    return columns | {f"p({name})": x for name, x in zip(names, probabilities, strict=True)}


def write_table(folder: str, name: str, columns: Mapping[str, Sequence[Any]]) -> str:
    """Writes a TSV file of equally long columns, whole or not at all; returns its name.

    The header has their names. Numbers that are not whole have six significant digits. Tabs and
    line ends in strings become spaces.
    """
    rows = zip(*columns.values(), strict=True)
    return write_rows(folder, name, [list(columns), *rows])


def write_rows(folder: str, name: str, rows: Iterable[Sequence[Any]]) -> str:
    """Writes a TSV file without a header; otherwise as `write_table`."""
    lines = ["\t".join(map(_field, row)) + "\n" for row in rows]
    atomic_write(f"{folder}/{name}", "".join(lines))
    return name


def draw_confusion(
    labels: np.ndarray,
    predictions: np.ndarray,
    names: Sequence[str],
    path: str,
    unit: str = "example",
) -> None:
    """Draws a confusion matrix into a PNG file, written atomically."""
    # matplotlib is slow to import.
    from bert_tf.plots.confusion import confusion_matrix

    atomic_write(path, confusion_matrix(labels, predictions, names, unit=unit).png())


def one_line(text: str) -> str:
    """Returns a text with spaces in place of tabs and line ends."""
    return " ".join(text.replace("\t", " ").splitlines())


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Returns lines with the first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _field(value: Any) -> str:
    if isinstance(value, str):
        return one_line(value)
    return str(value) if isinstance(value, int | np.integer) else f"{value:.6g}"

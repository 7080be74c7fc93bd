"""Draws confusion matrices."""

import io
from collections.abc import Sequence

import numpy as np

from tfrecords.progress import counted
from tfrecords.writer import atomic_write

_INK = "#404040"
# Cells of more classes are too small for text.
_MOST_CLASSES_WITH_TEXT = 20


def draw_confusion(
    labels: np.ndarray, predictions: np.ndarray, names: Sequence[str], path: str
) -> None:
    """Draws a row per label and a column per prediction into a PNG file, written atomically.

    A cell shows its number of examples and their share of the row; the share is also the color.

    Args:
        labels, predictions: classes, int [N].
        names: the names of the classes.

    Raises:
        OSError: the file cannot be written.
    """
    # Slow to import, and rarely needed.
    from matplotlib.figure import Figure

    counts = count_pairs(labels, predictions, len(names))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = min(3 + 0.9 * len(names), 20)
    figure = Figure(figsize=(size + 1, size), dpi=110, layout="constrained")
    axes = figure.subplots()
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    # A label must not be read as a formula.
    escaped = [name.replace("$", r"\$") for name in names]
    axes.set_xticks(range(len(names)), escaped, rotation=30, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), escaped)
    axes.set_xlabel("prediction", color=_INK)
    axes.set_ylabel("label", color=_INK)
    axes.set_title(counted(len(labels), "example"), loc="left", fontsize=11, color=_INK)
    axes.tick_params(colors=_INK, labelsize=9, length=0)
    axes.spines[:].set_visible(False)
    if len(names) <= _MOST_CLASSES_WITH_TEXT:
        for (row, column), share in np.ndenumerate(shares):
            text = f"{counts[row, column]:,}\n{share:.1%}"
            color = "white" if share > 0.5 else _INK
            axes.text(column, row, text, ha="center", va="center", fontsize=9, color=color)
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    atomic_write(path, picture.getvalue())


def count_pairs(labels: np.ndarray, predictions: np.ndarray, num_classes: int) -> np.ndarray:
    """Returns how many examples have each pair of label (row) and prediction (column)."""
    pairs = np.bincount(labels * num_classes + predictions, minlength=num_classes**2)
    return pairs.reshape(num_classes, num_classes)

"""Draws confusion matrices."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bert_tf.base.progress import counted
from bert_tf.plots import style

# Cells of more classes are too small for text.
_MOST_CLASSES_WITH_TEXT = 20


def confusion_matrix(
    labels: np.ndarray,
    predictions: np.ndarray,
    names: Sequence[str],
    ax: Axes | None = None,
    unit: str = "example",
) -> Figure:
    """Draws a row per label and a column per prediction.

    A cell shows its number of examples and their share of the row; the share is also the color.
    `labels` and `predictions` are classes, int [N], and `names` those of the classes. The title
    counts examples, or what `unit` calls them.

    Example:
        bert_tf.plots.confusion_matrix(np.array([0, 1]), np.array([0, 0]), ["bad", "good"])
    """
    # scikit-learn is slow to import.
    from sklearn.metrics import confusion_matrix as count_pairs

    counts = count_pairs(labels, predictions, labels=range(len(names)))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = 3 + 0.9 * len(names)
    axes = ax or style.new_axes(size + 1, size)
    # Black is readable on the lighter half of the colors, and on its inverse on dark pages.
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=2)
    style.name_cells(axes, names, names, rotation=30)
    style.finish_axes(axes, counted(len(labels), unit), "prediction", "label")
    if len(names) <= _MOST_CLASSES_WITH_TEXT:
        for (row, column), share in np.ndenumerate(shares):
            text = f"{counts[row, column]:,}\n{share:.1%}"
            axes.text(column, row, text, ha="center", va="center", fontsize=9, color="black")
    return axes.figure

"""Draws vectors: a map of them, and the sum that the encoder reads."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bert_tf.plots import style
from bert_tf.plots.annotations import label_points

_MARKERS = "os^Dv*PX"
_RADIUS = 3.25
# How many numbers of a vector are drawn, as rows and columns of cells.
_CELLS = (4, 8)


def embedding_map(
    vectors: np.ndarray,
    labels: Sequence[str],
    groups: Sequence[str] | None = None,
    title: str = "Vectors on their two principal components",
    ax: Axes | None = None,
) -> Figure:
    """Draws vectors as points of a plane, near each other if the vectors are alike.

    The plane is that of the first two principal components; each axis names its share of the
    variance. Equal vectors share a point.

    Args:
        vectors: float [n, H], with n and H of 2 or more.
        groups: the group of each vector, shown by color and marker.

    Example:
        bert_tf.plots.embedding_map(np.random.rand(3, 8), ["river", "money", "loan"])

    Raises:
        ValueError: there are fewer than two vectors, or not as many labels or groups.
    """
    from sklearn.decomposition import PCA

    values = style.check_shape("vectors", vectors, len(labels), None)
    groups = [""] * len(labels) if groups is None else groups
    groups = style.check_shape("groups", groups, len(labels))
    pca = PCA(2, svd_solver="full")
    # Without any variance, a share is 0 / 0.
    with np.errstate(invalid="ignore"):
        points = pca.fit_transform(values.astype(np.float64))
    shares = np.nan_to_num(pca.explained_variance_ratio_)
    axes = ax or style.new_axes(6.4, 5.2)
    for index, group in enumerate(dict.fromkeys(groups)):
        members = points[groups == group]
        marker, color = _MARKERS[index % len(_MARKERS)], style.COLORS[index % len(style.COLORS)]
        axes.scatter(
            *members.T, (2 * _RADIUS) ** 2, color=color, marker=marker, label=group, zorder=3
        )
    names = (f"component {number} ({x:.0%} of the variance)" for number, x in enumerate(shares, 1))
    style.finish_axes(axes, title, *names)
    axes.grid(color=style.FAINT, lw=0.6)
    axes.margins(0.15)
    axes.set_aspect("equal", adjustable="datalim")
    if any(groups):
        # Beside the axes, where there are no points.
        style.draw_legend(axes, loc="upper left", bbox_to_anchor=(1, 1))
    places: dict[tuple, list[str]] = {}
    digits = 6 - int(np.floor(np.log10(max(np.abs(points).max(), 1e-9))))
    for point, label in zip(points.round(digits), labels, strict=True):
        places.setdefault(tuple(point + 0.0), []).append(label)
    texts = ["\n".join(same) for same in places.values()]
    radii = np.full(len(texts), _RADIUS)
    label_points(axes, np.array(list(places)), radii, texts, size=9)
    return axes.figure


def embedding_sum(
    tokens: Sequence[str],
    segments: Sequence[int],
    vectors: np.ndarray,
    title: str = "What the encoder reads is the sum of three vectors",
    ax: Axes | None = None,
) -> Figure:
    """Draws the token, segment and position embeddings of a text, and their sum.

    The cells below a name are the first 32 numbers of its vector: blue above zero, red below.

    Args:
        segments: the segment of each of the S tokens, 0 or 1.
        vectors: the three embeddings of each token in this order, float [3, S, E].

    Example:
        bert_tf.plots.embedding_sum(["[CLS]", "[SEP]"], [0, 0], np.random.randn(3, 2, 128))

    Raises:
        ValueError: the shapes differ.

    Source: BERT (arXiv:1810.04805) figure 2.
    """
    length = len(tokens)
    values = style.check_shape("vectors", vectors, 3, length, None)
    segments = style.check_shape("segments", segments, length)
    rows = {
        "token": ([token.replace("$", r"\$") for token in tokens], values[0]),
        "segment": ([f"$E_{'AB'[segment]}$" for segment in segments], values[1]),
        "position": ([f"$E_{{{position}}}$" for position in range(length)], values[2]),
        "sum": ([""] * length, values.sum(axis=0)),
    }
    axes = ax or style.new_axes(1.6 + 0.85 * length, 4.2)
    # A few numbers of trained embeddings are many times as large as all others.
    limit = np.quantile(np.abs(rows["sum"][1]), 0.95)
    for row, (names, row_values) in enumerate(rows.values()):
        for column, name in enumerate(names):
            _draw_vector(axes, column, row, name, row_values[column], limit)
        if row:
            sign = "=" if row == len(rows) - 1 else "+"
            for column in range(length):
                axes.text(column, row - 0.5, sign, ha="center", va="center", color=style.INK)
    axes.set(xlim=(-0.5, length - 0.5), ylim=(len(rows) - 0.45, -0.45), xticks=[])
    axes.set_yticks(range(len(rows)), rows)
    style.finish_axes(axes, title)
    return axes.figure


def _draw_vector(
    axes: Axes, column: int, row: int, name: str, vector: np.ndarray, limit: float
) -> None:
    """Draws a name, and below it the first numbers of the vector."""
    cells = np.full(_CELLS[0] * _CELLS[1], np.nan)
    cells[: len(vector)] = vector[: len(cells)]
    place = dict(extent=(column - 0.44, column + 0.44, row + 0.34, row - 0.12), aspect="auto")
    axes.imshow(cells.reshape(_CELLS), cmap="RdBu", vmin=-limit, vmax=limit, **place)
    axes.text(column, row - 0.24, name, ha="center", va="center", fontsize=9, color=style.INK)

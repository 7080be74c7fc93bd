"""Writes labels near points, where they cover nothing."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Text

from bert_tf.plots.style import INK

# Where a label may be: in eight directions from its disc, and ever further away.
_DIRECTIONS = np.array([(1, 0), (1, 1), (1, -1), (0, 1), (0, -1), (-1, 0), (-1, 1), (-1, -1)])
_UNITS = _DIRECTIONS / np.linalg.norm(_DIRECTIONS, axis=1, keepdims=True)
_RINGS = 12
# More labels would take minutes, and find no free place.
_MOST_MOVED = 50
# How many points stand for a line.
_STEPS = 10


def label_points(
    axes: Axes, points: np.ndarray, radii: np.ndarray, labels: Sequence[str], size: float
) -> None:
    """Writes a label near each disc; call it after drawing all else.

    A label takes the nearest place where it covers the least of discs, lines and labels before it.
    A line leads to labels that are not beside their discs. `points` are centers in the data's
    units, float [n, 2]; `radii`, float [n], and the `size` of the font are in points.
    """
    low, high = disc_corners(axes, points, radii)
    discs, centers, frame = np.hstack([low, high]), (low + high) / 2, axes.get_window_extent()
    pixel = axes.figure.dpi / 72
    boxes, lines = np.zeros([2, 0, 4])
    steps_away = size * np.arange(_RINGS if len(labels) <= _MOST_MOVED else 1)
    # The layout must not make room for where labels are before they move.
    form = dict(fontsize=size, color=INK, parse_math=False, in_layout=False)
    form |= dict(ha="center", va="center", textcoords="offset points")
    for i, (point, center, label) in enumerate(zip(points, centers, labels, strict=True)):
        arrow = dict(arrowstyle="-", color=INK, lw=0.5, shrinkA=0, shrinkB=radii[i])
        text = axes.annotate(label, point, (0, 0), arrowprops=arrow, **form)
        half = Text.get_window_extent(text).size / 2
        rings = pixel * (radii[i] + 3 + steps_away)
        places = np.concatenate([_DIRECTIONS * half + _UNITS * ring for ring in rings]) + center
        found = np.hstack([places - half, places + half])
        steps = np.linspace(center, places, _STEPS, axis=1).reshape(-1, 2)
        steps = np.hstack([steps, steps])
        gaps = np.clip(centers, found[:, None, :2], found[:, None, 2:]) - centers
        costs = (np.linalg.norm(gaps, axis=-1) < pixel * radii).sum(1)
        costs += _overlaps(found, boxes).sum(1) + _overlaps(found, lines).any(1)
        crossed = _overlaps(steps, np.vstack([np.delete(discs, i, 0), boxes])).any(1)
        costs += crossed.reshape(-1, _STEPS).any(1)
        costs += ((found[:, :2] < frame.min) | (found[:, 2:] > frame.max)).any(1)
        best = np.argmin(costs)
        text.set_position((places[best] - center) / pixel)
        boxes = np.vstack([boxes, found[best]])
        if best < len(_DIRECTIONS):
            text.arrow_patch.set_visible(False)
        else:
            lines = np.vstack([lines, steps.reshape(-1, _STEPS, 4)[best]])


def _overlaps(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Returns which boxes, given by their corners [n, 4] and [m, 4], overlap: bool [n, m]."""
    some = some[:, np.newaxis]
    return ((some[..., :2] < others[:, 2:]) & (some[..., 2:] > others[:, :2])).all(-1)


def disc_corners(axes: Axes, points: np.ndarray, radii: np.ndarray) -> tuple:
    """Returns the lower left and upper right corners around discs, in pixels, float [n, 2] each."""
    # Settles the layout.
    axes.figure.draw_without_rendering()
    centers = axes.transData.transform(points)
    pixels = radii[:, np.newaxis] * axes.figure.dpi / 72
    return centers - pixels, centers + pixels

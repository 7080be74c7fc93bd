"""Draws what compression gains and costs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from bert_tf.plots import style
from bert_tf.plots.annotations import disc_corners, label_points

# Square points of a model that is as fast as the original.
_AREA = 45.0


class Compressed(NamedTuple):
    """A model relative to the one that was compressed.

    It is so many times `smaller` and as fast (`faster`), and has `kept` a share of the quality,
    with a standard `deviation`. None stands for what is unknown.
    """

    name: str
    smaller: float
    kept: float
    deviation: float | None = None
    faster: float | None = None


def compressed_models(
    models: Sequence[Compressed],
    published: Sequence[Compressed] = (),
    title: str = "Size, quality and speed of compressed models",
) -> Figure:
    """Draws models as discs of size, quality and speed (area); circles have an unknown speed."""
    axes = style.new_axes(9, 5.5)
    original = Compressed("original", 1.0, 1.0, None, 1.0)
    axes.set_xscale("log")
    _draw(axes, [original], style.INK, "")
    _draw(axes, models, style.COLORS[0], "measured; area: speed")
    _draw(axes, published, style.COLORS[1], "published, mostly relative to BERT-base")
    if not all(model.faster for model in (*models, *published)):
        axes.scatter([], [], _AREA, "none", edgecolor=style.INK, label="unknown speed")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}×")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.set_xlabel("times smaller", color=style.INK)
    axes.set_ylabel("quality kept", color=style.INK)
    style.draw_grid(axes)
    axes.margins(0.12)
    style.set_title(axes, title)
    style.draw_legend(axes, loc="upper left", bbox_to_anchor=(0, -0.1), ncols=2)
    drawn = [original, *models, *published]
    # matplotlib chooses the limits of the axes for the centers of the discs.
    corners = np.concatenate(disc_corners(axes, _places(drawn), _radii(drawn)))
    axes.update_datalim(axes.transData.inverted().transform(corners))
    axes.margins(0.05)
    axes.autoscale_view()
    names = [model.name for model in drawn]
    label_points(axes, _places(drawn), _radii(drawn), names, size=8)
    return axes.figure


def _draw(axes: Axes, models: Sequence[Compressed], color: str, label: str) -> None:
    if not models:
        return
    faces = [to_rgba(color, 0.5 if model.faster else 0) for model in models]
    axes.scatter(*_places(models).T, (2 * _radii(models)) ** 2, faces, edgecolor=color)
    if label:
        axes.scatter([], [], _AREA, [to_rgba(color, 0.5)], edgecolor=color, label=label)
    deviations = [np.nan if model.deviation is None else model.deviation for model in models]
    axes.errorbar(*_places(models).T, deviations, fmt="none", ecolor=color, lw=1)


def _places(models: Sequence[Compressed]) -> np.ndarray:
    return np.array([(model.smaller, model.kept) for model in models])


def _radii(models: Sequence[Compressed]) -> np.ndarray:
    """Returns the radii in points."""
    return np.sqrt([_AREA * (model.faster or 1.0) for model in models]) / 2

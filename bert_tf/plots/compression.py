"""Draws what compression gains and costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bert_tf.plots.style import COLORS, FAINT, INK, new_axes, set_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Square points of a model that is as fast as the original.
_AREA = 45.0


class Compressed(NamedTuple):
    """A model relative to the one that was compressed.

    Attributes:
        name: its name.
        smaller: how many times smaller it is.
        kept: the share of the quality that it keeps.
        deviation: the standard deviation of `kept`; None if unknown.
        faster: how many times as fast it is; None if unknown.
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
    ax: Axes | None = None,
) -> Figure:
    """Draws models as discs: size to the right, quality up, speed as the area.

    Args:
        models: measured models.
        published: published ones, drawn as circles.
        ax: where to draw; a new figure by default.

    Returns:
        the figure.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    axes = ax or new_axes(9, 5.5)
    original = Compressed("original", 1.0, 1.0, None, 1.0)
    _draw(axes, [original], INK, "", filled=True)
    _draw(axes, models, COLORS[0], "measured; area: speed", filled=True)
    _draw(axes, published, COLORS[1], "published, relative to BERT-base", filled=False)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0)))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}×")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.set_xlabel("times smaller", color=INK)
    axes.set_ylabel("quality kept", color=INK)
    axes.grid(color=FAINT, lw=0.6)
    axes.set_axisbelow(True)
    axes.margins(0.12)
    axes.tick_params(colors=INK, labelsize=9, length=0)
    axes.spines[:].set_color(FAINT)
    set_title(axes, title)
    below = dict(loc="upper left", bbox_to_anchor=(0, -0.1), ncols=2)
    axes.legend(frameon=False, fontsize=9, labelcolor=INK, **below)
    return axes.figure


def _draw(axes: Axes, models: Sequence[Compressed], color: str, label: str, filled: bool) -> None:
    if not models:
        return
    x, y = [model.smaller for model in models], [model.kept for model in models]
    areas = [_AREA * (model.faster or 1.0) for model in models]
    faces = dict(facecolor=color, alpha=0.6) if filled else dict(facecolor="none")
    axes.scatter(x, y, areas, edgecolor=color, **faces)
    if label:
        axes.scatter([], [], _AREA, edgecolor=color, label=label, **faces)
    deviations = [np.nan if model.deviation is None else model.deviation for model in models]
    axes.errorbar(x, y, deviations, fmt="none", ecolor=color, lw=1)
    for model, area in zip(models, areas, strict=True):
        distance = 3 + np.sqrt(area) / 2
        offset, side = ((0, distance), "bottom") if filled else ((0, -distance), "top")
        text = dict(textcoords="offset points", ha="center", va=side, fontsize=8, color=color)
        axes.annotate(model.name, (model.smaller, model.kept), offset, parse_math=False, **text)

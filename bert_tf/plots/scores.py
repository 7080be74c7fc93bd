"""The scores of several models, as bars or against their sizes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from bert_tf.plots import style

# Inches.
_WIDTH, _POINTS, _BAR, _AROUND_BARS = 4.6, 2.5, 0.28, 0.7


class ScoredModel(NamedTuple):
    """A model, its number of parameters, and its scores: means and deviations, None if unknown."""

    name: str
    parameters: int
    scores: Mapping[str, tuple[float, float | None]]


def draw_scores(
    names: Sequence[str],
    groups: Mapping[str, Sequence[ScoredModel]],
    title: str,
    by_size: bool = False,
) -> style.Picture:
    """Draws a row of panels for each score that `names` has, and a column for each group of models.

    The panels hold bars, or points over the numbers of parameters.
    """
    most = max(map(len, groups.values()))
    height = _POINTS if by_size else _AROUND_BARS + _BAR * most
    figure = style.new_figure(_WIDTH * len(groups), height * len(names) + 0.4)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=style.INK, parse_math=False)
    panels = figure.subplots(len(names), len(groups), squeeze=False)
    for name, row in zip(names, panels, strict=True):
        for axes, (group, models), color in zip(row, groups.items(), style.COLORS, strict=False):
            known = [model for model in models if name in model.scores]
            axes.set_visible(bool(known))
            if known:
                (_draw_points if by_size else _draw_bars)(axes, known, name, color)
                style.set_title(axes, f"{name}, {group}")
    return figure


def _draw_points(axes: Axes, models: Sequence[ScoredModel], name: str, color: str) -> None:
    models = sorted(models, key=lambda model: model.parameters)
    sizes = [model.parameters / 1e6 for model in models]
    axes.errorbar(sizes, *_values(models, name), fmt="o-", ms=4.5, lw=1.2, color=color)
    axes.set_xlabel("million parameters", color=style.INK)
    style.draw_grid(axes)


def _draw_bars(axes: Axes, models: Sequence[ScoredModel], name: str, color: str) -> None:
    means, deviations = _values(models, name)
    places = range(len(models))
    bars = axes.barh(places, means, xerr=deviations, color=color, ecolor=style.INK)
    axes.bar_label(bars, fmt="%.1f", padding=3, fontsize=9, color=style.INK)
    axes.set_yticks(places, [model.name for model in models], parse_math=False)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    style.draw_grid(axes)


def _values(models: Sequence[ScoredModel], name: str) -> np.ndarray:
    """Returns means and deviations, float [2, n]; a deviation that is unknown is NaN."""
    return np.array([model.scores[name] for model in models], float).T

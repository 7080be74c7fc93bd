"""The scores of several models, as bars or against their sizes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.plots import style


class ScoredModel(NamedTuple):
    """A model, its number of parameters, and its scores, means and deviations; None if unknown.

    In place of the parameters, `draw_lines` has another number.
    """

    name: str
    size: int | None
    scores: Mapping[str, tuple[float, float | None]]


def draw_scores(
    names: Sequence[str],
    groups: Mapping[str, Sequence[ScoredModel]],
    title: str,
    by_size: bool = False,
) -> style.Picture:
    """Draws a panel for each score in `names` and group of models, with bars or points.

    Points, `by_size`, are over the numbers of parameters, with the models' names.
    """
    width, height = 4.6, 0.7 + 0.28 * max(map(len, groups.values()))
    if by_size:
        width, height = 6.4, 2.5
    figure = style.new_figure(width * len(groups), height * len(names) + 0.4)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=style.INK, parse_math=False)
    panels = figure.subplots(len(names), len(groups), squeeze=False)
    for name, row in zip(names, panels, strict=True):
        for axes, group, color in zip(row, groups, style.COLORS, strict=False):
            models = [model for model in groups[group] if name in model.scores]
            axes.set_visible(bool(models))
            means, deviations = np.array([x.scores[name] for x in models], float).reshape(-1, 2).T
            if by_size:
                sizes = [model.size / 1e6 for model in models]
                axes.errorbar(sizes, means, deviations, fmt="o", color=color)
                for model, size, mean in zip(models, sizes, means, strict=True):
                    place = dict(xytext=(6, 0), textcoords="offset points", va="center")
                    axes.annotate(model.name, (size, mean), **place, fontsize=7, color=style.INK)
                axes.set_xscale("log")
                ticks = sorted({*sizes})
                axes.set_xticks(ticks, [f"{size:.3g}" for size in ticks])
                axes.minorticks_off()
                axes.margins(x=0.3, y=0.15)
                axes.set_xlabel("million parameters", color=style.INK)
            else:
                places = range(len(models))
                bars = axes.barh(places, means, xerr=deviations, color=color, ecolor=style.INK)
                axes.bar_label(bars, fmt="%.1f", padding=3, fontsize=9, color=style.INK)
                axes.set_yticks(places, [model.name for model in models], parse_math=False)
                axes.invert_yaxis()
                axes.margins(x=0.15)
            style.draw_grid(axes)
            style.set_title(axes, f"{name}, {group}")
    return figure


def draw_lines(
    names: Sequence[str], lines: Mapping[str, Sequence[ScoredModel]], title: str, size: str
) -> style.Picture:
    """Draws a panel for each score in `names`, with lines of models over their `size`.

    The axis is logarithmic if the largest is more than ten times the smallest.
    """
    figure = style.new_figure(5.2 * len(names), 3.4)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=style.INK, parse_math=False)
    sizes = sorted({model.size for models in lines.values() for model in models})
    for name, axes in zip(names, figure.subplots(1, len(names), squeeze=False).flat, strict=True):
        for (line, models), color in zip(lines.items(), style.COLORS, strict=False):
            found = {model.size: model.scores[name] for model in models if name in model.scores}
            means, deviations = np.array([*found.values()], float).reshape(-1, 2).T
            shape = dict(fmt="o-", capsize=3, color=color, label=line)
            axes.errorbar([*found], means, deviations, **shape)
        axes.set_xscale("log" if sizes[-1] > 10 * sizes[0] else "linear")
        axes.set_xticks(sizes, [f"{number:,}" for number in sizes])
        axes.minorticks_off()
        axes.set_xlabel(size, color=style.INK)
        style.draw_grid(axes)
        style.draw_legend(axes)
        style.set_title(axes, name)
    return figure

"""Draws scores after fine-tuning over the number of pre-training steps."""

from collections.abc import Mapping, Sequence

from bert_tf.plots.style import COLORS, FAINT, INK, new_figure, set_title
from tfrecords.writer import atomic_write

Points = Sequence[tuple[float, float, float]]


def draw_steps(curves: Mapping[str, Mapping[str, Points]], path: str) -> None:
    """Draws a panel for each metric into a PNG file, written atomically.

    Args:
        curves: metric -> model -> (step, mean, standard deviation) of its checkpoints.

    Source: BERT (arXiv:1810.04805) figure 5.
    """
    figure = new_figure(5.5 * len(curves), 3.6)
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for axes, (metric, models) in zip(panels, curves.items(), strict=True):
        for (model, points), color in zip(models.items(), COLORS, strict=False):
            steps, means, deviations = zip(*points, strict=True)
            axes.errorbar(steps, means, deviations, marker="o", ms=5, color=color, label=model)
        set_title(axes, metric)
        axes.set_xlabel("pre-training steps", color=INK)
        axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
        axes.grid(color=FAINT, lw=0.6)
        axes.tick_params(colors=INK, labelsize=9, length=0)
        axes.spines[:].set_color(FAINT)
        if models:
            axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    atomic_write(path, figure.png())

"""Learning curves of a run."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bert_tf.base.files import current_entries
from bert_tf.plots import style

Measurements = Sequence[Mapping[str, float]]

# The running mean covers one part in `_SMOOTHED_PART` of a curve of at least `_SMOOTH_FROM` points.
_SMOOTHED_PART, _SMOOTH_FROM = 50, 100


def learning_curves(metrics: Measurements, evaluations: Measurements = ()) -> Figure:
    """Draws loss, accuracy, learning rate and throughput over the step, in four panels.

    Each curve consists of the current entries that have its key: after a resumed run, the later of
    two with the same step. The panel of accuracies shows up to four metrics: keys that end in
    `accuracy`, then other `eval_` metrics except losses.

    Args:
        metrics: training metrics, as in `metrics.jsonl`.
        evaluations: metrics on held-out data, as in `eval_metrics.jsonl`: `step`, `loss` and
            others, whose names may begin with "eval_".

    Example:
        metrics = [json.loads(line) for line in open("run/metrics.jsonl")]
        bert_tf.plots.learning_curves(metrics)
    """
    figure = style.new_figure(11, 6.4, layout=None)
    figure.subplots_adjust(left=0.06, right=0.98, top=0.95, bottom=0.08, wspace=0.15, hspace=0.18)
    loss, accuracy, rate, throughput = figure.subplots(2, 2, sharex=True).flat
    metrics, evaluations = current_entries(metrics), current_entries(evaluations)
    keys = dict.fromkeys(key for entry in [*metrics, *evaluations] for key in entry)
    evaluations = [
        {key.removeprefix("eval_"): value for key, value in entry.items()} for entry in evaluations
    ]
    _draw_pair(loss, metrics, evaluations, "loss", "", style.COLORS[0])
    others = [key for key in keys if key.startswith("eval_") and not key.endswith("loss")]
    accuracies = [key for key in keys if key.endswith("accuracy")]
    names = dict.fromkeys(key.removeprefix("eval_") for key in accuracies + others)
    for name, color in zip(names, style.COLORS, strict=False):
        # The name of a class may follow: "f1/not_equivalent".
        metric, *of_class = name.removesuffix("_accuracy").partition("/")
        metric = metric.replace("_", " ").replace("masked lm", "masked LM")
        label = "".join([metric, *of_class, ", "])
        _draw_pair(accuracy, metrics, evaluations, name, label, color)
    _draw(rate, metrics, "learning_rate", style.COLORS[0])
    _draw(throughput, metrics, "sequences_per_second", style.COLORS[0])
    _finish(loss, "Loss")
    only_accuracies = all(name.endswith("accuracy") for name in names)
    _finish(accuracy, "Accuracy" if only_accuracies else "Metrics", from_zero=True)
    _finish(rate, "Learning rate", from_zero=True)
    _finish(throughput, "Sequences per second", from_zero=True)
    for axes in (rate, throughput):
        axes.set_xlabel("step", color=style.INK)
    return figure


def _draw_pair(axes: Axes, metrics, evaluations, name: str, label: str, color: str) -> None:
    """Draws one measure for training and for held-out data."""
    _draw(axes, metrics, name, color, f"{label}training", smooth=True)
    steps, values = _series(evaluations, name)
    if len(steps):
        marks = dict(ms=4.5, lw=1.2, color=color, mfc="white", mew=1.4, zorder=4)
        axes.plot(steps, values, "o--", label=f"{label}held out", **marks)


def _draw(axes: Axes, metrics, name: str, color: str, label: str = "", smooth=False) -> None:
    steps, values = _series(metrics, name)
    if not len(steps):
        return
    if not smooth or len(steps) < _SMOOTH_FROM:
        # A line of one point would be invisible.
        marker = "o" if len(steps) == 1 else None
        axes.plot(steps, values, lw=1.5, marker=marker, ms=4.5, color=color, label=label)
        return
    axes.plot(steps, values, lw=0.6, color=color, alpha=0.3)
    width = len(values) // _SMOOTHED_PART
    means = np.convolve(values, np.ones(width) / width, mode="valid")
    axes.plot(steps[width // 2 :][: len(means)], means, lw=1.8, color=color, label=label)


def _series(metrics: Measurements, name: str) -> tuple[np.ndarray, np.ndarray]:
    points = [(entry["step"], entry[name]) for entry in metrics if name in entry]
    return np.array([step for step, _ in points]), np.array([value for _, value in points])


def _finish(axes: Axes, title: str, from_zero: bool = False) -> None:
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=style.INK)
    style.draw_grid(axes)
    axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
    axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    axes.yaxis.set_major_formatter("{x:,.6g}")
    axes.margins(x=0.01)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
    if from_zero:
        low, high = axes.get_ylim()
        # A correlation may be negative.
        axes.set_ylim(min(0, low) if axes.dataLim.y0 < 0 else 0, high)
    if axes.get_legend_handles_labels()[1]:
        style.draw_legend(axes)

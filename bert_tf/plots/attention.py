"""Draws attention probabilities."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bert_tf.plots import style

_COLORMAP = "Blues"


def attention(
    probabilities: np.ndarray,
    tokens: Sequence[str],
    title: str = "Attention",
    ax: Axes | None = None,
) -> Figure:
    """Draws how much each token (row) attends to each token (column).

    Args:
        probabilities: of one head, or a mean of heads, float [S, S].

    Example:
        bert_tf.plots.attention(np.eye(3), ["a", "small", "text"])

    Raises:
        ValueError: the shapes differ.
    """
    values = style.check_shape("probabilities", probabilities, len(tokens), len(tokens))
    size = 2.0 + 0.26 * len(tokens)
    axes = ax or style.new_axes(size + 0.8, size)
    image = axes.imshow(values, cmap=_COLORMAP, vmin=0)
    style.name_cells(axes, tokens, tokens, rotation=90)
    style.finish_axes(axes, title, "attended to", "attending")
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02, format="{x:.0%}")
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=style.INK, labelsize=9, length=0)
    return axes.figure


def attention_heads(probabilities: np.ndarray, title: str = "Attention of all heads") -> Figure:
    """Draws the attention of every layer (row) and every head (column).

    The color is the square root of a probability, on one scale, so that small ones show, too.

    Args:
        probabilities: of one text, float [L, N, S, S]; see `bert_tf.attention_probabilities`.

    Example:
        probabilities = bert_tf.attention_probabilities(encoder, inputs)
        bert_tf.plots.attention_heads(probabilities[:, 0])

    Raises:
        ValueError: the array has another shape.
    """
    values = style.check_shape("probabilities", probabilities, None, None, None, None)
    layers, heads = values.shape[:2]
    figure = style.new_figure(0.8 + 1.1 * heads, 0.9 + 1.1 * layers)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=style.INK, parse_math=False)
    panels = figure.subplots(layers, heads, squeeze=False)
    for (layer, head), axes in np.ndenumerate(panels):
        axes.imshow(np.sqrt(values[layer, head]), cmap=_COLORMAP, vmin=0, vmax=1)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color(style.FAINT)
        if layer == 0:
            axes.set_title(f"head {head}", fontsize=9, color=style.INK)
        if head == 0:
            axes.set_ylabel(f"layer {layer}", fontsize=9, color=style.INK)
    return figure

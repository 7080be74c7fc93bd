"""Draws words: their probabilities, and their masking."""

import unicodedata
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from bert_tf.plots import style

_MASK = "[MASK]"
# What became of a token -> the color of its box.
_KINDS = {"masked": "#005a8c", "random": "#a84a00", "unchanged": "#006b4e", "": "#f0f0f0"}
# Characters of text on a line.
_LINE = 96


def word_probabilities(
    words: Sequence[str],
    probabilities: Sequence[float],
    title: str = "Words for [MASK]",
    ax: Axes | None = None,
) -> Figure:
    """Draws n words with their probabilities, float [n], as bars, from top to bottom.

    Example:
        bert_tf.plots.word_probabilities(["cat", "dog"], [0.7, 0.2])

    Raises:
        ValueError: the lengths differ.
    """
    values = style.check_shape("probabilities", probabilities, len(words))
    width = 5 + 0.07 * max(map(len, words), default=0)
    axes = ax or style.new_axes(width, 0.9 + 0.3 * len(words))
    bars = axes.barh(range(len(words)), values, height=0.7, color=style.COLORS[0])
    axes.bar_label(bars, [f"{p:.1%}" for p in values], padding=4, fontsize=9, color=style.INK)
    axes.set_yticks(range(len(words)), words, parse_math=False)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.margins(x=0.15)
    style.finish_axes(axes, title, "probability")
    return axes.figure


def masked_example(
    tokens: Sequence[str],
    masked_tokens: Sequence[str],
    positions: Sequence[int],
    title: str = "Tokens to predict, before and after masking",
    ax: Axes | None = None,
    predicted: Mapping[int, str] | None = None,
) -> Figure:
    """Draws a sentence before and after masking.

    Of the tokens to predict, 80% become [MASK], 10% another token, and 10% stay as they are. Each
    of these has a box with a color and a caption of its own.

    Args:
        masked_tokens: what the model sees in place of `tokens`.
        positions: the indices of the tokens that it has to predict.
        predicted: what a model predicts at some indices, in a third row.

    Example:
        bert_tf.plots.masked_example(["a", "dog", "barks"], ["a", "[MASK]", "barks"], [1])

    Raises:
        ValueError: the lengths differ.

    Source: BERT (arXiv:1810.04805) section 3.1.
    """
    style.check_shape("masked_tokens", masked_tokens, len(tokens))
    rows = {"before": 0.0, "after": 1.1} | ({"predicted": 2.7} if predicted else {})
    height = 1.9 + max(rows.values())
    boxes, line, left = [], 0, 0.0
    for index, (before, after) in enumerate(zip(tokens, masked_tokens, strict=True)):
        kind = ""
        if index in positions:
            kind = "unchanged" if after == before else "random"
            kind = "masked" if after == _MASK else kind
        texts = before, after, (predicted or {}).get(index, "")
        width = max(map(_width, (*texts, kind))) + 1.2
        if left and left + width > _LINE:
            line, left = line + 1, 0.0
        boxes.append((left, width, height * line, texts, kind))
        left += width + 0.4
    axes = ax or style.new_axes(9, 0.5 + 0.32 * height * (line + 1))
    axes.set(xlim=(0, _LINE), ylim=(height * (line + 1), -0.2), xticks=[])
    ticks = [height * i + top + 0.5 for i in range(line + 1) for top in rows.values()]
    axes.set_yticks(ticks, [*rows] * (line + 1))
    style.finish_axes(axes, title)
    # The width of a character of the font is 0.6 of its size.
    inches = axes.get_window_extent().width / axes.figure.dpi
    size = min(9.0, 0.93 * 72 * inches / _LINE / 0.6)
    for left, width, top, texts, kind in boxes:
        for (row, below), token in zip(rows.items(), texts, strict=False):
            if token:
                shown = kind if row == "after" else ""
                _draw_box(axes, left, width, top + below, token, shown, size)
    return axes.figure


def _width(text: str) -> int:
    """Returns the number of columns; a Chinese character takes two."""
    return sum(1 + (unicodedata.east_asian_width(character) in "WF") for character in text)


def _draw_box(
    axes: Axes, left: float, width: float, top: float, token: str, kind: str, size: float
) -> None:
    axes.add_patch(Rectangle((left, top), width, 1, color=_KINDS[kind], lw=0))
    text = dict(ha="center", va="center", family="monospace", fontsize=size, parse_math=False)
    middle = left + width / 2
    axes.text(middle, top + 0.5, token, color="white" if kind else style.INK, **text)
    axes.text(middle, top + 1.32, kind, color=style.INK, **text | {"fontsize": 0.85 * size})

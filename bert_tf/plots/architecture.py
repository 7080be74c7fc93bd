"""Draws encoders, their layers, and what is predicted from their outputs."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bert_tf.config import BertConfig
from bert_tf.plots import style

_TOKEN, _ENCODER, _PREDICTION, _NORM = "#cfe3f5", "#0072b2", "#b5e3d3", "#f5e6b8"
_PAIR = "[CLS] the man [MASK] milk [SEP] he [MASK] home [SEP]".split()
_QUESTION = "[CLS] who bought milk [SEP] the tall man did [SEP]".split()


def task_example(
    tokens: Sequence[str],
    predictions: Mapping[int, str],
    title: str = "What the heads of a model predict",
    ax: Axes | None = None,
    encoder: str = "",
) -> Figure:
    """Draws tokens, the encoder that reads them, and what is predicted from its outputs.

    The keys of `predictions` are indices of tokens; `encoder` is written on the encoder.

    Example:
        bert_tf.plots.task_example(["[CLS]", "well", "made", "[SEP]"], {0: "positive"})

    Source: BERT (arXiv:1810.04805) figure 4.
    """
    axes = ax or style.new_axes(1.2 + 0.7 * len(tokens), 2.2)
    axes.set(xlim=(-0.7, len(tokens) - 0.3), ylim=(-0.4, 2.4), xticks=[])
    axes.set_yticks(range(3), ["token", "encoder", "prediction"])
    style.finish_axes(axes, title)
    _draw_box(axes, (len(tokens) - 1) / 2, 0.8, len(tokens), 0.4, encoder, _ENCODER)
    text = dict(ha="center", va="center", fontsize=8, color="black", parse_math=False)
    rows = (0, _TOKEN, "->", dict(enumerate(tokens))), (2, _PREDICTION, "<-", predictions)
    for row, fill, arrow, words in rows:
        box, line = dict(boxstyle="round", lw=0, fc=fill), dict(arrowstyle=arrow, lw=0.8)
        for i, word in words.items():
            end = i, 0.78 + 0.22 * row
            axes.annotate(word, end, (i, row), **text, bbox=box, arrowprops=line)
    return axes.figure


def pretraining_and_finetuning(config: BertConfig) -> Figure:
    """Draws what an encoder of this size does in pre-training, and then in fine-tuning.

    Example:
        bert_tf.plots.pretraining_and_finetuning(bert_tf.preset_config("base"))

    Source: BERT (arXiv:1810.04805) figure 1.
    """
    figure = style.new_figure(12, 2.4)
    before, after = figure.subplots(1, 2)
    name = f"{_size(config)} parameters"
    words = {0: "IsNext", 3: "bought", 7: "carried"}
    task_example(_PAIR, words, "Pre-training: masked words, next sentence", before, name)
    title = "Fine-tuning, here on SQuAD: a new head, and the same encoder"
    task_example(_QUESTION, {5: "start", 7: "end"}, title, after, name)
    arrow = dict(arrowstyle="->", lw=1.5, color=style.INK)
    ends = dict(xycoords=after.transData, textcoords=before.transData)
    after.annotate("", (-0.5, 1), (len(_PAIR) - 0.5, 1), **ends, arrowprops=arrow)
    after.set_yticks([])
    return figure


def encoder_layers(configs: Mapping[str, BertConfig]) -> Figure:
    """Draws a layer of the first encoder, and all layers of each as boxes as wide as its vectors.

    Example:
        bert_tf.plots.encoder_layers({"base": bert_tf.preset_config("base")})

    Raises:
        ValueError: one is not a BERT or ALBERT with all heads.

    Source: Attention Is All You Need (arXiv:1706.03762) figure 1.
    """
    figure = style.new_figure(6 + 2 * len(configs), 4.2)
    layer, stacks = figure.subplots(1, 2)
    _draw_layer(layer, *next(iter(configs.items())))
    most = max(config.num_hidden_layers for config in configs.values())
    widest = max(config.hidden_size for config in configs.values())
    for place, config in enumerate(configs.values()):
        width = 0.8 * config.hidden_size / widest
        _draw_box(stacks, place, -1.9, width, 1.6, "embeddings", _TOKEN)
        for number in range(config.num_hidden_layers):
            _draw_box(stacks, place, number, width, 0.8, str(number), _ENCODER, 6)
    stacks.set(xlim=(-0.5, len(configs) - 0.5), ylim=(-2.2, most + 0.5), yticks=[])
    names = [f"{name}\n{_size(config)}" for name, config in configs.items()]
    stacks.set_xticks(range(len(configs)), names, parse_math=False)
    style.finish_axes(stacks, "Layers × width, heads, parameters")
    return figure


def _draw_layer(axes: Axes, name: str, config: BertConfig) -> None:
    """Draws attention, feed-forward network and what is around them, from bottom to top."""
    hidden, inner = config.hidden_size, config.intermediate_size
    attention, network, norm = map(_short, config.layer_parameters)
    heads = f"attention: {config.num_attention_heads} heads of {config.head_size}"
    widths = f"feed-forward: {hidden:,} → {inner:,} → {hidden:,}, {config.hidden_act}"
    arrow = dict(arrowstyle="->", color=style.INK, lw=1.2)
    parts = (0, _TOKEN, heads, attention), (3, _PREDICTION, widths, network)
    for bottom, fill, part, parameters in parts:
        _draw_box(axes, 0, bottom, 1.7, 1, f"{part}\n{parameters} parameters", fill)
        _draw_box(axes, 0, bottom + 1.5, 1.7, 0.5, f"add, normalize: {norm}", _NORM)
        for low, high in ((bottom - 1, bottom), (bottom + 1, bottom + 1.5)):
            axes.annotate("", (0, high), (0, low), arrowprops=arrow)
        # Past the part, to where its input is added to its output.
        axes.plot([0, -1.05, -1.05], [bottom - 0.4] * 2 + [bottom + 1.75], color=style.INK, lw=1.2)
        axes.annotate("", (-0.85, bottom + 1.75), (-1.06, bottom + 1.75), arrowprops=arrow)
    axes.annotate("", (0, 5.6), (0, 5), arrowprops=arrow)
    axes.set(xlim=(-1.2, 1.2), ylim=(-1.1, 5.7), xticks=[], yticks=[])
    style.finish_axes(axes, f"A layer of {name}", f"{hidden:,} numbers for each token")


def _size(config: BertConfig) -> str:
    layers, width = config.num_hidden_layers, config.hidden_size
    heads = config.num_attention_heads
    return f"{layers} × {width:,}, {heads} heads, {_short(config.num_parameters)}"


def _short(parameters: int) -> str:
    """Formats a number like 109M, 2.36M or 1,536."""
    return f"{parameters / 1e6:.3g}M" if parameters >= 1e6 else f"{parameters:,}"


def _draw_box(
    axes: Axes, x: float, bottom: float, width: float, height: float, text: str, fill: str, size=8
) -> None:
    """Draws a box whose middle is at `x`, with a text."""
    axes.bar(x, height, width, bottom, color=fill, lw=0)
    color = "white" if fill == _ENCODER else "black"
    axes.text(x, bottom + height / 2, text, ha="center", va="center", fontsize=size, color=color)

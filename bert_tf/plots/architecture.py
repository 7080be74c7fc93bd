"""Draws what an encoder is made of, and what it predicts before and after fine-tuning."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bert_tf.config import BertConfig
from bert_tf.plots import style

_FILLS = {"token": "#cfe3f5", "encoder": "#0072b2", "prediction": "#b5e3d3", "norm": "#f5e6b8"}
_PAIR = "[CLS] the man [MASK] milk [SEP] he [MASK] home [SEP]".split()
_QUESTION = "[CLS] who bought milk [SEP] the tall man did [SEP]".split()


def task_example(
    tokens: Sequence[str],
    predictions: Mapping[int, str],
    title: str = "What the heads of a model predict",
    ax: Axes | None = None,
    encoder: str = "",
) -> Figure:
    """Draws the tokens that an encoder reads, and what is predicted from its outputs.

    Args:
        predictions: of some tokens, by their index; those of 0, [CLS], are of the whole text.
        encoder: what to write on the encoder.

    Example:
        bert_tf.plots.task_example(["[CLS]", "well", "made", "[SEP]"], {0: "positive"})

    Source: BERT (arXiv:1810.04805) figure 4.
    """
    axes = ax or style.new_axes(1.2 + 0.7 * len(tokens), 2.2)
    axes.set(xlim=(-0.7, len(tokens) - 0.3), ylim=(-0.4, 2.4), xticks=[])
    axes.set_yticks(range(3), ["token", "encoder", "prediction"])
    style.finish_axes(axes, title)
    _draw_box(axes, (len(tokens) - 1) / 2, 0.8, len(tokens), 0.4, encoder, "encoder")
    text = dict(ha="center", va="center", fontsize=8, color="black", parse_math=False)
    rows = (0, "token", "->", dict(enumerate(tokens))), (2, "prediction", "<-", predictions)
    for row, kind, arrow, words in rows:
        box, line = dict(boxstyle="round", lw=0, fc=_FILLS[kind]), dict(arrowstyle=arrow, lw=0.8)
        for i, word in words.items():
            end = i, 0.78 + 0.22 * row
            axes.annotate(word, end, (i, row), **text, bbox=box, arrowprops=line)
    return axes.figure


def pretraining_and_finetuning(config: BertConfig) -> Figure:
    """Draws the encoder in both of its uses: pre-training on pairs, fine-tuning on a task.

    Example:
        bert_tf.plots.pretraining_and_finetuning(bert_tf.preset_config("base"))

    Raises:
        ValueError: the configuration is not that of a BERT or ALBERT with all heads.

    Source: BERT (arXiv:1810.04805) figure 1.
    """
    figure = style.new_figure(12, 2.4)
    before, after = figure.subplots(1, 2)
    name = f"{_size(config)}, {_millions(config.num_parameters)} parameters"
    words = {0: "IsNext", 3: "bought", 7: "carried"}
    task_example(_PAIR, words, "Pre-training: masked words, next sentence", before, name)
    title = "Fine-tuning, here on SQuAD: a new head, and the same encoder"
    task_example(_QUESTION, {5: "start", 7: "end"}, title, after, name)
    line = dict(arrowstyle="->", lw=1.5, color=style.INK)
    ends = dict(xycoords=after.transData, textcoords=before.transData)
    after.annotate("", (-0.5, 1), (len(_PAIR) - 0.5, 1), **ends, arrowprops=line)
    after.set_yticks([])
    return figure


def transformer_layer(
    config: BertConfig, title: str = "A layer of the encoder", ax: Axes | None = None
) -> Figure:
    """Draws the parts of a layer with their sizes and numbers of parameters, from bottom to top.

    Example:
        bert_tf.plots.transformer_layer(bert_tf.preset_config("base"))

    Raises:
        ValueError: the configuration is not that of a BERT or ALBERT with all heads.

    Source: Attention Is All You Need (arXiv:1706.03762) figure 1.
    """
    attention, feed_forward, norm = map(_millions, config.layer_parameters)
    hidden, inner = config.hidden_size, config.intermediate_size
    heads = f"{config.num_attention_heads} heads of {config.head_size}"
    networks = f"{hidden:,} → {inner:,} → {hidden:,}, {config.hidden_act}"
    axes = ax or style.new_axes(4.5, 4.2)
    axes.set(xlim=(-1.2, 1.2), ylim=(-1.1, 6.2), xticks=[], yticks=[])
    style.finish_axes(axes, title)
    arrow = dict(arrowstyle="->", color=style.INK, lw=1.2)
    for bottom, kind, name, parameters in (
        (0.3, "token", f"multi-head attention\n{heads}", attention),
        (3.1, "prediction", f"feed-forward network\n{networks}", feed_forward),
    ):
        _draw_box(axes, 0, bottom, 1.7, 1, f"{name}\n{parameters} parameters", kind)
        _draw_box(axes, 0, bottom + 1.5, 1.7, 0.5, f"add, normalize: {norm}", "norm")
        for low, high in ((bottom - 0.85, bottom), (bottom + 1, bottom + 1.5)):
            axes.annotate("", (0, high), (0, low), arrowprops=arrow)
        # Around the part, to where its input is added to its output.
        axes.plot([0, -1.05, -1.05], [bottom - 0.35] * 2 + [bottom + 1.75], color=style.INK, lw=1.2)
        axes.annotate("", (-0.85, bottom + 1.75), (-1.06, bottom + 1.75), arrowprops=arrow)
    axes.annotate("", (0, 5.6), (0, 5.05), arrowprops=arrow)
    text = dict(ha="center", va="center", fontsize=9, color=style.INK)
    for height, name in ((-0.8, "input"), (5.85, "output")):
        axes.text(0, height, f"{name}: {hidden:,} numbers per token", **text)
    return axes.figure


def encoder_stacks(
    configs: Mapping[str, BertConfig],
    title: str = "Encoders: layers × width, heads, parameters",
    ax: Axes | None = None,
) -> Figure:
    """Draws encoders side by side, by name: a box per layer, as wide as its vectors.

    Example:
        sizes = {name: bert_tf.preset_config(name) for name in ("base", "large")}
        bert_tf.plots.encoder_stacks(sizes)

    Raises:
        ValueError: a configuration is not that of a BERT or ALBERT with all heads.
    """
    axes = ax or style.new_axes(1 + 2 * len(configs), 4.2)
    most = max(config.num_hidden_layers for config in configs.values())
    widest = max(config.hidden_size for config in configs.values())
    axes.set(xlim=(-0.5, len(configs) - 0.5), ylim=(-2.2, most + 0.5), xticks=[], yticks=[])
    style.finish_axes(axes, title)
    for place, config in enumerate(configs.values()):
        width = 0.8 * config.hidden_size / widest
        _draw_box(axes, place, -1.9, width, 1.6, "embeddings", "token")
        for layer in range(config.num_hidden_layers):
            _draw_box(axes, place, layer, width, 0.8, str(layer), "encoder", 6)
    axes.set_xticks(
        range(len(configs)),
        [f"{name}\n{_size(c)}\n{_millions(c.num_parameters)}" for name, c in configs.items()],
    )
    return axes.figure


def _size(config: BertConfig) -> str:
    layers, width = config.num_hidden_layers, config.hidden_size
    return f"{layers} × {width:,}, {config.num_attention_heads} heads"


def _millions(parameters: int) -> str:
    """Formats a number like 109M, 2.36M or 1,536."""
    return f"{parameters / 1e6:.3g}M" if parameters >= 1e6 else f"{parameters:,}"


def _draw_box(
    axes: Axes, x: float, bottom: float, width: float, height: float, text: str, kind: str, size=8.0
) -> None:
    """Draws a box whose middle is at `x`, with a text."""
    axes.bar(x, height, width, bottom, color=_FILLS[kind], lw=0)
    color = "white" if kind == "encoder" else "black"
    axes.text(x, bottom + height / 2, text, ha="center", va="center", fontsize=size, color=color)

"""The published sizes: 24 miniatures (arXiv:1908.08962), BERT-large (arXiv:1810.04805), ALBERT.

ALBERT (arXiv:1909.11942 table 1) has embeddings of width 128 and a single set of weights for all
layers; its base and large otherwise have the sizes of BERT's. The heads of its xlarge, which the
table lacks, are those of the published albert_config.json.

A preset narrower than base starts from wider weights than the published 0.02. A dense layer
multiplies the standard deviation of its normalized input by initializer_range * sqrt(width), and
the logits of attention start with a standard deviation of initializer_range**2 * width: 0.31 in
base, but 0.05 at a width of 128, where attention starts almost uniform and stays so for thousands
of steps. These presets keep the product at that of base.

Presets of a width up to 256 train without dropout, which only slows down models that are too small
to overfit: docs/results.md has the runs of tiny.
"""

import math
from typing import NamedTuple

from bert_tf.config import BertConfig


class Size(NamedTuple):
    """Depth and width; heads are hidden_size / 64 if None, feed-forward layers 4 times as wide."""

    num_hidden_layers: int
    hidden_size: int
    embedding_size: int | None = None
    num_hidden_groups: int | None = None
    num_attention_heads: int | None = None


PRESETS = {
    "tiny": Size(2, 128),
    "mini": Size(4, 256),
    "small": Size(4, 512),
    "medium": Size(8, 512),
    "base": Size(12, 768),
    "large": Size(24, 1024),
    "albert-base": Size(12, 768, 128, 1),
    "albert-large": Size(24, 1024, 128, 1),
    "albert-xlarge": Size(24, 2048, 128, 1, num_attention_heads=16),
    "albert-xxlarge": Size(12, 4096, 128, 1),
} | {
    f"L-{layers}_H-{hidden}": Size(layers, hidden)
    for layers in (2, 4, 6, 8, 10, 12)
    for hidden in (128, 256, 512, 768)
}
"""Maps the values of --preset to sizes."""

_BASE_WIDTH, _BASE_INITIALIZER_RANGE = 768, 0.02
_WIDTH_WITHOUT_DROPOUT = 256


class Start(NamedTuple):
    """Flags of run_pretraining to start with."""

    preset: str
    train_batch_size: int
    learning_rate: float
    num_train_steps: int
    num_warmup_steps: int


# Preset, batch size, learning rate and the most steps. Sources: tiny: docs/results.md; small: the
# learning rate of ELECTRA-small (arXiv:2003.10555 table 6); base: BERT (arXiv:1810.04805 A.2).
_CPU = "tiny", 32, 1e-3, 20_000
_LITTLE_TEXT = "small", 256, 5e-4, 100_000
_MUCH_TEXT = "base", 256, 1e-4, 1_000_000
_MUCH_TOKENS = 100_000_000
# As many passes as BERT made over its text (arXiv:1810.04805 A.2).
_PASSES = 40
_FEWEST_STEPS = 1000


def suggest_start(num_examples: int, max_seq_length: int, device_type: str) -> Start:
    """Suggests how to pre-train on the examples of one pass over a text."""
    enough = num_examples * max_seq_length >= _MUCH_TOKENS
    chosen = _CPU if device_type == "CPU" else _MUCH_TEXT if enough else _LITTLE_TEXT
    preset, batch_size, learning_rate, most_steps = chosen
    steps = max(_FEWEST_STEPS, round(_PASSES * num_examples / batch_size, -3))
    steps = int(min(steps, most_steps))
    return Start(preset, batch_size, learning_rate, steps, min(steps // 20, 10_000))


def preset_config(name: str, vocab_size: int = 30522) -> BertConfig:
    """Returns the configuration of a published size, with training values for its width.

    Sizes are those of `PRESETS`, such as "tiny", "albert-base" or the miniature "L-6_H-256". The
    default vocabulary size is that of bert-base-uncased.

    Example:
        encoder = bert_tf.BertEncoder(bert_tf.preset_config("tiny", vocab_size=8000))

    Raises:
        ValueError: there is no such preset.
    """
    if name not in PRESETS:
        raise ValueError(f"no preset {name!r}: choose one of {', '.join(PRESETS)}")
    return sized_config(PRESETS[name], vocab_size)


def sized_config(size: Size, vocab_size: int) -> BertConfig:
    """Returns the configuration of any size, with training values for its width."""
    wider = max(1.0, _BASE_WIDTH / size.hidden_size)
    dropout = 0.0 if size.hidden_size <= _WIDTH_WITHOUT_DROPOUT else 0.1
    return BertConfig(
        vocab_size=vocab_size,
        intermediate_size=4 * size.hidden_size,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer_range=round(_BASE_INITIALIZER_RANGE * math.sqrt(wider), 4),
        **size._asdict()
        | {"num_attention_heads": size.num_attention_heads or size.hidden_size // 64},
    )

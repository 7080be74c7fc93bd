"""The published sizes: 24 miniatures (arXiv:1908.08962), BERT-large (arXiv:1810.04805), ALBERT.

ALBERT base and large (arXiv:1909.11942 table 1) have the sizes of BERT base and large, but
embeddings of width 128 and a single set of weights for all layers.
"""

from typing import NamedTuple

from bert_tf.config import BertConfig


class Size(NamedTuple):
    """Depth and width; heads are hidden_size / 64, feed-forward layers 4 times as wide."""

    num_hidden_layers: int
    hidden_size: int
    embedding_size: int | None = None
    num_hidden_groups: int | None = None


NAMED_SIZES = {
    "tiny": Size(2, 128),
    "mini": Size(4, 256),
    "small": Size(4, 512),
    "medium": Size(8, 512),
    "base": Size(12, 768),
    "large": Size(24, 1024),
    "albert-base": Size(12, 768, embedding_size=128, num_hidden_groups=1),
    "albert-large": Size(24, 1024, embedding_size=128, num_hidden_groups=1),
}
MINIATURES = {
    f"L-{layers}_H-{hidden}": Size(layers, hidden)
    for layers in (2, 4, 6, 8, 10, 12)
    for hidden in (128, 256, 512, 768)
}
PRESETS = NAMED_SIZES | MINIATURES


def preset_config(name: str, vocab_size: int = 30522) -> BertConfig:
    """Returns the configuration of a published size.

    Args:
        name: tiny, mini, small, medium, base, large, albert-base, albert-large, or a miniature
            such as "L-6_H-256".
        vocab_size: number of tokens in the vocabulary; 30522 is that of bert-base-uncased.

    Raises:
        ValueError: there is no such preset.
    """
    if name not in PRESETS:
        raise ValueError(f"no preset {name!r}: choose one of {', '.join(PRESETS)}")
    size = PRESETS[name]
    return BertConfig(
        vocab_size=vocab_size,
        num_attention_heads=size.hidden_size // 64,
        intermediate_size=4 * size.hidden_size,
        **size._asdict(),
    )

"""Embeddings and layers of MobileBERT; see `models.architectures`."""

from bert_tf.config import MobileBertConfig
from bert_tf.layers.bottleneck import BottleneckBlock, TrigramEmbeddings
from bert_tf.models import bert


def make_embeddings(config: MobileBertConfig, **named) -> TrigramEmbeddings:
    """Returns the embeddings; `named` are Keras' arguments."""
    return bert.make_embeddings(config, TrigramEmbeddings, **named)


def make_block(config: MobileBertConfig, index: int, **named) -> BottleneckBlock:
    """Returns the layer with an index."""
    return BottleneckBlock(
        config.num_attention_heads,
        config.intra_bottleneck_size,
        config.intermediate_size,
        config.num_feedforward_networks,
        config.hidden_act,
        shared=config.key_query_shared_bottleneck,
        hidden_dropout=config.hidden_dropout_prob,
        attention_dropout=config.attention_probs_dropout_prob,
        initializer_range=config.initializer_range,
        **named,
    )


def multiplications(config: MobileBertConfig, length: int, predictions: int) -> int:
    """Counts the multiplications of a forward pass; see `architectures`."""
    hidden, inner = config.hidden_size, config.intra_bottleneck_size
    query_key = hidden * inner + 2 * inner * inner
    if not config.key_query_shared_bottleneck:
        query_key = 2 * hidden * inner
    feed_forward = 2 * config.num_feedforward_networks * inner * config.intermediate_size
    # Into the bottleneck, the values, and out of it; the output of the attention.
    dense = query_key + 3 * hidden * inner + inner * inner + feed_forward
    layers = config.num_hidden_layers * (length * dense + 2 * length * length * inner)
    to_hidden = length * 3 * config.embedding_size * hidden
    return to_hidden + layers + predictions * hidden * (hidden + config.vocab_size)

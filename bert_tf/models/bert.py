"""Embeddings and layers of BERT and ALBERT; see `models.architectures`."""

from bert_tf.config import BertConfig
from bert_tf.layers.embeddings import BertEmbeddings
from bert_tf.layers.encoder_block import EncoderBlock


def make_embeddings(
    config: BertConfig, kind: type[BertEmbeddings] = BertEmbeddings, **named
) -> BertEmbeddings:
    """Returns the embeddings; `named` are Keras' arguments."""
    return kind(
        config.vocab_size,
        config.hidden_size,
        config.max_position_embeddings,
        config.type_vocab_size,
        dropout=config.hidden_dropout_prob,
        layer_norm_eps=config.layer_norm_eps,
        initializer_range=config.initializer_range,
        embedding_size=config.embedding_size,
        **named,
    )


def make_block(config: BertConfig, index: int, **named) -> EncoderBlock:
    """Returns the layer with an index."""
    return EncoderBlock(
        config.num_kept_heads(index),
        config.intermediate_size,
        config.hidden_act,
        hidden_dropout=config.hidden_dropout_prob,
        attention_dropout=config.attention_probs_dropout_prob,
        layer_norm_eps=config.layer_norm_eps,
        initializer_range=config.initializer_range,
        head_size=config.head_size,
        **named,
    )


def multiplications(config: BertConfig, length: int, predictions: int) -> int:
    """Counts the multiplications of a forward pass; see `architectures`."""
    hidden, embedding = config.hidden_size, config.embedding_size or config.hidden_size
    heads = sum(config.num_kept_heads(layer) for layer in range(config.num_hidden_layers))
    projections = 4 * length * hidden * config.head_size  # query, key, value and output
    attention = 2 * length * length * config.head_size  # scores and context
    feed_forward = 2 * length * hidden * config.intermediate_size
    layers = heads * (projections + attention) + config.num_hidden_layers * feed_forward
    to_hidden = length * embedding * hidden if embedding != hidden else 0
    masked_lm = predictions * (hidden * embedding + embedding * config.vocab_size)
    return to_hidden + layers + masked_lm

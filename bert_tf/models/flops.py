"""The amount of arithmetic that training takes."""

from bert_tf.config import BertConfig


def training_flops(config: BertConfig, max_seq_length: int, max_predictions_per_seq: int) -> int:
    """Returns the floating-point operations of the matrix products for training on one sequence.

    A product of [m, k] and [k, n] counts as 2 m k n. The backward pass has two such products for
    each one of the forward pass. Padding counts, rematerialization does not.

    Args:
        config: sizes of the encoder.
        max_seq_length: tokens per sequence, including padding.
        max_predictions_per_seq: positions per sequence that the masked-LM head scores.

    Source: the model FLOPs of PaLM (arXiv:2204.02311) appendix B, with the sizes of BERT's heads.
    """
    length, predictions = max_seq_length, max_predictions_per_seq
    hidden, inner = config.hidden_size, config.intermediate_size
    embedding = config.embedding_size or hidden
    heads = sum(config.num_kept_heads(layer) for layer in range(config.num_hidden_layers))
    projections = 4 * length * hidden * config.head_size  # query, key, value and output
    attention = 2 * length * length * config.head_size  # scores and context
    feed_forward = 2 * length * hidden * inner
    layers = heads * (projections + attention) + config.num_hidden_layers * feed_forward
    to_hidden = length * embedding * hidden if embedding != hidden else 0
    masked_lm = predictions * (hidden * embedding + embedding * config.vocab_size)
    next_sentence = hidden * hidden + 2 * hidden  # pooler and head
    if config.is_mobile:
        layers = config.num_hidden_layers * _mobile_layer(config, length)
        to_hidden = length * 3 * embedding * hidden
        masked_lm = predictions * hidden * (hidden + config.vocab_size)
    forward = 2 * (to_hidden + layers + masked_lm + next_sentence)
    return 3 * forward


def _mobile_layer(config: BertConfig, length: int) -> int:
    """Returns the multiplications of a layer of MobileBERT."""
    hidden, inner = config.hidden_size, config.intra_bottleneck_size
    query_key = hidden * inner + 2 * inner * inner
    if not config.key_query_shared_bottleneck:
        query_key = 2 * hidden * inner
    feed_forward = 2 * config.num_feedforward_networks * inner * config.intermediate_size
    # Into the bottleneck, the values, and out of it; the output of the attention.
    dense = query_key + 3 * hidden * inner + inner * inner + feed_forward
    return length * dense + 2 * length * length * inner

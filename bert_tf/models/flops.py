"""The amount of arithmetic that training takes."""

from bert_tf.config import BertConfig
from bert_tf.models.encoder import layers_of


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
    embeddings, block = layers_of(config)
    hidden = config.hidden_size
    layers = embeddings.multiplications(config, max_seq_length)
    for index in range(config.num_hidden_layers):
        layers += block.multiplications(config, index, max_seq_length)
    width = (config.embedding_size or hidden) + config.own_masked_lm_width
    masked_lm = max_predictions_per_seq * width * (hidden + config.vocab_size)
    next_sentence = hidden * hidden + 2 * hidden  # pooler and head
    return 3 * 2 * (layers + masked_lm + next_sentence)

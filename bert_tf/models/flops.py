"""The amount of arithmetic that training takes."""

from bert_tf.config import BertConfig
from bert_tf.models.architectures import architecture_of


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
    hidden = config.hidden_size
    multiplications = architecture_of(config).multiplications(
        config, max_seq_length, max_predictions_per_seq
    )
    next_sentence = hidden * hidden + 2 * hidden  # pooler and head
    return 3 * 2 * (multiplications + next_sentence)

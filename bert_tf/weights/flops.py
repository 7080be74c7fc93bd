"""The amount of arithmetic that training takes."""

import math

from bert_tf.config import BertConfig
from bert_tf.weights.names import part_of, sizes, weights


def training_flops(config: BertConfig, max_seq_length: int, max_predictions_per_seq: int) -> int:
    """Returns the floating-point operations of the matrix products for training on one sequence.

    A product of [m, k] and [k, n] counts as 2 m k n. The backward pass has two such products for
    each one of the forward pass. Padding counts, rematerialization does not.

    Source: the model FLOPs of PaLM (arXiv:2204.02311) appendix B, with the sizes of BERT's heads.
    """
    # How many rows a kernel multiplies; those of the other parts multiply all tokens.
    rows = {"masked_lm": max_predictions_per_seq, "pooler": 1, "next_sentence": 1, "head": 0}
    width = (config.embedding_size or config.hidden_size) + config.own_masked_lm_width
    products = max_predictions_per_seq * width * config.vocab_size
    kernels = [weight for weight in weights(config) if weight.path.endswith("_kernel")]
    for layer in range(config.num_hidden_layers):
        axes = sizes(config, layer=layer)
        for kernel in kernels:
            if "{}" in kernel.path or layer == 0:
                each = math.prod(axes[name] for name in kernel.shape)
                products += rows.get(part_of(kernel.path), max_seq_length) * each
        products += 2 * max_seq_length**2 * axes["attended"]  # scores and context
    return 3 * 2 * products

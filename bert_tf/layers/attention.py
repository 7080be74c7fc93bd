"""Multi-head self-attention."""

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.layers import fused
from bert_tf.layers.layer import Layer
from bert_tf.layers.seeds import next_seed


@keras.saving.register_keras_serializable(package="bert_tf")
class SelfAttention(Layer):
    """Scaled dot-product attention of a sequence to itself, with the output projection.

    Query, key and value share one kernel [H, 3ND], in this order, because one large product is
    faster than three.

    Args:
        index: the index of the layer, which may have lost some of the N heads of width D.
        recompute: whether the backward pass recomputes the probabilities [B, N, S, S] instead of
            keeping them.

    Call: `x` [B, S, H], `attention_mask` bool, true where attention is allowed, of a shape that
    broadcasts to [B, N, S, S], `seeds` as in `Dropout` -> [B, S, H].

    Source: Attention Is All You Need (arXiv:1706.03762) section 3.2; google-research/bert
    modeling.py `attention_layer`; for `recompute`, Reducing Activation Recomputation in Large
    Transformer Models (arXiv:2205.05198) section 5.
    """

    arguments = ("index", "recompute")

    def __init__(self, config: BertConfig, index: int = 0, recompute: bool = False, **kwargs):
        super().__init__(config, **kwargs)
        self.index, self.recompute = index, recompute
        self.num_heads = len(config.kept_heads(index))

    def build(self, x_shape, attention_mask_shape=None) -> None:
        width, inner = x_shape[-1], self.num_heads * self.config.head_size
        self.add_dense("qkv", width, 3 * inner)
        self.add_dense("output", inner, width)
        self.built = True

    def call(self, x, attention_mask, seeds=None, training=None):
        query, key, value = self._heads(x)
        context = fused.attention(
            query,
            key,
            value,
            bias=_bias(attention_mask),
            rate=self.config.attention_probs_dropout_prob if training else 0.0,
            seed=next_seed(seeds),
            recompute=self.recompute and training,
            # Weights in bfloat16 mean that the model is for fast inference.
            wide=self.variable_dtype != "bfloat16",
        )
        batch, length, _ = ops.shape(x)
        inner = self.output_kernel.shape[0]
        context = ops.reshape(ops.transpose(context, (0, 2, 1, 3)), (batch, length, inner))
        return self.dense("output", context)

    def probabilities(self, x, attention_mask):
        """Returns the probabilities that `call` weighs values with, float32 [B, N, S, S].

        Row i is what token i attends to. There is no dropout.
        """
        return ops.softmax(self.scores(x) + _bias(attention_mask))

    def scores(self, x):
        """Returns what the softmax of `probabilities` reads, unmasked, float32 [B, N, S, S]."""
        # Keras casts weights to the type of the activations in calls only.
        query, key, _ = self._heads(ops.cast(x, self.variable_dtype))
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        return ops.cast(scores, "float32")

    def _heads(self, x):
        """Returns the queries, scaled, the keys and the values of all heads, [B, N, S, D]."""
        batch, length, _ = ops.shape(x)
        head_size = self.config.head_size
        qkv = self.dense("qkv", x)
        qkv = ops.reshape(qkv, (batch, length, 3, self.num_heads, head_size))
        query, key, value = ops.unstack(ops.transpose(qkv, (2, 0, 3, 1, 4)))
        return query * ops.cast(head_size**-0.5, query.dtype), key, value


def _bias(attention_mask):
    # Large enough that a masked position's probability underflows to exactly 0.
    return ops.where(attention_mask, 0.0, -1e9)

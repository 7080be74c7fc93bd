"""Multi-head self-attention."""

import functools

import keras
from keras import ops

from bert_tf.layers.dense import add_dense, dense
from bert_tf.layers.dropout import Dropout


@keras.saving.register_keras_serializable(package="bert_tf")
class SelfAttention(keras.layers.Layer):
    """Scaled dot-product attention of a sequence to itself, with the output projection.

    Query, key and value share one kernel [H, 3H], in this order: one large product is faster than
    three.

    Args:
        num_heads: number of heads N; they share the width H evenly.
        dropout: rate on the attention probabilities.
        initializer_range: standard deviation of the truncated normal the kernels start from.

    Call: `x` [B, S, H], `attention_mask`, bool, true where attention is allowed, of a shape that
    broadcasts to [B, N, S, S], and `seed` as in `Dropout` -> [B, S, H].

    Source: Attention Is All You Need (arXiv:1706.03762) section 3.2; google-research/bert
    modeling.py `attention_layer`.
    """

    def __init__(
        self, num_heads: int, dropout: float = 0.1, initializer_range: float = 0.02, **kwargs
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.initializer_range = initializer_range
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, x_shape, attention_mask_shape=None) -> None:
        width = x_shape[-1]
        add = functools.partial(add_dense, self, stddev=self.initializer_range)
        self.qkv_kernel, self.qkv_bias = add("qkv", (width, 3 * width))
        self.output_kernel, self.output_bias = add("output", (width, width))
        self.built = True

    def call(self, x, attention_mask, seed=None, training=None):
        batch, length, width = ops.shape(x)
        head_size = width // self.num_heads
        qkv = dense(x, self.qkv_kernel, self.qkv_bias)
        qkv = ops.reshape(qkv, (batch, length, 3, self.num_heads, head_size))
        query, key, value = ops.unstack(ops.transpose(qkv, (2, 0, 3, 1, 4)))  # [B, N, S, H/N]
        query *= ops.cast(head_size**-0.5, query.dtype)
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))  # [B, N, S, S]
        # Large enough that a masked position's probability underflows to exactly 0.
        probabilities = _softmax(scores, ops.where(attention_mask, 0.0, -1e9))
        probabilities = self.dropout(probabilities, seed=seed, training=training)
        context = ops.matmul(probabilities, value)
        context = ops.reshape(ops.transpose(context, (0, 2, 1, 3)), (batch, length, width))
        return dense(context, self.output_kernel, self.output_bias)

    def get_config(self):
        return super().get_config() | {
            "num_heads": self.num_heads,
            "dropout": self.dropout.rate,
            "initializer_range": self.initializer_range,
        }


@ops.custom_gradient
def _softmax(scores, bias):
    """Softmax of scores + bias in float32; only its result, in the scores' type, is kept."""
    probabilities = ops.softmax(ops.cast(scores, "float32") + bias)
    probabilities = ops.cast(probabilities, scores.dtype)

    def gradient(upstream):
        wide = ops.cast(probabilities, "float32")
        product = ops.cast(upstream, "float32") * wide
        product -= wide * ops.sum(product, axis=-1, keepdims=True)
        return ops.cast(product, scores.dtype), ops.zeros_like(bias)

    return probabilities, gradient

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
        recompute: whether the backward pass computes the probabilities [B, N, S, S] a second time
            instead of keeping them.

    Call: `x` [B, S, H], `attention_mask`, bool, true where attention is allowed, of a shape that
    broadcasts to [B, N, S, S], and `seed` as in `Dropout` -> [B, S, H].

    Source: Attention Is All You Need (arXiv:1706.03762) section 3.2; google-research/bert
    modeling.py `attention_layer`; for `recompute`, Reducing Activation Recomputation in Large
    Transformer Models (arXiv:2205.05198) section 5.
    """

    def __init__(
        self,
        num_heads: int,
        dropout: float = 0.1,
        initializer_range: float = 0.02,
        recompute: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.initializer_range = initializer_range
        self.recompute = recompute
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
        # Large enough that a masked position's probability underflows to exactly 0.
        bias = ops.where(attention_mask, 0.0, -1e9)
        drop = functools.partial(self.dropout, training=training)
        context = _attend(query, key, value, bias, seed, drop, self.recompute and training)
        context = ops.reshape(ops.transpose(context, (0, 2, 1, 3)), (batch, length, width))
        return dense(context, self.output_kernel, self.output_bias)

    def get_config(self):
        return super().get_config() | {
            "num_heads": self.num_heads,
            "dropout": self.dropout.rate,
            "initializer_range": self.initializer_range,
            "recompute": self.recompute,
        }


def _attend(query, key, value, bias, seed, drop, recompute: bool):
    """query, key and value [B, N, S, H/N], a bias on the scores -> [B, N, S, H/N].

    For the backward pass it keeps the probabilities, before and after dropout, in the type of
    query, or with `recompute` nothing but its arguments.
    """

    def probabilities(query, key, bias, seed):
        scores = ops.matmul(query, _transposed(key))  # [B, N, S, S]
        result = ops.cast(ops.softmax(ops.cast(scores, "float32") + bias), query.dtype)
        return result, drop(result, seed=seed)

    @ops.custom_gradient
    def attend(query, key, value, bias):
        forward = probabilities(query, key, bias, seed)

        def gradient(upstream):
            kept, dropped = forward
            if recompute:
                # Of the upstream gradient, so that no compiler finds both to be the same.
                zero = upstream[0, 0, 0, 0] * 0.0
                shifted = None if seed is None else seed + ops.cast(zero, "int32")
                kept, dropped = probabilities(query + zero, key, bias, shifted)
            by_dropped = ops.matmul(upstream, _transposed(value))
            # The gradient of the probabilities, times these.
            product = ops.cast(by_dropped, "float32") * ops.cast(dropped, "float32")
            total = ops.sum(product, axis=-1, keepdims=True)
            by_scores = ops.cast(product - ops.cast(kept, "float32") * total, query.dtype)
            return (
                ops.matmul(by_scores, key),
                ops.matmul(_transposed(by_scores), query),
                ops.matmul(_transposed(dropped), upstream),
                ops.zeros_like(bias),
            )

        return ops.matmul(forward[1], value), gradient

    return attend(query, key, value, bias)


def _transposed(x):
    return ops.transpose(x, (0, 1, 3, 2))

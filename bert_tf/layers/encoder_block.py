"""One layer of the encoder: self-attention and a feed-forward network."""

import functools

import keras
from keras import ops

from bert_tf.layers.attention import SelfAttention
from bert_tf.layers.initializers import activation, add_dense


@keras.saving.register_keras_serializable(package="bert_tf")
class EncoderBlock(keras.layers.Layer):
    """A post-norm transformer layer.

    Args:
        num_heads: attention heads.
        intermediate_size: width of the feed-forward network.
        hidden_act: its activation, a name of `bert_config.json`.
        hidden_dropout: rate after each of the two sub-layers.
        attention_dropout: rate on the attention probabilities.
        layer_norm_eps: epsilon of the two normalizations.
        initializer_range: standard deviation of the truncated normal the kernels start from.

    Call: `x` [B, S, H], `attention_mask` as in `SelfAttention` -> [B, S, H].

    Source: google-research/bert modeling.py `transformer_model`.
    """

    def __init__(
        self,
        num_heads: int,
        intermediate_size: int,
        hidden_act: str = "gelu",
        hidden_dropout: float = 0.1,
        attention_dropout: float = 0.1,
        layer_norm_eps: float = 1e-12,
        initializer_range: float = 0.02,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.intermediate_size = intermediate_size
        self.hidden_act = hidden_act
        self.initializer_range = initializer_range
        policy = dict(dtype=self.dtype_policy)
        self.attention = SelfAttention(
            num_heads, attention_dropout, initializer_range, name="attention", **policy
        )
        norm = dict(epsilon=layer_norm_eps, **policy)
        self.attention_norm = keras.layers.LayerNormalization(name="attention_norm", **norm)
        self.output_norm = keras.layers.LayerNormalization(name="output_norm", **norm)
        self.dropout = keras.layers.Dropout(hidden_dropout, name="dropout", **policy)

    def build(self, x_shape, attention_mask_shape=None) -> None:
        width = x_shape[-1]
        dense = functools.partial(add_dense, self, stddev=self.initializer_range)
        inner = self.intermediate_size
        self.intermediate_kernel, self.intermediate_bias = dense("intermediate", (width, inner))
        self.output_kernel, self.output_bias = dense("output", (inner, width))
        for layer in (self.attention, self.attention_norm, self.output_norm):
            layer.build(x_shape)
        self.built = True

    def call(self, x, attention_mask, training=None):
        batch, length, width = ops.shape(x)
        attended = self.attention(x, attention_mask, training=training)
        x = self.attention_norm(x + self.dropout(attended, training=training))
        hidden = ops.matmul(ops.reshape(x, (-1, width)), self.intermediate_kernel)
        hidden = activation(self.hidden_act)(hidden + self.intermediate_bias)
        output = ops.matmul(hidden, self.output_kernel) + self.output_bias
        output = ops.reshape(output, (batch, length, width))
        return self.output_norm(x + self.dropout(output, training=training))

    def get_config(self):
        return super().get_config() | {
            "num_heads": self.attention.num_heads,
            "intermediate_size": self.intermediate_size,
            "hidden_act": self.hidden_act,
            "hidden_dropout": self.dropout.rate,
            "attention_dropout": self.attention.dropout.rate,
            "layer_norm_eps": self.output_norm.epsilon,
            "initializer_range": self.initializer_range,
        }

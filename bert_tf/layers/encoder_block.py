"""One layer of the encoder: self-attention and a feed-forward network."""

import keras

from bert_tf.layers.attention import SelfAttention
from bert_tf.layers.dropout import Dropout
from bert_tf.layers.layer import Layer
from bert_tf.layers.normalization import LayerNormalization


@keras.saving.register_keras_serializable(package="bert_tf")
class EncoderBlock(Layer):
    """A post-norm transformer layer.

    Args:
        num_heads: attention heads.
        intermediate_size: width of the feed-forward network.
        hidden_act: its activation, as named in `bert_config.json`.
        hidden_dropout: rate after each of the two sub-layers.
        attention_dropout: rate on the attention probabilities.
        layer_norm_eps: epsilon of the two normalizations.
        initializer_range: standard deviation of the kernels' truncated normal initializer.
        recompute: as in `SelfAttention` and `Dropout`.
        head_size: as in `SelfAttention`.

    Call: `x` [B, S, H], `attention_mask` and `seeds` as in `SelfAttention` -> [B, S, H].

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
        recompute: bool = False,
        head_size: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.intermediate_size = intermediate_size
        self.hidden_act = hidden_act
        self.initializer_range = initializer_range
        policy = dict(dtype=self.dtype_policy)
        self.attention = SelfAttention(
            num_heads,
            dropout=attention_dropout,
            initializer_range=initializer_range,
            recompute=recompute,
            head_size=head_size,
            name="attention",
            **policy,
        )
        norm = dict(epsilon=layer_norm_eps, **policy)
        self.attention_norm = LayerNormalization(name="attention_norm", **norm)
        self.output_norm = LayerNormalization(name="output_norm", **norm)
        self.dropout = Dropout(hidden_dropout, recompute, name="dropout", **policy)

    def build(self, x_shape, attention_mask_shape=None) -> None:
        width, inner = x_shape[-1], self.intermediate_size
        self.add_dense("intermediate", width, inner)
        self.add_dense("output", inner, width)
        for layer in (self.attention, self.attention_norm, self.output_norm):
            layer.build(x_shape)
        self.built = True

    def call(self, x, attention_mask, seeds=None, training=None):
        attended = self.attention(x, attention_mask, seeds=seeds, training=training)
        x = self.attention_norm(x + self.dropout(attended, seeds=seeds, training=training))
        output = self.feed_forward(self.hidden_act, x)
        return self.output_norm(x + self.dropout(output, seeds=seeds, training=training))

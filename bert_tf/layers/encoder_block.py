"""One layer of the encoder: self-attention and a feed-forward network."""

import keras

from bert_tf.config import BertConfig
from bert_tf.layers.attention import SelfAttention
from bert_tf.layers.dropout import Dropout
from bert_tf.layers.layer import Layer
from bert_tf.layers.normalization import LayerNormalization


@keras.saving.register_keras_serializable(package="bert_tf")
class EncoderBlock(Layer):
    """A post-norm transformer layer.

    Args:
        index: the index of the layer.
        recompute: as in `SelfAttention` and `Dropout`.

    Call: `x` [B, S, H], `attention_mask` and `seeds` as in `SelfAttention` -> [B, S, H].

    Source: google-research/bert modeling.py `transformer_model`.
    """

    arguments = ("index", "recompute")

    def __init__(self, config: BertConfig, index: int = 0, recompute: bool = False, **kwargs):
        super().__init__(config, **kwargs)
        self.index, self.recompute = index, recompute
        policy = dict(dtype=self.dtype_policy)
        self.attention = SelfAttention(config, index, recompute, name="attention", **policy)
        norm = dict(epsilon=config.layer_norm_eps, **policy)
        self.attention_norm = LayerNormalization(name="attention_norm", **norm)
        self.output_norm = LayerNormalization(name="output_norm", **norm)
        self.dropout = Dropout(config.hidden_dropout_prob, recompute, name="dropout", **policy)

    @staticmethod
    def multiplications(config: BertConfig, index: int, length: int) -> int:
        """Counts the multiplications of the matrix products for a sequence."""
        heads, hidden = len(config.kept_heads(index)), config.hidden_size
        projections = 4 * length * hidden * config.head_size  # query, key, value and output
        attention = 2 * length * length * config.head_size  # scores and context
        return heads * (projections + attention) + 2 * length * hidden * config.intermediate_size

    def build(self, x_shape, attention_mask_shape=None) -> None:
        width, inner = x_shape[-1], self.config.intermediate_size
        self.add_dense("intermediate", width, inner)
        self.add_dense("output", inner, width)
        for layer in (self.attention, self.attention_norm, self.output_norm):
            layer.build(x_shape)
        self.built = True

    def call(self, x, attention_mask, seeds=None, training=None):
        attended = self.attention(x, attention_mask, seeds=seeds, training=training)
        x = self.attention_norm(x + self.dropout(attended, seeds=seeds, training=training))
        output = self.feed_forward(self.config.hidden_act, x)
        return self.output_norm(x + self.dropout(output, seeds=seeds, training=training))

"""The layers on top of the encoder."""

import keras
from keras import ops

from bert_tf.layers import fused
from bert_tf.layers.dropout import Dropout
from bert_tf.layers.layer import Layer
from bert_tf.layers.normalization import LayerNormalization


@keras.saving.register_keras_serializable(package="bert_tf")
class MaskedLMHead(Layer):
    """Scores every token of the vocabulary at the masked positions.

    The head gathers the masked positions, transforms them to the width E of the word embeddings,
    and multiplies them by the transposed embedding table. The output bias is its own.

    Args:
        vocab_size: number of tokens V.
        hidden_act: activation of the transform, as named in `bert_config.json`.
        layer_norm_eps: epsilon of the transform's normalization.
        initializer_range: standard deviation of the kernel's truncated normal initializer.
        own_width: width of an embedding table of the head itself, by which it widens that of the
            words, as in MobileBERT.

    Call: `sequence` [B, S, H], `positions` int [B, P], `word_embeddings` [V, E] -> [B, P, V].

    Source: BERT (arXiv:1810.04805) section 3.1; google-research/bert and google-research/albert
    run_pretraining.py `get_masked_lm_output`; for `own_width`, the same of
    google-research/mobilebert.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_act: str = "gelu",
        layer_norm_eps: float = 1e-12,
        initializer_range: float = 0.02,
        own_width: int = 0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.own_width = own_width
        self.hidden_act = hidden_act
        self.initializer_range = initializer_range
        self.layer_norm = LayerNormalization(
            epsilon=layer_norm_eps, dtype=self.dtype_policy, name="layer_norm"
        )

    def build(self, sequence_shape, positions_shape, word_embeddings_shape) -> None:
        width = sequence_shape[-1]
        embedding_width = word_embeddings_shape[-1] + self.own_width
        self.add_dense("transform", width, embedding_width)
        self.layer_norm.build((None, embedding_width))
        self.output_bias = self.add_weight(
            name="output_bias", shape=(self.vocab_size,), initializer="zeros"
        )
        if self.own_width:
            self.own_embeddings = self.add_table("own_embeddings", self.vocab_size, self.own_width)
        self.built = True

    def call(self, sequence, positions, word_embeddings):
        batch, length, width = ops.shape(sequence)
        row_starts = ops.arange(batch, dtype=positions.dtype)[:, None] * length
        indices = ops.reshape(positions + row_starts, (-1,))
        x = ops.take(ops.reshape(sequence, (-1, width)), indices, axis=0)  # [B * P, H]
        x = fused.activation(self.hidden_act)(self.dense("transform", x))
        table = ops.cast(word_embeddings, self.compute_dtype)
        if self.own_width:
            own = ops.cast(self.own_embeddings, self.compute_dtype)
            table = ops.concatenate([table, own], axis=-1)
        logits = fused.tied_logits(self.layer_norm(x), table, self.output_bias)
        return ops.reshape(logits, (batch, ops.shape(positions)[1], self.vocab_size))


@keras.saving.register_keras_serializable(package="bert_tf")
class DenseHead(Layer):
    """Dropout and a dense layer on `pooled_output`.

    Args:
        outputs: width of the dense layer.
        dropout: dropout rate of the input.
        initializer_range: standard deviation of the kernel's truncated normal initializer.

    Call: `pooled` [B, H], `seeds` as in `Dropout` -> [B, outputs].
    """

    def __init__(
        self, outputs: int, dropout: float = 0.0, initializer_range: float = 0.02, **kwargs
    ):
        super().__init__(**kwargs)
        self.outputs = outputs
        self.initializer_range = initializer_range
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, input_shape) -> None:
        self.add_dense("dense", input_shape[-1], self.outputs)
        self.built = True

    def call(self, pooled, seeds=None, training=None):
        pooled = self.dropout(pooled, seeds=seeds, training=training)
        return self.dense("dense", pooled)

"""The layers on top of the encoder."""

from keras import ops

from bert_tf.config import BertConfig
from bert_tf.layers import fused
from bert_tf.layers.dropout import Dropout
from bert_tf.layers.layer import Layer, LayerNormalization
from bert_tf.layers.padding import places_of, rows_at


class MaskedLMHead(Layer):
    """Scores every token of the vocabulary at the masked positions.

    The head gathers the masked positions, transforms them to the width E of the word embeddings,
    and multiplies them by the transposed embedding table. The output bias is its own.

    `config.own_masked_lm_width` is the width of an embedding table of the head itself, by which it
    widens that of the words, as in MobileBERT.

    Call: `sequence` [B, S, H], `positions` int [B, P], `word_embeddings` [V, E] -> [B, P, V].
    Without positions, `sequence` is what was gathered, [M, H] -> [M, V].

    Source: BERT (arXiv:1810.04805) section 3.1; google-research/bert and google-research/albert
    run_pretraining.py `get_masked_lm_output`; for its own table, the same of
    google-research/mobilebert.
    """

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.hidden_act, epsilon = config.masked_lm_form
        self.own_width = config.own_masked_lm_width
        self.layer_norm = LayerNormalization(
            epsilon=epsilon, dtype=self.dtype_policy, name="layer_norm"
        )

    def build(self, sequence_shape, positions_shape, word_embeddings_shape) -> None:
        width = sequence_shape[-1]
        embedding_width = word_embeddings_shape[-1] + self.own_width
        self.add_dense("transform", width, embedding_width)
        self.layer_norm.build((None, embedding_width))
        size = self.config.vocab_size
        self.output_bias = self.add_weight(name="output_bias", shape=(size,), initializer="zeros")
        if self.own_width:
            self.own_embeddings = self.add_table("own_embeddings", size, self.own_width)

    def call(self, sequence, positions, word_embeddings):
        if positions is None:
            return self._scores(sequence, word_embeddings)
        places = places_of(positions, ops.shape(sequence)[1])
        logits = self._scores(rows_at(sequence, places), word_embeddings)
        return ops.reshape(logits, (*ops.shape(positions), self.config.vocab_size))

    def _scores(self, x, word_embeddings):
        x = fused.activation(self.hidden_act)(self.dense("transform", x))
        table = ops.cast(word_embeddings, self.compute_dtype)
        if self.own_width:
            own = ops.cast(self.own_embeddings, self.compute_dtype)
            table = ops.concatenate([table, own], axis=-1)
        return fused.tied_logits(self.layer_norm(x), table, self.output_bias)


class DenseHead(Layer):
    """Dropout of a `rate`, and a dense layer.

    Call: `pooled` [B, H], `seeds` as in `Dropout` -> [B, outputs].
    """

    arguments = ("outputs", "rate")

    def __init__(self, config: BertConfig, outputs: int, rate: float = 0.0, **kwargs):
        super().__init__(config, **kwargs)
        self.outputs, self.rate = outputs, rate
        self.dropout = Dropout(rate, dtype=self.dtype_policy, name="dropout")

    def build(self, input_shape) -> None:
        self.add_dense("dense", input_shape[-1], self.outputs)

    def call(self, pooled, seeds=None, training=None):
        pooled = self.dropout(pooled, seeds=seeds, training=training)
        return self.dense("dense", pooled)

"""The sum of word, position and segment embeddings."""

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.layers.dropout import Dropout
from bert_tf.layers.layer import Layer
from bert_tf.layers.normalization import LayerNormalization


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEmbeddings(Layer):
    """Adds up word, position and segment embeddings, then applies layer normalization and dropout.

    If `config.embedding_size` differs from H, it is the width E of the tables and the
    normalization, and a final dense layer maps E to H.

    Call: `input_word_ids`, `input_type_ids` int [B, S], `seeds` as in `Dropout` -> [B, S, H]; S is
    at most max_position_embeddings.

    Source: BERT (arXiv:1810.04805) figure 2; google-research/bert modeling.py
    `embedding_postprocessor`; for E, ALBERT (arXiv:1909.11942) section 3.1 and google-research/
    albert modeling.py `embedding_hidden_mapping_in`.
    """

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.layer_norm = self._make_norm(dtype=self.dtype_policy, name="layer_norm")
        self.dropout = Dropout(config.hidden_dropout_prob, dtype=self.dtype_policy, name="dropout")

    def _make_norm(self, **arguments) -> keras.layers.Layer:
        return LayerNormalization(epsilon=self.config.layer_norm_eps, **arguments)

    def build(self, input_word_ids_shape, input_type_ids_shape=None) -> None:
        width = self.config.embedding_size or self.config.hidden_size
        self._add_tables(width, width)
        if self.config.has_projection:
            self.add_dense("projection", width, self.config.hidden_size)
        self.built = True

    def _add_tables(self, word_width: int, width: int) -> None:
        """Adds the three tables, and a normalization; all but the words have the second width."""
        config = self.config
        self.word_embeddings = self.add_table("word_embeddings", config.vocab_size, word_width)
        self.position_embeddings = self.add_table(
            "position_embeddings", config.max_position_embeddings, width
        )
        self.type_embeddings = self.add_table(
            "token_type_embeddings", config.type_vocab_size, width
        )
        self.layer_norm.build((None, None, width))

    @staticmethod
    def multiplications(config: BertConfig, length: int) -> int:
        """Counts the multiplications of the matrix products for a sequence."""
        return length * config.embedding_size * config.hidden_size if config.has_projection else 0

    def call(self, input_word_ids, input_type_ids, seeds=None, training=None):
        length = ops.shape(input_word_ids)[1]
        x = ops.take(self.word_embeddings, input_word_ids, axis=0)
        x += self.position_embeddings[:length]
        x += ops.take(self.type_embeddings, input_type_ids, axis=0)
        x = ops.cast(x, self.compute_dtype)
        x = self.dropout(self.layer_norm(x), seeds=seeds, training=training)
        return self.dense("projection", x) if self.config.has_projection else x

"""The sum of word, position and segment embeddings."""

import keras
from keras import ops

from bert_tf.layers.dropout import Dropout
from bert_tf.layers.layer import Layer
from bert_tf.layers.normalization import LayerNormalization


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEmbeddings(Layer):
    """Adds up word, position and segment embeddings, then applies layer normalization and dropout.

    Args:
        vocab_size, max_position_embeddings, type_vocab_size: rows of the three tables.
        hidden_size: width H of the output.
        embedding_size: width E of the tables and the normalization if it differs from H; a final
            dense layer then maps E to H.
        dropout: rate after the normalization.
        layer_norm_eps: epsilon of the normalization.
        initializer_range: standard deviation of the tables' truncated normal initializer.

    Call: `input_word_ids`, `input_type_ids` int [B, S], `seeds` as in `Dropout` -> [B, S, H]; S is
    at most max_position_embeddings.

    Source: BERT (arXiv:1810.04805) figure 2; google-research/bert modeling.py
    `embedding_postprocessor`; for E, ALBERT (arXiv:1909.11942) section 3.1 and google-research/
    albert modeling.py `embedding_hidden_mapping_in`.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        max_position_embeddings: int = 512,
        type_vocab_size: int = 2,
        dropout: float = 0.1,
        layer_norm_eps: float = 1e-12,
        initializer_range: float = 0.02,
        embedding_size: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.embedding_size = embedding_size or hidden_size
        self.max_position_embeddings = max_position_embeddings
        self.type_vocab_size = type_vocab_size
        self.initializer_range = initializer_range
        self.layer_norm = self._make_norm(
            epsilon=layer_norm_eps, dtype=self.dtype_policy, name="layer_norm"
        )
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def _make_norm(self, **arguments) -> keras.layers.Layer:
        return LayerNormalization(**arguments)

    def build(self, input_word_ids_shape, input_type_ids_shape=None) -> None:
        self._add_tables(self.embedding_size)
        if self.embedding_size != self.hidden_size:
            self.add_dense("projection", self.embedding_size, self.hidden_size)
        self.built = True

    def _add_tables(self, width: int) -> None:
        """Adds the three tables, and a normalization; all but the words have the given width."""
        self.word_embeddings = self.add_table(
            "word_embeddings", self.vocab_size, self.embedding_size
        )
        self.position_embeddings = self.add_table(
            "position_embeddings", self.max_position_embeddings, width
        )
        self.type_embeddings = self.add_table("token_type_embeddings", self.type_vocab_size, width)
        self.layer_norm.build((None, None, width))

    def call(self, input_word_ids, input_type_ids, seeds=None, training=None):
        length = ops.shape(input_word_ids)[1]
        x = ops.take(self.word_embeddings, input_word_ids, axis=0)
        x += self.position_embeddings[:length]
        x += ops.take(self.type_embeddings, input_type_ids, axis=0)
        x = ops.cast(x, self.compute_dtype)
        x = self.dropout(self.layer_norm(x), seeds=seeds, training=training)
        if self.embedding_size == self.hidden_size:
            return x
        return self.dense("projection", x)

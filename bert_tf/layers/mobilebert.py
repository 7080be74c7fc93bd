"""The layers of MobileBERT."""

import keras
from keras import ops

from bert_tf.config import MobileBertConfig
from bert_tf.layers.bert import BertEmbeddings, SelfAttention
from bert_tf.layers.dropout import Dropout
from bert_tf.layers.layer import Layer
from bert_tf.layers.padding import Tokens, pack, rows_at


@keras.saving.register_keras_serializable(package="bert_tf")
class NoNorm(keras.layers.Layer):
    """A scale and an offset for each element of the last axis, in place of normalization.

    Source: MobileBERT (arXiv:2004.02984), operational optimizations.
    """

    def build(self, x_shape) -> None:
        width = x_shape[-1:]
        self.gamma = self.add_weight(name="gamma", shape=width, initializer="ones")
        self.beta = self.add_weight(name="beta", shape=width, initializer="zeros")

    def call(self, x):
        return x * self.gamma + self.beta


class TrigramEmbeddings(BertEmbeddings):
    """Word embeddings of three consecutive tokens, mapped to the width of the layers.

    A dense layer maps the word embeddings of the next, the same and the previous token [3E] to H.
    Beyond the ends of a row they are 0. Padding counts as a token, so that the last state of a text
    of the full length differs from that of the same text with padding. Position and segment
    embeddings, of width H, are added.

    Args, Call: as `BertEmbeddings`.

    Source: MobileBERT (arXiv:2004.02984), embedding factorization; google-research/mobilebert
    modeling.py `embedding_postprocessor`.
    """

    def _make_norm(self, **arguments) -> NoNorm:
        return NoNorm(**arguments)

    def build(self, input_word_ids_shape, input_type_ids_shape=None) -> None:
        width, hidden = self.config.embedding_size, self.config.hidden_size
        self._add_tables(width, hidden)
        self.add_dense("trigram", 3 * width, hidden)

    def _sums(self, input_word_ids, input_type_ids, tokens: Tokens | None):
        words = ops.take(self.word_embeddings, input_word_ids, axis=0)
        padded = ops.pad(ops.cast(words, self.compute_dtype), ((0, 0), (1, 1), (0, 0)))
        trigrams = ops.concatenate([padded[:, 2:], padded[:, 1:-1], padded[:, :-2]], axis=-1)
        x = self.dense("trigram", pack(trigrams, tokens))
        x += ops.cast(self._positions(ops.shape(input_word_ids)[1], tokens), x.dtype)
        types = ops.take(self.type_embeddings, pack(input_type_ids, tokens), axis=0)
        return x + ops.cast(types, x.dtype)


class BottleneckAttention(SelfAttention):
    """Self-attention inside a bottleneck of width D.

    Queries and keys share one dense layer H -> D with a `NoNorm`, from which each is mapped to D
    again; values are mapped from H to D, and the output stays at D. Without
    `config.key_query_shared_bottleneck`, queries and keys are mapped from H directly.

    Args, Call: as `SelfAttention`, but the output is [B, S, D], [T, D] or [M, D].

    Source: MobileBERT (arXiv:2004.02984) figure 1; google-research/mobilebert modeling.py
    `transformer_model` (`key_query_shared_bottleneck`).
    """

    def __init__(self, config: MobileBertConfig, *args, **kwargs):
        super().__init__(config, *args, **kwargs)
        self.shared = config.key_query_shared_bottleneck
        if self.shared:
            self.shared_norm = NoNorm(dtype=self.dtype_policy, name="shared_norm")

    def build(self, x_shape, attention_mask_shape=None) -> None:
        width, inner = x_shape[-1], self.config.intra_bottleneck_size
        if self.shared:
            self.add_dense("shared", width, inner)
            self.shared_norm.build((None, None, inner))
        self.add_dense("qk", inner if self.shared else width, 2 * inner)
        self.add_dense("value", width, inner)
        self.add_dense("output", inner, inner)

    def _qkv(self, x):
        value = self.dense("value", x)
        if self.shared:
            shared = self.shared_norm(self.dense("shared", x))
            # In `scores`, `x` has the type of the weights.
            x = ops.cast(shared, x.dtype)
        return ops.concatenate([self.dense("qk", x), value], axis=-1)


class BottleneckBlock(Layer):
    """A layer of MobileBERT: attention and several feed-forward networks inside a bottleneck.

    Args, Call: as `EncoderBlock`.

    Source: MobileBERT (arXiv:2004.02984) figure 1; google-research/mobilebert modeling.py
    `transformer_model`.
    """

    arguments = ("index", "recompute")

    def __init__(self, config: MobileBertConfig, index: int = 0, recompute: bool = False, **kwargs):
        super().__init__(config, **kwargs)
        self.index, self.recompute = index, recompute
        policy = dict(dtype=self.dtype_policy)
        self.attention = BottleneckAttention(config, index, recompute, name="attention", **policy)
        self.input_norm = NoNorm(name="input_norm", **policy)
        self.attention_norm = NoNorm(name="attention_norm", **policy)
        self.feed_forwards = [
            FeedForward(config, name=f"ffn_{i}", **policy)
            for i in range(config.num_feedforward_networks)
        ]
        self.output_norm = NoNorm(name="output_norm", **policy)
        self.dropout = Dropout(config.hidden_dropout_prob, recompute, name="dropout", **policy)

    def build(self, x_shape, attention_mask_shape=None) -> None:
        width, inner = x_shape[-1], self.config.intra_bottleneck_size
        self.add_dense("input", width, inner)
        self.add_dense("output", inner, width)
        for layer in (self.attention, self.output_norm):
            layer.build(x_shape)
        for layer in (self.input_norm, self.attention_norm, *self.feed_forwards):
            layer.build((None, None, inner))

    def call(self, x, attention_mask, seeds=None, training=None, tokens=None, numbers=None):
        attended = self.attention(
            x, attention_mask, seeds=seeds, training=training, tokens=tokens, numbers=numbers
        )
        x = rows_at(x, numbers)
        narrow = self.input_norm(self.dense("input", x))
        narrow = self.attention_norm(attended + narrow)
        for feed_forward in self.feed_forwards:
            narrow = feed_forward(narrow)
        output = self.dense("output", narrow)
        return self.output_norm(x + self.dropout(output, seeds=seeds, training=training))


class FeedForward(Layer):
    """A feed-forward network with a residual connection and a `NoNorm`: [B, S, D] -> [B, S, D]."""

    def __init__(self, config: MobileBertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.norm = NoNorm(dtype=self.dtype_policy, name="norm")

    def build(self, x_shape) -> None:
        width, inner = x_shape[-1], self.config.intermediate_size
        self.add_dense("intermediate", width, inner)
        self.add_dense("output", inner, width)
        self.norm.build(x_shape)

    def call(self, x):
        output = self.feed_forward(self.config.hidden_act, x)
        return self.norm(x + output)

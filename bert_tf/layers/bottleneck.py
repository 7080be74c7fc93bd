"""The layers of MobileBERT."""

import keras
from keras import ops

from bert_tf.layers.attention import SelfAttention
from bert_tf.layers.dropout import Dropout
from bert_tf.layers.embeddings import BertEmbeddings
from bert_tf.layers.layer import Layer


@keras.saving.register_keras_serializable(package="bert_tf")
class NoNorm(Layer):
    """A scale and an offset for each element of the last axis, in place of normalization.

    Source: MobileBERT (arXiv:2004.02984), operational optimizations.
    """

    def build(self, x_shape) -> None:
        width = x_shape[-1:]
        self.gamma = self.add_weight(name="gamma", shape=width, initializer="ones")
        self.beta = self.add_weight(name="beta", shape=width, initializer="zeros")
        self.built = True

    def call(self, x):
        return x * self.gamma + self.beta


@keras.saving.register_keras_serializable(package="bert_tf")
class TrigramEmbeddings(BertEmbeddings):
    """Word embeddings of three consecutive tokens, mapped to the width of the layers.

    A dense layer maps the word embeddings of the next, the same and the previous token [3E] to H.
    Beyond the ends of a row they are 0. Padding counts as a token, so that the last state of a text
    of the full length differs from that of the same text with padding. Position and segment
    embeddings, of width H, are added.

    Args, Call: as `BertEmbeddings`; `layer_norm_eps` has no effect.

    Source: MobileBERT (arXiv:2004.02984), embedding factorization; google-research/mobilebert
    modeling.py `embedding_postprocessor`.
    """

    def _make_norm(self, epsilon: float, **arguments) -> NoNorm:
        return NoNorm(**arguments)

    def build(self, input_word_ids_shape, input_type_ids_shape=None) -> None:
        self._add_tables(self.hidden_size)
        self.add_dense("trigram", 3 * self.embedding_size, self.hidden_size)
        self.built = True

    def call(self, input_word_ids, input_type_ids, seeds=None, training=None):
        length = ops.shape(input_word_ids)[1]
        words = ops.take(self.word_embeddings, input_word_ids, axis=0)
        padded = ops.pad(ops.cast(words, self.compute_dtype), ((0, 0), (1, 1), (0, 0)))
        trigrams = ops.concatenate([padded[:, 2:], padded[:, 1:-1], padded[:, :-2]], axis=-1)
        x = self.dense("trigram", trigrams)
        x += ops.cast(self.position_embeddings[:length], x.dtype)
        x += ops.cast(ops.take(self.type_embeddings, input_type_ids, axis=0), x.dtype)
        return self.dropout(self.layer_norm(x), seeds=seeds, training=training)


@keras.saving.register_keras_serializable(package="bert_tf")
class BottleneckAttention(SelfAttention):
    """Self-attention inside a bottleneck of width D.

    Queries and keys share one dense layer H -> D with a `NoNorm`, from which each is mapped to D
    again; values are mapped from H to D, and the output stays at D. If `shared` is false,
    queries and keys are mapped from H directly.

    Args:
        bottleneck_size: width D.
        shared: as above.

    The other arguments are those of `SelfAttention`.

    Call: as `SelfAttention`, but the output is [B, S, D].

    Source: MobileBERT (arXiv:2004.02984) figure 1; google-research/mobilebert modeling.py
    `transformer_model` (`key_query_shared_bottleneck`).
    """

    def __init__(self, num_heads: int, bottleneck_size: int, shared: bool = True, **kwargs):
        super().__init__(num_heads, **kwargs)
        self.bottleneck_size = bottleneck_size
        self.shared = shared
        self.shared_norm = NoNorm(dtype=self.dtype_policy, name="shared_norm") if shared else None

    def build(self, x_shape, attention_mask_shape=None) -> None:
        width, inner = x_shape[-1], self.bottleneck_size
        if self.shared:
            self.add_dense("shared", width, inner)
            self.shared_norm.build((None, None, inner))
        self.add_dense("qk", inner if self.shared else width, 2 * inner)
        self.add_dense("value", width, inner)
        self.add_dense("output", inner, inner)
        self.built = True

    def _heads(self, x):
        batch, length, _ = ops.shape(x)
        head_size = self.bottleneck_size // self.num_heads
        value = self.dense("value", x)
        if self.shared:
            shared = self.shared_norm(self.dense("shared", x))
            # In `scores`, `x` has the type of the weights.
            x = ops.cast(shared, x.dtype)
        query, key = ops.split(self.dense("qk", x), 2, axis=-1)
        query, key, value = (
            ops.transpose(
                ops.reshape(part, (batch, length, self.num_heads, head_size)), (0, 2, 1, 3)
            )
            for part in (query, key, value)
        )
        return query * ops.cast(head_size**-0.5, query.dtype), key, value


@keras.saving.register_keras_serializable(package="bert_tf")
class BottleneckBlock(Layer):
    """A layer of MobileBERT: attention and several feed-forward networks inside a bottleneck.

    Args:
        num_heads: attention heads.
        bottleneck_size: width D of the bottleneck.
        intermediate_size: width of the feed-forward networks.
        num_feedforward_networks: how many of them.
        shared: as in `BottleneckAttention`.

    The other arguments are those of `EncoderBlock`.

    Call: as `EncoderBlock`.

    Source: MobileBERT (arXiv:2004.02984) figure 1; google-research/mobilebert modeling.py
    `transformer_model`.
    """

    def __init__(
        self,
        num_heads: int,
        bottleneck_size: int,
        intermediate_size: int,
        num_feedforward_networks: int = 4,
        hidden_act: str = "relu",
        shared: bool = True,
        hidden_dropout: float = 0.0,
        attention_dropout: float = 0.1,
        initializer_range: float = 0.02,
        recompute: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.bottleneck_size = bottleneck_size
        self.intermediate_size = intermediate_size
        self.hidden_act = hidden_act
        self.initializer_range = initializer_range
        policy = dict(dtype=self.dtype_policy)
        self.attention = BottleneckAttention(
            num_heads,
            bottleneck_size,
            shared,
            dropout=attention_dropout,
            initializer_range=initializer_range,
            recompute=recompute,
            name="attention",
            **policy,
        )
        self.input_norm = NoNorm(name="input_norm", **policy)
        self.attention_norm = NoNorm(name="attention_norm", **policy)
        self.feed_forwards = [
            FeedForward(intermediate_size, hidden_act, initializer_range, name=f"ffn_{i}", **policy)
            for i in range(num_feedforward_networks)
        ]
        self.output_norm = NoNorm(name="output_norm", **policy)
        self.dropout = Dropout(hidden_dropout, recompute, name="dropout", **policy)

    def build(self, x_shape, attention_mask_shape=None) -> None:
        width, inner = x_shape[-1], self.bottleneck_size
        self.add_dense("input", width, inner)
        self.add_dense("output", inner, width)
        for layer in (self.attention, self.output_norm):
            layer.build(x_shape)
        for layer in (self.input_norm, self.attention_norm, *self.feed_forwards):
            layer.build((None, None, inner))
        self.built = True

    def call(self, x, attention_mask, seeds=None, training=None):
        attended = self.attention(x, attention_mask, seeds=seeds, training=training)
        narrow = self.input_norm(self.dense("input", x))
        narrow = self.attention_norm(attended + narrow)
        for feed_forward in self.feed_forwards:
            narrow = feed_forward(narrow)
        output = self.dense("output", narrow)
        return self.output_norm(x + self.dropout(output, seeds=seeds, training=training))


@keras.saving.register_keras_serializable(package="bert_tf")
class FeedForward(Layer):
    """A feed-forward network with a residual connection and a `NoNorm`: [B, S, D] -> [B, S, D].

    Args:
        intermediate_size, hidden_act, initializer_range: as in `EncoderBlock`.
    """

    def __init__(
        self,
        intermediate_size: int,
        hidden_act: str = "relu",
        initializer_range: float = 0.02,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.intermediate_size = intermediate_size
        self.hidden_act = hidden_act
        self.initializer_range = initializer_range
        self.norm = NoNorm(dtype=self.dtype_policy, name="norm")

    def build(self, x_shape) -> None:
        width, inner = x_shape[-1], self.intermediate_size
        self.add_dense("intermediate", width, inner)
        self.add_dense("output", inner, width)
        self.norm.build(x_shape)
        self.built = True

    def call(self, x):
        output = self.feed_forward(self.hidden_act, x)
        return self.norm(x + output)

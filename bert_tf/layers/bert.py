"""The layers of BERT, ALBERT and left-to-right encoders, and heads."""

import keras
import numpy as np
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.layers import fused
from bert_tf.layers.dropout import Dropout, next_seed
from bert_tf.layers.layer import Layer, LayerNormalization
from bert_tf.layers.padding import Tokens, pack, places_of, rows_and_length, rows_at


class BertEmbeddings(Layer):
    """Adds up word, position and segment embeddings, then applies layer normalization and dropout.

    If `config.embedding_size` differs from H, it is the width E of the tables and the
    normalization, and a final dense layer maps E to H.

    Call: `input_word_ids`, `input_type_ids` int [B, S], `seeds` as in `Dropout`, `tokens` which of
    them to compute -> [B, S, H], or [T, H] for T tokens; S is at most max_position_embeddings.

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

    def _add_tables(self, word_width: int, width: int) -> None:
        """Adds the tables, and a normalization; all but the words have the second width."""
        config = self.config
        self.word_embeddings = self.add_table("word_embeddings", config.vocab_size, word_width)
        self.position_embeddings = self.add_table(
            "position_embeddings", config.max_position_embeddings, width
        )
        if config.type_vocab_size:
            self.type_embeddings = self.add_table(
                "token_type_embeddings", config.type_vocab_size, width
            )
        self.layer_norm.build((None, None, width))

    def call(
        self,
        input_word_ids,
        input_type_ids,
        seeds=None,
        training=None,
        tokens: Tokens | None = None,
    ):
        x = self._sums(input_word_ids, input_type_ids, tokens)
        x = self.dropout(self.layer_norm(x), seeds=seeds, training=training)
        return self.dense("projection", x) if self.config.has_projection else x

    def _sums(self, input_word_ids, input_type_ids, tokens: Tokens | None):
        """Adds up the embeddings of each place, in the type of the activations."""
        x = ops.take(self.word_embeddings, pack(input_word_ids, tokens), axis=0)
        x += self._positions(ops.shape(input_word_ids)[1], tokens)
        if self.config.type_vocab_size:
            x += ops.take(self.type_embeddings, pack(input_type_ids, tokens), axis=0)
        return ops.cast(x, self.compute_dtype)

    def _positions(self, length: int, tokens: Tokens | None):
        # The gradient of a slice is dense: of sparse ones, Keras' optimizers square each part.
        table = self.position_embeddings[:length]
        return ops.take(table, tokens.columns, axis=0) if tokens else table


class SelfAttention(Layer):
    """Scaled dot-product attention of a sequence to itself, with the output projection.

    Query, key and value share one kernel [H, 3ND], in this order, because one large product is
    faster than three.

    Args:
        index: the index of the layer, which may have lost some of the N heads of width D.
        recompute: whether the backward pass recomputes the probabilities [B, N, S, S] instead of
            keeping them.

    Call: `x` [B, S, H], `attention_mask` bool, true where attention is allowed, of a shape that
    broadcasts to [B, N, S, S], `seeds` as in `Dropout` -> [B, S, H]. With `tokens`, x and the
    output are [T, H], and `attention_mask` is the result of `tokens.masks`. With `numbers`, int
    [M], the output is [M, H], only that of the rows of x with these numbers.

    Source: Attention Is All You Need (arXiv:1706.03762) section 3.2; google-research/bert
    modeling.py `attention_layer`; for `recompute`, Reducing Activation Recomputation in Large
    Transformer Models (arXiv:2205.05198) section 5.
    """

    arguments = ("index", "recompute")

    def __init__(self, config: BertConfig, index: int = 0, recompute: bool = False, **kwargs):
        super().__init__(config, **kwargs)
        self.index, self.recompute = index, recompute
        self.num_heads = len(config.kept_heads(index))

    def build(self, x_shape, attention_mask_shape=None) -> None:
        width, inner = x_shape[-1], self.num_heads * self.config.head_size
        self.add_dense("qkv", width, 3 * inner)
        self.add_dense("output", inner, width)

    def call(self, x, attention_mask, seeds=None, training=None, tokens=None, numbers=None):
        rate = self.config.attention_probs_dropout_prob if training else 0.0
        seed = next_seed(seeds)

        def attend(qkv, attention_mask, group: int):
            bias = attention_bias(attention_mask)
            # Weights in bfloat16 mean that the model is for fast inference.
            if self.variable_dtype == "bfloat16":
                bias = ops.cast(bias, qkv.dtype)
            # The second word already counts parts, replicas or calls from 0.
            own_seed = seed + np.array([0, group << 24], np.int32) if rate else None
            context = fused.fast_attention(
                *self._heads(qkv), bias, rate, own_seed, self.recompute and training
            )
            shape = *rows_and_length(qkv), self.output_kernel.shape[0]
            return ops.reshape(ops.transpose(context, (0, 2, 1, 3)), shape)

        qkv = self._qkv(x)
        if tokens:
            context = tokens.map_rows(attend, qkv, attention_mask)
        else:
            context = attend(qkv, attention_mask, 0)
        return self.dense("output", rows_at(context, numbers))

    def scores(self, x):
        """Returns what the softmax reads, unmasked, float32 [B, N, S, S]."""
        # Keras casts weights to the type of the activations in calls only.
        query, key, _ = self._heads(self._qkv(ops.cast(x, self.variable_dtype)))
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        return ops.cast(scores, "float32")

    def _qkv(self, x):
        """Returns queries, keys and values side by side, [..., 3ND]."""
        return self.dense("qkv", x)

    def _heads(self, qkv):
        """Returns the queries, scaled, the keys and the values of all heads, [B, N, S, D]."""
        head_size = self.config.head_size
        qkv = ops.reshape(qkv, (*rows_and_length(qkv), 3, self.num_heads, head_size))
        query, key, value = ops.unstack(ops.transpose(qkv, (2, 0, 3, 1, 4)))
        return query * ops.cast(head_size**-0.5, query.dtype), key, value


def attention_bias(attention_mask):
    """Returns what to add to scores: 0 where attention is allowed, and -1e9 elsewhere."""
    # Large enough that a masked position's probability underflows to exactly 0.
    return ops.where(attention_mask, 0.0, -1e9)


class EncoderBlock(Layer):
    """A post-norm transformer layer.

    Args, Call: as `SelfAttention`.

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

    def build(self, x_shape, attention_mask_shape=None) -> None:
        width, inner = x_shape[-1], self.config.intermediate_size
        self.add_dense("intermediate", width, inner)
        self.add_dense("output", inner, width)
        for layer in (self.attention, self.attention_norm, self.output_norm):
            layer.build(x_shape)

    def call(self, x, attention_mask, seeds=None, training=None, tokens=None, numbers=None):
        attended = self.attention(
            x, attention_mask, seeds=seeds, training=training, tokens=tokens, numbers=numbers
        )
        x = rows_at(x, numbers) + self.dropout(attended, seeds=seeds, training=training)
        x = self.attention_norm(x)
        output = self.feed_forward(self.config.hidden_act, x)
        return self.output_norm(x + self.dropout(output, seeds=seeds, training=training))


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

"""The BERT encoder."""

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

import keras
from keras import ops

from bert_tf.base.calling import checked
from bert_tf.base.tensorflow_ops import compiled_by_xla, is_traced, recompute
from bert_tf.config import BertConfig
from bert_tf.layers import fused
from bert_tf.layers.bert import BertEmbeddings, EncoderBlock, attention_bias
from bert_tf.layers.dropout import DropoutSeeds
from bert_tf.layers.initial_weights import new_seed
from bert_tf.layers.layer import Layer
from bert_tf.layers.mobilebert import BottleneckBlock, TrigramEmbeddings
from bert_tf.layers.padding import SortedTokens, Tokens
from bert_tf.models.inputs import BertModel

# Attention computes a batch in this many groups, of at least this many rows. With eight groups,
# little more is gained.
_GROUPS, _ROWS_PER_GROUP = 4, 4
_LAYERS = {"mobilebert": (TrigramEmbeddings, BottleneckBlock)}


def skip_padding(model: keras.Model) -> None:
    """Makes the encoders in a model compute nothing for padding, which saves time.

    The amount of computation then depends on the values of the mask, which XLA cannot compile in
    training: there, the encoders compute padding, unless they get the input `token_places`. The
    outputs for tokens, and all gradients, stay the same to rounding.

    A training step that XLA does not compile does the same for the encoders in it.
    """
    for layer in model._flatten_layers():
        if hasattr(layer, "skips_padding"):
            layer.skips_padding = True


def least_activations(model: keras.Model, tokens: float) -> int:
    """Returns a lower bound for the bytes that a backward pass needs for a number of tokens.

    Each layer keeps its input if it is rematerialized, otherwise at least queries, keys, values and
    what follows them. If several encoders train, counts the smallest.
    """
    layers = model._flatten_layers()
    encoders = [x for x in layers if isinstance(x, BertEncoder) and x.trainable_variables]
    values = (
        x.config.hidden_size
        * x.config.num_hidden_layers
        * (1 if x.rematerialize == "layers" else 8)
        for x in encoders
    )
    bytes_each = 4 if keras.config.dtype_policy().compute_dtype == "float32" else 2
    return int(bytes_each * tokens * min(values, default=0))


class BertEncoder(BertModel):
    """Embeddings, a stack of transformer layers, and a pooler of the first token.

    With `num_hidden_groups` in the config, consecutive layers share weights, as in ALBERT: the
    first L / groups layers use those of `layer_0`, the next ones those of `layer_1`, and so on.
    The embeddings and layers of a MobileBERT are classes of their own.

    Args:
        config: sizes and rates, or the name of a size; see `BertConfig` and `preset_config`.
        rematerialize: what the backward pass recomputes instead of keeping it in memory; one of
            `choices.REMATERIALIZATIONS`.

            - "none": nothing.
            - "selective": the attention probabilities and the dropout masks. That is little
              arithmetic, but includes random numbers, which are slow on a CPU.
            - "layers": everything but the inputs of the layers. This takes a third more
              arithmetic and much less memory. It fails on Keras' JAX backend.
        skips_padding: whether to compute nothing for padding, whose outputs are then 0; see
            `skip_padding`. If it is None, a training step that XLA does not compile sets it.

    Call: a dict of int [B, S] tensors, `input_word_ids`, `input_mask` (1 for tokens, 0 for padding)
    and, if they are not all 0, `input_type_ids`; or the same under the names that transformers,
    google-research/bert and KerasHub use. S is at most max_position_embeddings and may be dynamic.
    In training, an optional `dropout_seed`, int32 [2], decides what is dropped; without it the
    model's own generator does. A model that wraps the encoder and has dropouts of its own passes
    `seeds` instead, a `DropoutSeeds`, and draws further seeds from it. With the optional
    `token_places`, int [T], the encoder computes only these places; see
    `layers.padding.token_places`. Returns a dict of `sequence_output` [B, S, H], `pooled_output`
    [B, H], `embeddings` [B, S, H], what the first layer reads, and `encoder_outputs`, the list of
    the outputs [B, S, H] of all layers, the last of which is `sequence_output`; from these,
    `attention_scores` computes what the layers attend to. The optional `output_places`, int [M],
    holds indices into the batch flattened to [B * S]. With it, the last layer computes only these
    places and what the pooler reads, and the dict holds only `pooled_output` and `at_places` [M,
    H], the sequence output there.

    Example:
        encoder = bert_tf.BertEncoder("tiny")
        ids = np.array([[101, 7592, 2088, 102]])
        outputs = encoder({"input_word_ids": ids, "input_mask": np.ones_like(ids),
                           "input_type_ids": np.zeros_like(ids)})

    Source: BERT (arXiv:1810.04805) section 3; google-research/bert modeling.py `BertModel`;
    google-research/albert modeling.py `transformer_model`; for rematerialization, Training Deep
    Nets with Sublinear Memory Cost (arXiv:1604.06174) and `SelfAttention`.
    """

    arguments = ("rematerialize", "skips_padding")
    default_name = "encoder"

    @checked
    def __init__(
        self,
        config: BertConfig | str,
        rematerialize: str = "none",
        skips_padding: bool | None = None,
        **kwargs,
    ):
        super().__init__(config, **kwargs)
        config = self.config
        if not config.has_layers:
            raise ValueError("a BiLSTM has no BERT layers: give another --preset or configuration")
        self.rematerialize, self.skips_padding = rematerialize, skips_padding
        embeddings, block = _LAYERS.get(config.model_type, (BertEmbeddings, EncoderBlock))
        policy = dict(dtype=self.dtype_policy)
        self.embeddings = embeddings(config, name="embeddings", **policy)
        self.blocks = [
            block(config, index, rematerialize == "selective", name=f"layer_{index}", **policy)
            for index in range(config.num_hidden_groups or config.num_hidden_layers)
        ]
        self.pooler = Pooler(config, name="pooler", **policy)
        rates = config.hidden_dropout_prob, config.attention_probs_dropout_prob
        if any(rates) or config.head_dropout_prob:
            self.seed_generator = keras.random.SeedGenerator(new_seed(), "dropout_seed_generator")
        self.build()

    def build(self, input_shape=None) -> None:
        shape = (None, None, self.config.hidden_size)
        for layer in (self.embeddings, *self.blocks, self.pooler):
            layer.build(shape)

    def call(self, inputs, seeds=None, training=None):
        mask = self.attention_mask(inputs["input_mask"])
        seeds = seeds or self.dropout_seeds(inputs, training)
        tokens = self._tokens(inputs["input_mask"], inputs.get("token_places"), training)
        if tokens:
            mask = tokens.masks(mask)
        shared = dict(tokens=tokens, training=training)
        x = self.embeddings(
            inputs["input_word_ids"], inputs["input_type_ids"], seeds=seeds, **shared
        )
        places = inputs.get("output_places")
        states, numbers = [x], [None] * self.config.num_hidden_layers
        if places is not None:
            pooled = self._pooled_places(inputs["input_mask"])
            places = ops.concatenate([pooled, ops.cast(places, pooled.dtype)])
            numbers[-1] = tokens.numbers(places) if tokens else places
        for index, only in enumerate(numbers):
            layer = functools.partial(
                self.block(index), attention_mask=mask, numbers=only, **shared
            )
            if self.rematerialize == "layers" and training:
                x = _rematerialized(layer, x, seeds)
            else:
                x = layer(x, seeds=seeds)
            states.append(x)
        if places is not None:
            batch = ops.shape(inputs["input_mask"])[0]
            return {"pooled_output": self.pooler(x[:batch, None]), "at_places": x[batch:]}
        if tokens:
            states = [tokens.spread(x) for x in states]
        return {
            "sequence_output": states[-1],
            "pooled_output": self.pool(states[-1], inputs["input_mask"]),
            "embeddings": states[0],
            "encoder_outputs": states[1:],
        }

    def attention_scores(self, outputs: Mapping[str, Any]) -> list:
        """Returns what the softmax of each layer's attention reads, float32 [B, n, S, S].

        `outputs` are those of a call. The scores are not masked; n heads are left in a layer.
        """
        states = [outputs["embeddings"], *outputs["encoder_outputs"][:-1]]
        return [self.block(index).attention.scores(x) for index, x in enumerate(states)]

    def _tokens(self, mask, places, training) -> Tokens | None:
        if places is not None:
            return Tokens(mask, places)
        if training and keras.backend.backend() == "tensorflow":
            if compiled_by_xla():
                return None
            if self.skips_padding is None and is_traced():
                self.skips_padding = True  # in evaluation, too, for a head that reads padding
        if not self.skips_padding:
            return None
        batch = ops.shape(mask)[0]
        groups = min(_GROUPS, batch // _ROWS_PER_GROUP) if isinstance(batch, int) else 1
        return SortedTokens(mask, groups) if groups > 1 else Tokens(mask)

    def pool(self, sequence, input_mask):
        """Turns the last layer's output [B, S, H] into `pooled_output` [B, H]."""
        if self.config.is_decoder:
            columns = ops.expand_dims(_last_columns(input_mask), (1, 2))
            sequence = ops.take_along_axis(sequence, columns, axis=1)
        return self.pooler(sequence)

    def _pooled_places(self, input_mask):
        """Returns the places of the batch that the pooler reads, int [B]."""
        batch, length = ops.shape(input_mask)
        places = ops.arange(batch, dtype="int32") * length
        return places + _last_columns(input_mask) if self.config.is_decoder else places

    def attention_mask(self, input_mask):
        """Turns int [B, S] into bool [B, 1, 1 or S, S], true where attention is allowed."""
        mask = ops.expand_dims(ops.cast(input_mask, "bool"), (1, 2))
        if not self.config.is_decoder:
            return mask
        positions = ops.arange(ops.shape(input_mask)[1])
        return ops.logical_and(mask, positions <= positions[:, None])

    def block(self, index: int) -> EncoderBlock | BottleneckBlock:
        """Returns the block that computes a layer; several layers may share it."""
        # Integer division, because the original's int(index / layers * groups) rounds down too far
        # in some cases, such as 22 layers in 22 groups.
        return self.blocks[index * len(self.blocks) // self.config.num_hidden_layers]


def _last_columns(input_mask):
    """Returns the column of the last token of each row, int [B]."""
    return ops.maximum(ops.sum(ops.cast(input_mask, "int32"), axis=1) - 1, 0)


def _rematerialized(function: Callable, x, seeds: DropoutSeeds | None):
    """Computes `function(x, seeds=seeds)`, and recomputes it in the backward pass."""
    # With the same seed numbers, so that it drops the same elements.
    start = copy.copy(seeds)

    def compute(x, zero):
        # XLA must not know that the seeds are the same both times: it would then keep the masks.
        own = start and start.shifted(ops.cast(zero, "int32"))
        output = function(x, seeds=own)
        if seeds:
            seeds.number = own.number
        return output

    return recompute(compute, x)


class Pooler(Layer):
    """A dense layer with `config.pooler_act`, applied to the first token: [B, S, H] -> [B, H].

    Without `config.classifier_activation`, the output is the first token, unchanged.
    """

    def build(self, input_shape) -> None:
        width = input_shape[-1]
        if self.config.classifier_activation:
            self.add_dense("dense", width, width)

    def call(self, sequence):
        first = sequence[:, 0]
        if not self.config.classifier_activation:
            return first
        return fused.activation(self.config.pooler_act)(self.dense("dense", first))


def attention_probabilities(encoder: BertEncoder, inputs: Mapping[str, Any]):
    """Returns the attention probabilities of every layer and head.

    Training and inference never keep them, so they are computed here from `attention_scores`.

    Args:
        encoder: the encoder, or that of another model: `bert_tf.load(path).encoder`.
        inputs: its inputs, int [B, S]; see `BertEncoder`.

    Returns:
        float32 [L, B, N, S, S] without dropout. [l, b, n, i] is how much token i attends to each
        token in head n of layer l: it adds up to 1 and is 0 for padding, and all 0 for a head that
        was removed. A text of 512 tokens takes 151 MB in `base`.

    Example:
        model, tokenizer, config = bert_tf.load("run")
        tokens = tokenizer.tokenize(["a text"])
        inputs = bert_tf.pack_segments([tokens], tokens.flat_values.shape[0] + 2, tokenizer.vocab)
        probabilities = bert_tf.attention_probabilities(model.encoder, inputs)

    Source: Attention Is All You Need (arXiv:1706.03762) section 3.2.1.
    """
    inputs = encoder.named_inputs(inputs)
    scores = encoder.attention_scores(encoder(inputs, training=False))
    bias = attention_bias(encoder.attention_mask(inputs["input_mask"]))
    return ops.stack(
        [_all_heads(encoder, index, ops.softmax(x + bias)) for index, x in enumerate(scores)]
    )


def _all_heads(encoder: BertEncoder, layer: int, probabilities):
    """Adds zeros in the places of removed heads: [B, n, S, S] -> [B, N, S, S]."""
    kept, count = encoder.config.kept_heads(layer), encoder.config.num_attention_heads
    if len(kept) == count:
        return probabilities
    padded = ops.pad(probabilities, ((0, 0), (0, 1), (0, 0), (0, 0)))
    places = [kept.index(head) if head in kept else len(kept) for head in range(count)]
    return ops.take(padded, places, axis=1)

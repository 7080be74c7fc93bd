"""The BERT encoder."""

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.layers.dense import add_dense, dense
from bert_tf.layers.dropout import derived_seed
from bert_tf.layers.embeddings import BertEmbeddings
from bert_tf.layers.encoder_block import EncoderBlock


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEncoder(keras.Model):
    """Embeddings, a stack of transformer layers, and a pooler on the first token.

    With `num_hidden_groups` in the config, layers share their weights: the first of L layers have
    those of `layer_0`, the next those of `layer_1`, and so on, as in ALBERT.

    Args:
        config: sizes and rates; see `BertConfig`.
        rematerialize: what the backward pass computes a second time instead of keeping it. "none";
            "selective", attention's probabilities and the masks of dropout: little arithmetic, but
            random numbers, which are slow on a CPU; "layers", all but the layers' inputs: a third
            more work, much less memory, though not on a TPU, whose compiler finds the second
            computation to be the first, nor on Keras' JAX backend, where it fails.

    Call: a dict of int [B, S] tensors, `input_word_ids`, `input_mask` (1 for tokens, 0 for
    padding) and `input_type_ids`; any S up to max_position_embeddings, static or not. In training
    `dropout_seed`, int32 [2], may be there: it decides what is dropped; without it a generator of
    the model's own does. Returns a dict of `sequence_output` [B, S, H], `pooled_output` [B, H] and
    `encoder_outputs`, the list of every layer's output [B, S, H], the last of which is
    `sequence_output`.

    Example:
        encoder = BertEncoder(preset_config("tiny"))
        ids = np.array([[101, 7592, 2088, 102]])
        outputs = encoder({"input_word_ids": ids, "input_mask": np.ones_like(ids),
                           "input_type_ids": np.zeros_like(ids)})

    Source: BERT (arXiv:1810.04805) section 3; google-research/bert modeling.py `BertModel`;
    google-research/albert modeling.py `transformer_model`; for rematerialization, Training Deep
    Nets with Sublinear Memory Cost (arXiv:1604.06174) and `SelfAttention`.
    """

    def __init__(
        self, config: BertConfig, rematerialize: str = "none", name: str = "encoder", **kwargs
    ):
        super().__init__(name=name, **kwargs)
        self.config = config
        self.rematerialize = rematerialize
        norm = dict(layer_norm_eps=config.layer_norm_eps, dtype=self.dtype_policy)
        self.embeddings = BertEmbeddings(
            config.vocab_size,
            config.hidden_size,
            config.max_position_embeddings,
            config.type_vocab_size,
            dropout=config.hidden_dropout_prob,
            initializer_range=config.initializer_range,
            embedding_size=config.embedding_size,
            name="embeddings",
            **norm,
        )
        self.blocks = [
            EncoderBlock(
                config.num_attention_heads,
                config.intermediate_size,
                config.hidden_act,
                hidden_dropout=config.hidden_dropout_prob,
                attention_dropout=config.attention_probs_dropout_prob,
                initializer_range=config.initializer_range,
                recompute=rematerialize == "selective",
                name=f"layer_{index}",
                **norm,
            )
            for index in range(config.num_hidden_groups or config.num_hidden_layers)
        ]
        self.pooler = Pooler(config.initializer_range, name="pooler", dtype=self.dtype_policy)
        if config.hidden_dropout_prob or config.attention_probs_dropout_prob:
            self.seed_generator = keras.random.SeedGenerator(name="dropout_seed_generator")
        else:
            self.seed_generator = None
        self.build()

    def build(self, input_shape=None) -> None:
        shape = (None, None, self.config.hidden_size)
        for layer in (self.embeddings, *self.blocks, self.pooler):
            layer.build(shape)
        self.built = True

    def call(self, inputs, training=None):
        mask = self._attention_mask(inputs["input_mask"])
        seed = self.dropout_seed(inputs, training)
        x = self.embeddings(
            inputs["input_word_ids"], inputs["input_type_ids"], seed=seed, training=training
        )
        encoder_outputs = []
        for index in range(self.config.num_hidden_layers):
            number = 1 + index * EncoderBlock.num_dropouts
            x = self._layer(index, x, mask, derived_seed(seed, number), training)
            encoder_outputs.append(x)
        return {
            "sequence_output": x,
            "pooled_output": self.pooler(x),
            "encoder_outputs": encoder_outputs,
        }

    @property
    def num_dropouts(self) -> int:
        """How many seeds are derived from that of a call."""
        return 1 + self.config.num_hidden_layers * EncoderBlock.num_dropouts

    def dropout_seed(self, inputs: dict, training: bool | None):
        """The `dropout_seed` of the inputs, or else the next of the model; int32 [2].

        None where nothing is dropped.
        """
        seed = inputs.get("dropout_seed")
        if seed is None and training and self.seed_generator:
            seed = ops.cast(self.seed_generator.next(), "int32")
        return seed

    def _attention_mask(self, input_mask):
        """Int [B, S] to bool [B, 1, 1 or S, S], true where attention is allowed."""
        mask = ops.cast(input_mask, "bool")[:, None, None, :]
        if not self.config.is_decoder:
            return mask
        positions = ops.arange(ops.shape(input_mask)[1])
        return ops.logical_and(mask, positions <= positions[:, None])

    def _layer(self, index: int, x, mask, seed, training):
        # In whole numbers, as the original's int(index / layers * groups) is meant: that one is
        # rounded down too far for 22 layers in 22 groups and others.
        block = self.blocks[index * len(self.blocks) // self.config.num_hidden_layers]

        def call(x, zero):
            shifted = None if seed is None else seed + ops.cast(zero, "int32")
            return block(x, mask, seed=shifted, training=training)

        if self.rematerialize == "layers" and training:
            call = keras.remat(call)
        # The second computation gets arguments that the compiler cannot know to be the same. With
        # 0 among them it draws its random numbers again instead of keeping the first one's.
        return call(x, ops.zeros((), "float32"))

    def get_config(self):
        policy = keras.dtype_policies.serialize(self.dtype_policy)
        return {
            "config": self.config.to_dict(),
            "rematerialize": self.rematerialize,
            "name": self.name,
            "dtype": policy,
        }

    @classmethod
    def from_config(cls, config):
        return cls(**config | {"config": BertConfig.from_dict(config["config"])})


@keras.saving.register_keras_serializable(package="bert_tf")
class Pooler(keras.layers.Layer):
    """A dense layer with tanh on the first token: [B, S, H] -> [B, H]."""

    def __init__(self, initializer_range: float = 0.02, **kwargs):
        super().__init__(**kwargs)
        self.initializer_range = initializer_range

    def build(self, input_shape) -> None:
        width = input_shape[-1]
        self.dense_kernel, self.dense_bias = add_dense(
            self, "dense", (width, width), self.initializer_range
        )
        self.built = True

    def call(self, sequence):
        return ops.tanh(dense(sequence[:, 0], self.dense_kernel, self.dense_bias))

    def get_config(self):
        return super().get_config() | {"initializer_range": self.initializer_range}

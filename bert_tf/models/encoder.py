"""The BERT encoder."""

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.layers.embeddings import BertEmbeddings
from bert_tf.layers.encoder_block import EncoderBlock
from bert_tf.layers.initializers import activation, add_dense


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEncoder(keras.Model):
    """Embeddings, a stack of transformer layers, and a pooler on the first token.

    Args:
        config: sizes and rates; see `BertConfig`.

    Call: a dict of int [B, S] tensors, `input_word_ids`, `input_mask` (1 for tokens, 0 for
    padding) and `input_type_ids`; any S up to max_position_embeddings, static or not. Returns a
    dict of `sequence_output` [B, S, H], `pooled_output` [B, H] and `encoder_outputs`, the list of
    every layer's output [B, S, H], the last of which is `sequence_output`.

    Example:
        encoder = BertEncoder(preset_config("tiny"))
        ids = np.array([[101, 7592, 2088, 102]])
        outputs = encoder({"input_word_ids": ids, "input_mask": np.ones_like(ids),
                           "input_type_ids": np.zeros_like(ids)})

    Source: BERT (arXiv:1810.04805) section 3; google-research/bert modeling.py `BertModel`.
    """

    def __init__(self, config: BertConfig, name: str = "encoder", **kwargs):
        super().__init__(name=name, **kwargs)
        self.config = config
        norm = dict(layer_norm_eps=config.layer_norm_eps, dtype=self.dtype_policy)
        self.embeddings = BertEmbeddings(
            config.vocab_size,
            config.hidden_size,
            config.max_position_embeddings,
            config.type_vocab_size,
            dropout=config.hidden_dropout_prob,
            initializer_range=config.initializer_range,
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
                name=f"layer_{index}",
                **norm,
            )
            for index in range(config.num_hidden_layers)
        ]
        self.pooler = Pooler(config.initializer_range, name="pooler", dtype=self.dtype_policy)
        self.build()

    def build(self, input_shape=None) -> None:
        shape = (None, None, self.config.hidden_size)
        for layer in (self.embeddings, *self.blocks, self.pooler):
            layer.build(shape)
        self.built = True

    def call(self, inputs, training=None):
        mask = ops.cast(inputs["input_mask"], "bool")[:, None, None, :]
        x = self.embeddings(inputs["input_word_ids"], inputs["input_type_ids"], training=training)
        encoder_outputs = []
        for block in self.blocks:
            x = block(x, mask, training=training)
            encoder_outputs.append(x)
        return {
            "sequence_output": x,
            "pooled_output": self.pooler(x),
            "encoder_outputs": encoder_outputs,
        }

    def get_config(self):
        policy = keras.dtype_policies.serialize(self.dtype_policy)
        return {"config": self.config.to_dict(), "name": self.name, "dtype": policy}

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
        return activation("tanh")(ops.matmul(sequence[:, 0], self.dense_kernel) + self.dense_bias)

    def get_config(self):
        return super().get_config() | {"initializer_range": self.initializer_range}

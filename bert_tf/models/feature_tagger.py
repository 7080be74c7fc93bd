"""The feature-based approach: a frozen encoder and a tagger of another kind on top of it."""

from keras import ops

from bert_tf.choices import FEATURES
from bert_tf.config import BertConfig
from bert_tf.models.bilstm import bidirectional_lstm
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.heads import DenseHead
from bert_tf.models.inputs import BertModel

_LSTMS, _UNITS = 2, 768


class FeatureTagger(BertModel):
    """Tags tokens with two bidirectional LSTMs of 768 units on the outputs of a frozen encoder.

    | features                 | what the LSTMs read                                     | width |
    |--------------------------|---------------------------------------------------------|-------|
    | "embeddings"             | the input of the first layer                            | H     |
    | "last", "second_to_last" | the output of that layer                                | H     |
    | "sum_last_four"          | the sum of the outputs of the last four layers          | H     |
    | "concat_last_four"       | these outputs side by side                              | 4 H   |
    | "weighted_sum_last_four" | their sum with trained weights                          | H     |
    | "weighted_sum_all"       | the same for all layers                                 | H     |

    The trained weights are a softmax over the layers, times a trained scale, as in ELMo. The
    encoder does not train and has no dropout.

    Args:
        config: sizes and rates of the encoder; see `BertConfig`.
        num_outputs: the number of tags C.
        features: one of `choices.FEATURES`.

    Call: the encoder's inputs -> float32 logits [B, S, C].

    Raises:
        ValueError: the encoder has too few layers.

    Source: BERT (arXiv:1810.04805) section 5.3 and table 7; ELMo (arXiv:1802.05365) equation 1.
    """

    arguments = ("num_outputs", "features")
    default_name = "feature_tagger"

    def __init__(
        self, config: BertConfig, num_outputs: int, features: str = "concat_last_four", **kwargs
    ):
        super().__init__(config, **kwargs)
        if features not in FEATURES:
            raise ValueError(f"features {features!r} is not one of {', '.join(FEATURES)}")
        least = 4 if features.endswith("last_four") else 2
        if config.num_hidden_layers < least and features not in ("embeddings", "last"):
            raise ValueError(
                f"features {features!r} need an encoder of at least {least} layers, not of "
                f"{config.num_hidden_layers}"
            )
        self.num_outputs, self.features = num_outputs, features
        self.encoder = BertEncoder(config, dtype=self.dtype_policy)
        self.encoder.trainable = False
        self.lstms = [bidirectional_lstm(_UNITS, f"lstm_{index}") for index in range(_LSTMS)]
        rate = config.head_dropout_prob
        self.head = DenseHead(config, num_outputs, rate, name="head", dtype="float32")
        self.build()

    def build(self, input_shape=None) -> None:
        width = self.config.hidden_size * (4 if self.features == "concat_last_four" else 1)
        for lstm in self.lstms:
            lstm.build((None, None, width))
            width = 2 * _UNITS
        self.head.build((None, None, width))
        if self.features.startswith("weighted"):
            layers = self.config.num_hidden_layers if self.features.endswith("all") else 4
            self.mixture = self.add_weight(name="mixture", shape=(layers,), initializer="zeros")
            self.scale = self.add_weight(name="scale", shape=(), initializer="ones")

    def call(self, inputs, training=None):
        seeds = self.encoder.dropout_seeds(inputs, training)
        x = self._lstm_inputs(inputs)
        mask = ops.cast(inputs["input_mask"], "bool")
        for lstm in self.lstms:
            # Not the output itself: Keras attached the mask, which the head would complain about.
            x = ops.where(mask[:, :, None], lstm(x, mask=mask), 0.0)
        return self.head(x, seeds=seeds, training=training)

    def _lstm_inputs(self, inputs):
        """Returns what the LSTMs read, float32 [B, S, width]."""
        if self.features == "embeddings":
            x = self.encoder.embeddings(inputs["input_word_ids"], inputs["input_type_ids"])
            return ops.cast(ops.stop_gradient(x), "float32")
        layers = self.encoder(inputs, training=False)["encoder_outputs"]
        layers = [ops.cast(ops.stop_gradient(x), "float32") for x in layers]
        if self.features == "last":
            return layers[-1]
        if self.features == "second_to_last":
            return layers[-2]
        if self.features.endswith("last_four"):
            layers = layers[-4:]
        if self.features == "concat_last_four":
            return ops.concatenate(layers, axis=-1)
        if self.features == "sum_last_four":
            return sum(layers)
        weights = self.scale * ops.softmax(self.mixture)
        return sum(weights[index] * x for index, x in enumerate(layers))

"""Bidirectional LSTMs: an encoder without transformer layers, and a tagger on a frozen encoder."""

import keras
from keras import ops
from keras.initializers import GlorotUniform, Orthogonal

from bert_tf.base.choices import FEATURES
from bert_tf.config import BertConfig, BiLSTMConfig
from bert_tf.layers.bert import DenseHead
from bert_tf.layers.initial_weights import new_seed, truncated_normal
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.models.inputs import BertModel

_LSTMS, _UNITS = 2, 768


def bidirectional_lstm(units: int, name: str, **arguments: bool) -> keras.layers.Bidirectional:
    """Returns an LSTM in both directions that returns the states of every token, in float32."""
    # XLA, which compiles the steps on GPUs, has no cuDNN.
    shared = dict(return_sequences=True, use_cudnn=False, dtype="float32")
    # Published figures depend on the order: Keras would draw them for a layer that it copies.
    for _ in range(3):
        new_seed()
    forward, backward = (
        keras.layers.LSTM(
            units,
            kernel_initializer=GlorotUniform(new_seed()),
            recurrent_initializer=Orthogonal(seed=new_seed()),
            seed=new_seed(),
            name=direction,
            go_backwards=direction == "backward_lstm",
            **shared,
            **arguments,
        )
        for direction in ("forward_lstm", "backward_lstm")
    )
    return keras.layers.Bidirectional(forward, backward_layer=backward, name=name, dtype="float32")


class BiLSTMEncoder(BertModel):
    """Word embeddings, a bidirectional LSTM, and a dense layer on its states.

    In place of a `BertEncoder`, it makes a `BertTaskModel` small and fast. It has no
    position and segment embeddings and no dropout.

    If `config.bilstm` is "single", the LSTM reads the whole input. `pooled_output` is the dense
    layer on the last states of both directions, and `sequence_output` the same layer on the states
    of every token. If it is "siamese", one LSTM reads the two texts of a pair, each with the [SEP]
    after it, and the dense layer compares their last states h1 and h2: it reads
    [h1, h2, h1 * h2, |h1 - h2|]. There is no `sequence_output` then.

    Args:
        config: `embedding_size` is the width of the word embeddings, `intermediate_size` the
            number U of units per direction, and `hidden_size` the width H of the dense layer, whose
            activation is ReLU.

    Call: the inputs of a `BertEncoder` -> a dict of float32 `pooled_output` [B, H] and, unless it
    is siamese, `sequence_output` [B, S, H].

    Source: Distilling Task-Specific Knowledge from BERT (arXiv:1903.12136) section 3.1.
    """

    default_name = "encoder"

    def __init__(self, config: BiLSTMConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.lstm = bidirectional_lstm(config.intermediate_size, "lstm", return_state=True)
        self.dense = keras.layers.Dense(
            config.hidden_size,
            activation="relu",
            kernel_initializer=GlorotUniform(new_seed()),
            dtype="float32",
            name="dense",
        )
        self.build()

    def build(self, input_shape=None) -> None:
        config = self.config
        width = config.embedding_size or config.hidden_size
        self.word_embeddings = self.add_weight(
            name="word_embeddings",
            shape=(config.vocab_size, width),
            initializer=truncated_normal(config.initializer_range),
            autocast=False,
        )
        self.lstm.build((None, None, width))
        states = (8 if config.bilstm == "siamese" else 2) * config.intermediate_size
        self.dense.build((None, states))

    def call(self, inputs, seeds=None, training=None):
        if self.config.bilstm == "siamese":
            _, states = self._read(*_texts(inputs))
            first, second = ops.split(states, 2)
            compared = [first, second, first * second, ops.abs(first - second)]
            return {"pooled_output": self.dense(ops.concatenate(compared, axis=-1))}
        sequence, states = self._read(inputs["input_word_ids"], inputs["input_mask"])
        return {"pooled_output": self.dense(states), "sequence_output": self.dense(sequence)}

    def _read(self, ids, mask):
        """Returns the states of every token [B, S, 2 U] and the last ones [B, 2 U]."""
        mask = ops.cast(mask, "bool")
        x = ops.cast(ops.take(self.word_embeddings, ids, axis=0), "float32")
        sequence, forward, _, backward, _ = self.lstm(x, mask=mask)
        # Not the outputs themselves: Keras attached the mask to them.
        sequence = ops.where(mask[:, :, None], sequence, 0.0)
        return sequence, ops.concatenate([forward, backward], axis=-1)


def _texts(inputs):
    """Returns ids and mask [2 B, S] of first, then second texts of pairs, without [CLS]."""
    ids, mask, types = (inputs[f"input_{name}"] for name in ("word_ids", "mask", "type_ids"))
    second = ops.sum(mask * types, axis=1)
    first = ops.sum(mask, axis=1) - second
    starts = ops.concatenate([ops.ones_like(first), first])
    lengths = ops.concatenate([first - 1, second])
    positions = ops.arange(ops.shape(ids)[1], dtype=first.dtype)
    places = ops.minimum(starts[:, None] + positions, ops.shape(ids)[1] - 1)
    ids = ops.take_along_axis(ops.concatenate([ids, ids]), places, axis=1)
    return ids, positions < lengths[:, None]


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
            # As the LSTMs that read what they weigh.
            exact = dict(dtype="float32", autocast=False)
            self.mixture = self.add_weight((layers,), "zeros", name="mixture", **exact)
            self.scale = self.add_weight((), "ones", name="scale", **exact)

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
            ids, types = inputs["input_word_ids"], inputs["input_type_ids"]
            x = self.encoder.embeddings(ids, types, training=False)
            return ops.cast(ops.stop_gradient(x), "float32")
        layers = self.encoder(inputs, training=False)["encoder_outputs"]
        layers = [ops.cast(ops.stop_gradient(x), "float32") for x in layers]
        chosen = {
            "last": layers[-1:],
            "second_to_last": layers[-2:-1],
            "weighted_sum_all": layers,
        }.get(self.features, layers[-4:])
        if self.features == "concat_last_four":
            return ops.concatenate(chosen, axis=-1)
        if self.features.startswith("weighted"):
            weights = self.scale * ops.softmax(self.mixture)
            chosen = [weights[index] * x for index, x in enumerate(chosen)]
        return sum(chosen)

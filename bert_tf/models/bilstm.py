"""An encoder without transformer layers: a bidirectional LSTM on word embeddings."""

import keras
from keras import ops
from keras.initializers import TruncatedNormal

from bert_tf.config import BiLSTMConfig
from bert_tf.models.inputs import BertModel


def bidirectional_lstm(units: int, name: str, **arguments: bool) -> keras.layers.Bidirectional:
    """Returns an LSTM in both directions that returns the states of every token, in float32."""
    # XLA, which compiles the steps on GPUs, has no cuDNN.
    shared = dict(return_sequences=True, use_cudnn=False, dtype="float32")
    lstm = keras.layers.LSTM(units, name="lstm", **shared, **arguments)
    return keras.layers.Bidirectional(lstm, name=name, dtype="float32")


class BiLSTMEncoder(BertModel):
    """Word embeddings, a bidirectional LSTM, and a dense layer on its states.

    In the place of a `BertEncoder` it makes a `BertTaskModel` small and fast. It has no
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
            config.hidden_size, activation="relu", dtype="float32", name="dense"
        )
        self.build()

    def build(self, input_shape=None) -> None:
        config = self.config
        width = config.embedding_size or config.hidden_size
        self.word_embeddings = self.add_weight(
            name="word_embeddings",
            shape=(config.vocab_size, width),
            initializer=TruncatedNormal(stddev=config.initializer_range),
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
    """Returns ids and mask [2 B, S] of the first texts of pairs, then of the second ones.

    Every text is moved to the left, and has the [SEP] after it, but not the [CLS] before it.
    """
    ids, mask, types = (inputs[f"input_{name}"] for name in ("word_ids", "mask", "type_ids"))
    second = ops.sum(mask * types, axis=1)
    first = ops.sum(mask, axis=1) - second
    starts = ops.concatenate([ops.ones_like(first), first])
    lengths = ops.concatenate([first - 1, second])
    positions = ops.arange(ops.shape(ids)[1], dtype=first.dtype)
    places = ops.minimum(starts[:, None] + positions, ops.shape(ids)[1] - 1)
    ids = ops.take_along_axis(ops.concatenate([ids, ids]), places, axis=1)
    return ids, positions < lengths[:, None]

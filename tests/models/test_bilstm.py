"""The encoder that is a bidirectional LSTM."""

import dataclasses

import numpy as np
import tensorflow as tf

from bert_tf.config import BiLSTMConfig
from bert_tf.models.bilstm import BiLSTMEncoder
from bert_tf.models.task_model import BertTaskModel

SINGLE = BiLSTMConfig(
    12, 6, 1, 1, 4, max_position_embeddings=8, hidden_dropout_prob=0.0, embedding_size=5,
    initializer_range=0.5, bilstm="single",
)  # fmt: skip
SIAMESE = dataclasses.replace(SINGLE, bilstm="siamese")
# [CLS] text [SEP] text [SEP]
IDS = np.array([[2, 5, 6, 3, 7, 3, 0, 0], [2, 8, 3, 5, 9, 10, 11, 3]])
TYPES = np.array([[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 1, 1]])
INPUTS = {"input_word_ids": IDS, "input_mask": (IDS > 0) * 1, "input_type_ids": TYPES}


def states(encoder: BiLSTMEncoder, ids) -> tuple[np.ndarray, np.ndarray]:
    """What Keras' LSTM makes of one text without padding: its states, and the last ones."""
    x = encoder.word_embeddings.numpy()[np.array(ids)][None]
    sequence, forward, _, backward, _ = encoder.lstm(x)
    return sequence[0].numpy(), np.concatenate([forward[0], backward[0]])


def dense(encoder: BiLSTMEncoder, x: np.ndarray) -> np.ndarray:
    kernel, bias = encoder.dense.get_weights()
    return np.maximum(x @ kernel + bias, 0.0)


def test_a_text_is_read_without_its_padding():
    """Oracles: Keras' LSTM on each text alone; the dense layer in NumPy."""
    encoder = BiLSTMEncoder(SINGLE)
    outputs = encoder(INPUTS)
    for row, length in enumerate((6, 8)):
        sequence, last = states(encoder, IDS[row, :length])
        found = outputs["sequence_output"][row, :length]
        np.testing.assert_allclose(found, dense(encoder, sequence), atol=1e-5)
        np.testing.assert_allclose(outputs["pooled_output"][row], dense(encoder, last), atol=1e-5)


def test_a_pair_is_two_texts_that_one_lstm_reads():
    """Oracle: [h1, h2, h1 * h2, |h1 - h2|] of section 3.1, of the two texts read alone."""
    encoder = BiLSTMEncoder(SIAMESE)
    found = encoder(INPUTS)["pooled_output"]
    for row, texts in enumerate([([5, 6, 3], [7, 3]), ([8, 3], [5, 9, 10, 11, 3])]):
        a, b = (states(encoder, text)[1] for text in texts)
        compared = np.concatenate([a, b, a * b, np.abs(a - b)])
        np.testing.assert_allclose(found[row], dense(encoder, compared), atol=1e-5)


def test_it_is_the_encoder_of_a_task_model():
    """Oracles: the parameters of the paper's sizes; gradients for every weight."""
    sizes = dict(hidden_size=400, intermediate_size=150, embedding_size=300)
    lstm = 2 * 4 * 150 * (300 + 150 + 1)
    for config, states in ((SINGLE, 300), (SIAMESE, 1200)):
        model = BertTaskModel(dataclasses.replace(config, **sizes), 3)
        expected = 12 * 300 + lstm + 400 * (states + 1) + 3 * 401
        assert model.count_params() == expected
    model = BertTaskModel(SINGLE, 3, "tagger")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(model(INPUTS, training=True)))
    weights = [weight.value for weight in model.trainable_weights]
    assert all(gradient is not None for gradient in tape.gradient(loss, weights))

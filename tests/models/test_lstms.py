"""The models with LSTMs: the tagger on a frozen encoder, and the encoder that is an LSTM."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.base.choices import FEATURES
from bert_tf.config import BertConfig, BiLSTMConfig, preset_config
from bert_tf.models import lstms
from bert_tf.models.lstms import BiLSTMEncoder, FeatureTagger
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.task_model import BertEmbedder, BertTaskModel

CONFIG = BertConfig(12, 8, 5, 2, 16, max_position_embeddings=8, hidden_dropout_prob=0.1)
IDS = np.array([[2, 5, 6, 7, 3], [2, 8, 3, 0, 0]])
INPUTS = {"input_word_ids": IDS, "input_mask": (IDS > 0) * 1, "input_type_ids": IDS * 0}


@pytest.fixture(autouse=True)
def few_units(monkeypatch):
    """Saves the seconds that it takes to initialize 768 units."""
    monkeypatch.setattr(lstms, "_UNITS", 8)


def _expected(layers: list[np.ndarray], model: FeatureTagger) -> np.ndarray:
    """The features of `layers`: the embeddings and the outputs of all layers."""
    if model.features.startswith("weighted"):
        chosen = layers[1:] if model.features.endswith("all") else layers[-4:]
        weights = np.exp(model.mixture.numpy())
        weights = weights / weights.sum() * model.scale.numpy()
        return np.einsum("l,lbsh->bsh", weights, chosen)
    return {
        "embeddings": layers[0],
        "last": layers[-1],
        "second_to_last": layers[-2],
        "sum_last_four": np.sum(layers[-4:], axis=0),
        "concat_last_four": np.concatenate(layers[-4:], axis=-1),
    }[model.features]


@pytest.mark.parametrize("features", FEATURES)
def test_the_lstms_read_outputs_of_the_encoder(features):
    """Oracle: the encoder's outputs, combined in NumPy; it has no dropout in training, either."""
    model = FeatureTagger(CONFIG, 3, features)
    if features.startswith("weighted"):
        model.mixture.assign(np.arange(model.mixture.shape[0]) / 3)
        model.scale.assign(2.0)
    embedded = model.encoder.embeddings(IDS, IDS * 0).numpy()
    outputs = [x.numpy() for x in model.encoder(INPUTS)["encoder_outputs"]]
    read = model._lstm_inputs(INPUTS).numpy()
    np.testing.assert_allclose(read, _expected([embedded, *outputs], model), rtol=1e-5, atol=1e-5)
    seeded = INPUTS | {"dropout_seed": np.array([1, 2], np.int32)}
    assert model(seeded, training=True).shape == (2, 5, 3)


@pytest.mark.parametrize("features", [name for name in FEATURES if "weighted" in name])
def test_trained_weights_of_the_layers_stay_in_float32(features):
    """Oracle: the logits in float32, as far as an encoder in bfloat16 keeps them."""
    exact, mixed = (
        FeatureTagger(CONFIG, 3, features, dtype=x) for x in ("float32", "mixed_bfloat16")
    )
    mixed.set_weights(exact.get_weights())
    np.testing.assert_allclose(mixed(INPUTS), exact(INPUTS), atol=0.02)


def test_only_the_tagger_trains_and_padding_has_no_effect():
    """Oracle: the rows without padding; the names of weights with gradients."""
    model = FeatureTagger(CONFIG, 3, "weighted_sum_all")
    logits = model(INPUTS).numpy()
    alone = model({name: values[1:, :3] for name, values in INPUTS.items()}).numpy()
    np.testing.assert_allclose(logits[1:, :3], alone, rtol=1e-4, atol=1e-5)
    seeded = INPUTS | {"dropout_seed": np.array([1, 2], np.int32)}
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(seeded, training=True) ** 2)
    trained = model.trainable_weights
    assert all(g is not None for g in tape.gradient(loss, [w.value for w in trained]))
    own, paths = ({weight.path for weight in x} for x in (trained, model.weights))
    assert len(paths) == len(model.weights)
    assert paths - own == {weight.path for weight in model.encoder.weights}
    assert all(path.startswith("feature_tagger/") for path in own), own


def test_what_the_encoder_must_have():
    """Oracle: the number of layers."""
    small = BertConfig(12, 8, 3, 2, 16)
    with pytest.raises(ValueError, match="at least 4 layers, not of 3"):
        FeatureTagger(small, 3)
    with pytest.raises(ValueError, match="'first' is not one of embeddings, last"):
        FeatureTagger(small, 3, "first")


def test_the_configuration_makes_the_same_model():
    """Oracle: the weights' shapes."""
    model = FeatureTagger(CONFIG, 3, "sum_last_four")
    copy = FeatureTagger.from_config(model.get_config())
    assert [w.shape for w in copy.weights] == [w.shape for w in model.weights]
    assert isinstance(copy, keras.Model)


SINGLE = BiLSTMConfig(
    12, 6, 1, 1, 4, max_position_embeddings=8, hidden_dropout_prob=0.0, embedding_size=5,
    initializer_range=0.5, bilstm="single",
)  # fmt: skip
SIAMESE = dataclasses.replace(SINGLE, bilstm="siamese")
# [CLS] text [SEP] text [SEP]
PAIRS = np.array([[2, 5, 6, 3, 7, 3, 0, 0], [2, 8, 3, 5, 9, 10, 11, 3]])
TYPES = np.array([[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 1, 1]])
PAIR_INPUTS = {"input_word_ids": PAIRS, "input_mask": (PAIRS > 0) * 1, "input_type_ids": TYPES}


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
    outputs = encoder(PAIR_INPUTS)
    for row, length in enumerate((6, 8)):
        sequence, last = states(encoder, PAIRS[row, :length])
        found = outputs["sequence_output"][row, :length]
        np.testing.assert_allclose(found, dense(encoder, sequence), atol=1e-5)
        np.testing.assert_allclose(outputs["pooled_output"][row], dense(encoder, last), atol=1e-5)


def test_a_pair_is_two_texts_that_one_lstm_reads():
    """Oracle: [h1, h2, h1 * h2, |h1 - h2|] of section 3.1, of the two texts read alone."""
    encoder = BiLSTMEncoder(SIAMESE)
    found = encoder(PAIR_INPUTS)["pooled_output"]
    for row, texts in enumerate([([5, 6, 3], [7, 3]), ([8, 3], [5, 9, 10, 11, 3])]):
        a, b = (states(encoder, text)[1] for text in texts)
        compared = np.concatenate([a, b, a * b, np.abs(a - b)])
        np.testing.assert_allclose(found[row], dense(encoder, compared), atol=1e-5)


def test_it_is_the_encoder_of_a_task_model():
    """Oracles: the parameters of the paper's sizes; gradients for every weight; the messages."""
    lstm = 2 * 4 * 150 * (300 + 150 + 1)
    for name, states in (("bilstm", 300), ("bilstm-pairs", 1200)):
        model = BertTaskModel(preset_config(name, 12), 3)
        expected = 12 * 300 + lstm + 400 * (states + 1) + 3 * 401
        assert model.count_params() == expected
    model = BertTaskModel(SINGLE, 3, "tagger")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(model(PAIR_INPUTS, training=True)))
    weights = [weight.value for weight in model.trainable_weights]
    assert all(gradient is not None for gradient in tape.gradient(loss, weights))
    with pytest.raises(ValueError, match="a siamese BiLSTM has no outputs for tokens"):
        BertTaskModel(SIAMESE, 3, "tagger")
    for model_type in (BertPretrainer, BertEmbedder):
        with pytest.raises(ValueError, match="a BiLSTM has no BERT layers"):
            model_type(SINGLE)

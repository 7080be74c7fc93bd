"""The tagger on the outputs of a frozen encoder."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.choices import FEATURES
from bert_tf.config import BertConfig
from bert_tf.models import feature_tagger
from bert_tf.models.feature_tagger import FeatureTagger

CONFIG = BertConfig(12, 8, 5, 2, 16, max_position_embeddings=8, hidden_dropout_prob=0.1)
IDS = np.array([[2, 5, 6, 7, 3], [2, 8, 3, 0, 0]])
INPUTS = {"input_word_ids": IDS, "input_mask": (IDS > 0) * 1, "input_type_ids": IDS * 0}


@pytest.fixture(autouse=True)
def few_units(monkeypatch):
    """Saves the seconds that it takes to initialize 768 units."""
    monkeypatch.setattr(feature_tagger, "_UNITS", 8)


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
    """Oracle: the encoder's outputs, combined in NumPy."""
    model = FeatureTagger(CONFIG, 3, features)
    if features.startswith("weighted"):
        model.mixture.assign(np.arange(model.mixture.shape[0]) / 3)
        model.scale.assign(2.0)
    embedded = model.encoder.embeddings(IDS, IDS * 0).numpy()
    outputs = [x.numpy() for x in model.encoder(INPUTS)["encoder_outputs"]]
    read = model._lstm_inputs(INPUTS).numpy()
    np.testing.assert_allclose(read, _expected([embedded, *outputs], model), rtol=1e-5, atol=1e-5)


def test_only_the_tagger_trains_and_padding_has_no_effect():
    """Oracle: the rows without padding; the names of weights with gradients."""
    model = FeatureTagger(CONFIG, 3, "weighted_sum_all")
    logits = model(INPUTS).numpy()
    alone = model({name: values[1:, :3] for name, values in INPUTS.items()}).numpy()
    np.testing.assert_allclose(logits[1:, :3], alone, rtol=1e-4, atol=1e-5)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(
            model(INPUTS | {"dropout_seed": np.array([1, 2], np.int32)}, training=True) ** 2
        )
    trained = model.trainable_weights
    assert all(g is not None for g in tape.gradient(loss, [w.value for w in trained]))
    assert len({weight.path for weight in model.weights}) == len(model.weights)
    assert {w.path for w in model.weights} - {w.path for w in trained} == {
        w.path for w in model.encoder.weights
    }
    assert all(w.path.startswith("feature_tagger/") for w in trained), [w.path for w in trained]


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

"""Models of Keras 3 from raw strings, with `BertPreprocessor` and `BertEncoder`."""

import dataclasses
import pathlib
import re

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from support import save_checkpoint, two_replicas

from bert_tf.config import BertConfig, ModelSpec
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.models.inputs import INPUTS
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.runs.run import Run
from bert_tf.text.bert_preprocessor import BertPreprocessor
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "keras.md"
VOCAB = Vocabulary((*SPECIAL_TOKENS, *"abcde"))
# Without dropout, so that the loss of so small a model falls steadily.
CONFIG = BertConfig(len(VOCAB), 16, 1, 2, 32, "gelu", 0.0, 0.0)
TEXTS = tf.constant(["b a", "c a", "b c", "a b"] * 4)
BEGINS_WITH_B = tf.constant([1, 0, 1, 0] * 4)
DATASET = tf.data.Dataset.from_tensor_slices((TEXTS, BEGINS_WITH_B)).batch(16)


@pytest.fixture(scope="module")
def preprocessor() -> BertPreprocessor:
    return BertPreprocessor(VOCAB, lower_case=True, seq_length=6)


def text_input(name: str = "text"):
    return keras.Input([], dtype="string", name=name)


def classifier(encoder: BertEncoder, text, inputs) -> keras.Model:
    logits = keras.layers.Dense(2, dtype="float32")(encoder(inputs)["pooled_output"])
    return keras.Model(text, logits)


def fit(model: keras.Model, data: tf.data.Dataset, jit_compile: bool = False) -> list[float]:
    """Trains for 20 steps and returns the mean losses of the first and the last 5."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(3e-3), loss, jit_compile=jit_compile)
    data = data.repeat()
    history = model.fit(data, epochs=4, steps_per_epoch=5, shuffle=False, verbose=0).history
    return history["loss"]


def ids_model() -> tuple[keras.Model, BertEncoder]:
    encoder = BertEncoder(CONFIG)
    inputs = {name: keras.Input([None], dtype="int32", name=name) for name in INPUTS}
    return classifier(encoder, inputs, inputs), encoder


def values(model: keras.Model) -> list[np.ndarray]:
    return [weight.numpy() for weight in model.trainable_weights]


def learn(preprocessor) -> tuple[keras.Model, list[np.ndarray], list[float]]:
    """Trains a model on raw strings; returns it, its weights before, and the losses."""
    keras.utils.set_random_seed(0)
    text = text_input()
    model = classifier(BertEncoder(CONFIG), text, preprocessor(text))
    before = values(model)
    return model, before, fit(model, DATASET)


@pytest.fixture(scope="module")
def learned(preprocessor):
    return learn(preprocessor)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
@pytest.mark.slow
def test_learns_from_raw_strings(preprocessor, learned, policy):
    """Oracles: the loss falls, and every weight changes."""
    keras.config.set_dtype_policy(policy)
    model, before, losses = learned if policy == "float32" else learn(preprocessor)
    assert losses[-1] < 0.8 * losses[0]
    for weight, old in zip(model.trainable_weights, before, strict=True):
        assert not np.array_equal(weight, old), weight.path


@pytest.mark.slow
def test_a_model_of_pairs_is_frozen_saved_and_exported(preprocessor, tmp_path):
    """Oracles: the outputs of the encoder called with packed inputs; the two weights of a head."""
    encoder = BertEncoder(CONFIG)
    texts = [text_input("text"), text_input("text_b")]
    model = classifier(encoder, texts, preprocessor(*texts))
    others = tf.reverse(TEXTS, [0])
    expected = model.layers[-1](encoder(preprocessor(TEXTS, others))["pooled_output"])
    inputs = [TEXTS, others]
    np.testing.assert_allclose(model(inputs), expected, atol=1e-6)

    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(inputs), expected, atol=1e-6)
    assert len(loaded.trainable_weights) == len(model.trainable_weights)
    encoder.trainable = False
    left, head = ([x.path for x in y] for y in (model.trainable_weights, model.layers[-1].weights))
    assert left == head

    model.export(tmp_path / "exported", verbose=False)
    serving = tf.saved_model.load(str(tmp_path / "exported")).signatures["serving_default"]
    (outputs,) = serving(text=TEXTS[:3], text_b=others[:3]).values()
    np.testing.assert_allclose(outputs, expected[:3], atol=1e-6)


@pytest.mark.slow
def test_several_replicas_train_from_a_mapped_dataset(preprocessor, learned):
    """Oracle: the weights after the same steps on one device, on raw strings."""
    # Collective operations of several strategies in one process disturb each other.
    strategy = two_replicas()
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model, _ = ids_model()
        fit(model, preprocessor.dataset(TEXTS, BEGINS_WITH_B, batch_size=16))
    for one, two in zip(values(learned[0]), values(model), strict=True):
        np.testing.assert_allclose(one, two, atol=2e-3)
    text = text_input()
    whole = keras.Model(text, model(preprocessor(text)))
    np.testing.assert_allclose(whole(TEXTS), model(preprocessor(TEXTS)), atol=1e-6)


@pytest.mark.slow
def test_padding_is_skipped_unless_xla_compiles_the_step(preprocessor, learned):
    """Oracles: the weights after the same steps with XLA, which computes padding; outputs of 0."""
    keras.utils.set_random_seed(0)
    model, fixed = ids_model()
    data = preprocessor.dataset(TEXTS, BEGINS_WITH_B, batch_size=16, drop_remainder=True)
    fit(model, data, jit_compile=True)
    for one, two in zip(values(learned[0]), values(model), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-4)
    (skipping,) = (layer for layer in learned[0].layers if isinstance(layer, BertEncoder))
    assert (skipping.skips_padding, fixed.skips_padding) == (True, None)
    skipping = BertEncoder.from_config(skipping.get_config())
    inputs = preprocessor("a b")
    at_padding = np.equal(inputs["input_mask"], 0)
    for encoder, is_zero in ((skipping, True), (fixed, False)):
        outputs = encoder(inputs)["sequence_output"].numpy()[at_padding]
        assert np.all(outputs == 0) == is_zero and len(outputs) == 2


@pytest.mark.slow
def test_the_examples_of_the_page_on_keras_work(tmp_path, monkeypatch):
    """Oracles: two forms of a model give the same logits; what is frozen, loaded or exported."""
    if not PAGE.exists():
        pytest.skip("the tests run without the checkout")
    monkeypatch.chdir(tmp_path)
    words = "a moving film waste of time great fun so dull".split()
    vocab = Vocabulary((*SPECIAL_TOKENS, *words))
    config = dataclasses.replace(
        CONFIG, vocab_size=len(vocab), max_position_embeddings=64, num_hidden_layers=2
    )
    Run("run").write(ModelSpec(config, vocab, True))
    save_checkpoint("run", BertPretrainer(config), step=1)
    found, frozen, logits = {}, [], []
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S):
        if "encoder.trainable = False" in code:
            frozen += [weight.numpy() for weight in found["encoder"].weights]
        exec(code, found)
        if "encoder.trainable = False" in code:
            assert frozen and all(map(np.array_equal, frozen, found["encoder"].weights))
        texts = np.array(pd.Series(found["texts"]), dtype=object)
        if "model.save" in code:
            logits = [found[name].predict(texts) for name in ("model", "loaded")]
    serving = tf.saved_model.load("serving").signatures["serving_default"]
    logits += serving(text=tf.constant(texts)).values()
    for other in logits[1:]:
        np.testing.assert_allclose(other, logits[0], atol=1e-6)
    expected = found["classifier"].predict(found["preprocessor"].dataset(texts))
    np.testing.assert_allclose(found["whole"].predict(texts), expected, atol=1e-6)
    numbers = {"text": texts, "stars": found["numbers"]}
    others = numbers | {"stars": -found["numbers"]}
    assert np.abs(found["mixed"].predict(numbers) - found["mixed"].predict(others)).max() > 0.1
    assert found["custom"].predict(texts).shape == (32, 2)

"""Dropout: the statistics of its masks, and how seeds decide them."""

import contextlib
import dataclasses
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import calls_of

from bert_tf.base.tensorflow_ops import compiling_for_gpu
from bert_tf.config import BertConfig
from bert_tf.layers import dropout
from bert_tf.layers.dropout import Dropout, DropoutSeeds
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.models.task_model import BertTaskModel

SEED = np.array([11, -12], np.int32)
SHAPE = (64, 128, 256)  # 2 million elements: the standard error of a mean is at most 0.00035
CONFIG = BertConfig(50, 64, 3, 2, 64, max_position_embeddings=64)
IDS = np.full((4, 32), 7, np.int32)
INPUTS = {"input_word_ids": IDS, "input_mask": IDS // IDS, "input_type_ids": IDS * 0}


def in_training(layer: Dropout, seed=SEED, shape=SHAPE) -> np.ndarray:
    """What a layer makes of ones."""
    ones = np.ones(shape, np.float32)
    return np.asarray(layer(ones, seeds=DropoutSeeds(seed), training=True), np.float64)


def dropped(rate: float, seed=SEED, shape=SHAPE) -> np.ndarray:
    """Where a layer drops, as float64 0 or 1."""
    return (in_training(Dropout(rate), seed, shape) == 0).astype(np.float64)


@pytest.fixture(params=[contextlib.nullcontext, compiling_for_gpu])
def form(request):
    """The form for CPUs and TPUs, and the one for GPUs."""
    with request.param():
        yield


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("rate", [0.05, 0.1, 0.3, 0.5, 0.9])
def test_rate_and_expectation(rate):
    """Oracle: the binomial distribution, to five standard errors; the input's own mean."""
    scale = dropout.dropout_scale(rate)
    assert 1 - 1 / scale == pytest.approx(rate, abs=5e-4)  # the actual rate
    output = in_training(Dropout(rate))
    error = 5 * np.sqrt(rate * (1 - rate) / output.size)
    assert (output == 0).mean() == pytest.approx(rate, abs=error)
    assert output.mean() == pytest.approx(1, abs=error * scale)
    np.testing.assert_allclose(output[output > 0], scale, rtol=1e-6)


def correlation(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.corrcoef(x.ravel(), y.ravel())[0, 1])


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_elements_are_independent(rate):
    """Oracle: 0, to five standard errors of a correlation, 1 / sqrt(n)."""
    mask = dropped(rate)
    half = SHAPE[0] // 2  # row r and row r + half share their words
    pairs = [(mask[:half], mask[half:])]
    pairs += [(mask[..., :-shift], mask[..., shift:]) for shift in (1, 2, 3, 4, 8, 64)]
    pairs += [(mask[:, :-1], mask[:, 1:]), (mask[:-1], mask[1:])]
    for x, y in pairs:
        assert abs(correlation(x, y)) < 5 / np.sqrt(x.size)


@pytest.mark.usefixtures("form")
def test_seeds_decide():
    """Oracle: the mask of the same seed; no correlation with others, to five standard errors."""
    mask = dropped(0.1)
    np.testing.assert_array_equal(mask, dropped(0.1))
    others = [DropoutSeeds(SEED, number).next() for number in (1, 2, 36)]
    others += [SEED + np.array(step, np.int32) for step in ([0, 1], [1, 0], [0, 2])]
    for seed in others:
        assert abs(correlation(mask, dropped(0.1, np.asarray(seed)))) < 5 / np.sqrt(mask.size)


@pytest.mark.parametrize("shape", [(3, 5), (7,), (800, 16, 512, 512)])
def test_a_gpu_draws_what_the_published_hash_gives(shape):
    """Oracle: pcg3d in Python's integers, for the last elements; XLA draws no others."""

    def mixed(x, y, z):
        x = (x + y * z) % 2**32
        y = (y + z * x) % 2**32
        return x, y, (z + x * y) % 2**32

    @tf.function(jit_compile=True, autograph=False)
    def last():
        with compiling_for_gpu():
            return dropout.dropout_mask(shape, 0.3, tf.constant(SEED))[(-1,) * (len(shape) - 1)]

    found, size = last().numpy()[-5:], math.prod(shape)
    for number, kept in zip(range(size - 5, size), found, strict=True):
        words = [(int(x) * 1664525 + 1013904223) % 2**32 for x in (number, *SEED)]
        word, _, _ = mixed(*(x ^ x >> 16 for x in mixed(*words)))
        assert kept == (word >> 16 >= round(0.3 * 2**16))


def test_seeds_are_numbered_in_order():
    """Oracle: the formula in 64-bit integers, cut to 32 bits; the first seed is the call's own."""
    seeds = DropoutSeeds(SEED)
    found = [np.asarray(seeds.next()) for _ in range(40)]
    expected = (int(SEED[0]) + np.arange(40, dtype=np.int64) * 0x9E3779B1).astype(np.int32)
    np.testing.assert_array_equal(found, np.stack([expected, np.full(40, SEED[1])], axis=1))
    np.testing.assert_array_equal(found[0], SEED)
    assert seeds.number == 40
    assert seeds.shifted(1).next()[1] == SEED[1] + 1 and seeds.number == 40


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("shape", [(1, 5), (3, 4, 5), (7,), (2, 1)])
@pytest.mark.slow
def test_any_shape(shape):
    """Oracle: the shape; the rate of every element over many seeds, to five standard errors."""
    masks = np.stack([dropped(0.5, np.array([n, 3], np.int32), shape) for n in range(200)])
    assert masks.shape == (200, *shape)
    assert np.abs(masks.mean(axis=0) - 0.5).max() < 5 * np.sqrt(0.25 / 200)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_keeps_its_type(dtype):
    """Oracle: the mask of float32, and the scale to the type's own precision."""
    layer = Dropout(0.1, dtype=dtype)
    output = layer(keras.ops.ones((64, 64), dtype), seeds=DropoutSeeds(SEED), training=True)
    assert keras.backend.standardize_dtype(output.dtype) == dtype
    expected = (1 - dropped(0.1, shape=(64, 64))) / 0.9
    np.testing.assert_allclose(np.asarray(keras.ops.cast(output, "float32")), expected, rtol=4e-3)


def test_nothing_is_dropped_outside_of_training():
    """Oracle: the input itself. Only training needs seeds."""
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(Dropout(0.5)(x), x)
    np.testing.assert_array_equal(Dropout(0.0)(x, training=True), x)
    with pytest.raises(ValueError, match="dropout needs a seed in training"):
        Dropout(0.5)(x, training=True)


def test_round_trip():
    """Oracle: the masks of the original layer."""
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(Dropout(0.3)))
    np.testing.assert_array_equal(in_training(copy), in_training(Dropout(0.3)))


@pytest.mark.parametrize("rate", [0.0, 0.1])
@pytest.mark.parametrize("rematerialize", ["none", "layers"])
def test_every_dropout_of_a_model_has_its_number(rate, rematerialize, monkeypatch):
    """Oracle: embeddings 0, attention, hidden, output of each layer; a head has another seed."""
    masks = calls_of(monkeypatch, dropout, "dropout_mask")
    config = dataclasses.replace(CONFIG, attention_probs_dropout_prob=rate)
    model = BertTaskModel(config, 2, encoder=BertEncoder(config, rematerialize))
    model(INPUTS | {"dropout_seed": SEED}, training=True)
    numbers = [n for n in range(1 + 3 * 3) if rate or n % 3 != 1]
    expected = [DropoutSeeds(SEED, number).next() for number in numbers]
    *found, head = [np.asarray(mask.args[2]) for mask in masks]
    np.testing.assert_array_equal(found, expected)
    assert not (head == np.stack(found)).all(axis=1).any()


@pytest.mark.parametrize("make", [BertEncoder, lambda config: BertTaskModel(config, 2)])
def test_a_models_seed_decides_its_outputs(make):
    """Oracle: equal outputs for equal seeds only; without a seed, the model's own generator."""
    model = make(CONFIG)

    def output(**seed):
        outputs = model(INPUTS | seed, training=True)
        return np.asarray(outputs["sequence_output"] if isinstance(outputs, dict) else outputs)

    first = output(dropout_seed=SEED)
    np.testing.assert_array_equal(output(dropout_seed=SEED), first)
    assert np.abs(output(dropout_seed=SEED + 1) - first).max() > 1e-3
    assert np.abs(output() - output()).max() > 1e-3
    (generator,) = (v for v in model.variables if v.path.endswith("seed_generator_state"))
    assert generator.numpy()[1] == 2  # only the two calls without a seed


def test_a_user_fits_a_model_without_seeds():
    """Oracle: every step draws one seed from the model's generator, and changes the weights."""
    model = BertTaskModel(dataclasses.replace(CONFIG, num_hidden_layers=1), 2)
    before = model.head.dense_kernel.numpy()
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
    model.fit(INPUTS, np.array([0, 1, 0, 1]), batch_size=2, epochs=2, verbose=0)
    assert model.encoder.seed_generator.state.numpy()[1] == 2 * 2
    assert np.abs(model.head.dense_kernel.numpy() - before).max() > 0

"""The functions with gradients of their own, against automatic ones of the plain formulas."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from bert_tf.layers.attention import _attend
from bert_tf.layers.dense import activated_dense, dense, gelu, gelu_new, scores
from bert_tf.layers.normalization import LayerNormalization, _normalize

GENERATOR = np.random.default_rng(0)


def normal(*shape: int) -> tf.Tensor:
    return tf.constant(GENERATOR.normal(0.3, 1.5, shape), tf.float32)


def value_and_gradients(function, *arguments):
    """Of float32 arguments: the value and the gradients of a weighted sum of it."""
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        value = function(*arguments)
        weights = tf.cos(tf.reshape(tf.range(tf.size(value), dtype=tf.float32), value.shape))
        total = tf.reduce_sum(value * weights)
    return value, *tape.gradient(total, arguments)


def plain_normalization(x, gamma, beta):
    mean, variance = tf.nn.moments(x, axes=-1, keepdims=True)
    return (x - mean) / tf.sqrt(variance + 1e-3) * gamma + beta


MASK = tf.where(GENERATOR.random((2, 1, 1, 7)) > 0.3, 0.0, -1e9)
DROPOUT = tf.where(GENERATOR.random((2, 3, 7, 7)) > 0.2, 1.25, 0.0)


def attention(recompute: bool):
    """A case of `_attend`, with a dropout that the seed does not change."""

    def drop(probabilities, seed):
        return probabilities * DROPOUT

    def own(query, key, value):
        return _attend(query, key, value, MASK, tf.constant([1, 2]), drop, recompute)

    def plain(query, key, value):
        exponentials = tf.exp(query @ tf.transpose(key, (0, 1, 3, 2)) + MASK)
        probabilities = exponentials / tf.reduce_sum(exponentials, axis=-1, keepdims=True)
        return (probabilities * DROPOUT) @ value

    return own, plain, [normal(2, 3, 7, 4) for _ in range(3)]


def plain_gelu(x):
    return x * 0.5 * (1 + tf.math.erf(x / np.sqrt(2)))


def plain_gelu_new(x):
    return 0.5 * x * (1 + tf.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def activated(name: str, plain):
    """A case of `activated_dense`."""
    arguments = (normal(2, 5, 3) * 2, normal(3, 4), normal(4))
    own = functools.partial(activated_dense, name)
    return own, lambda x, w, b: plain(x) @ w + b, arguments


CASES = {
    "dense of gelu": activated("gelu", plain_gelu),
    "dense of gelu_new": activated("gelu_new", plain_gelu_new),
    "dense of relu": activated("relu", tf.nn.relu),
    "dense": (dense, lambda x, w, b: x @ w + b, (normal(2, 5, 3), normal(3, 4), normal(4))),
    "scores": (
        scores,
        lambda x, table, b: x @ tf.transpose(table) + b,
        (normal(5, 3), normal(7, 3), normal(7)),
    ),
    "gelu": (gelu, plain_gelu, (normal(50, 4) * 2,)),
    "gelu_new": (gelu_new, plain_gelu_new, (normal(50, 4) * 2,)),
    "normalization": (
        lambda x, gamma, beta: _normalize(x, gamma, beta, 1e-3),
        plain_normalization,
        (normal(2, 5, 6), normal(6), normal(6)),
    ),
    "attention": attention(recompute=False),
    "recomputed attention": attention(recompute=True),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("graph", [False, True])
def test_values_and_gradients(name, graph):
    """Oracle: TensorFlow's gradients of the plain formula."""
    function, formula, arguments = CASES[name]

    def run(*arguments):
        return value_and_gradients(function, *arguments)

    found = (tf.function(run) if graph else run)(*arguments)
    for x, expected in zip(found, value_and_gradients(formula, *arguments), strict=True):
        np.testing.assert_allclose(x, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["gelu", "gelu_new", "normalization"])
def test_bfloat16_is_rounded_once(name):
    """Oracle: float32 values of the same bfloat16 arguments, to bfloat16's precision."""
    function, _, arguments = CASES[name]
    half = [ops.cast(x, "bfloat16") for x in arguments]
    if name == "normalization":
        half[1:] = arguments[1:]  # The parameters stay in float32.
    expected = function(*(ops.cast(x, "float32") for x in half))
    found = function(*half)
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
    difference = np.abs(np.asarray(ops.cast(found, "float32")) - expected)
    assert (difference <= 2**-8 * np.abs(expected) + 1e-6).all()


def test_gelu_keeps_its_small_values_in_bfloat16():
    """Oracle: float64 x Phi(x) by math.erfc; where erf rounds to -1, 1 + erf would give 0."""
    import math

    x = tf.cast(tf.linspace(-4.0, 4.0, 81), tf.bfloat16)
    expected = [v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in x.numpy().astype(np.float64)]
    np.testing.assert_allclose(gelu(x).numpy().astype(np.float64), expected, rtol=2**-8, atol=1e-6)


def test_normalization_is_that_of_keras():
    """Oracle: keras.layers.LayerNormalization with the same weights; the names of the weights."""
    ours = LayerNormalization(epsilon=1e-12, name="norm")
    theirs = keras.layers.LayerNormalization(epsilon=1e-12, name="norm")
    x = normal(4, 5, 16)
    ours.build(x.shape)
    theirs.build(x.shape)
    assert [w.path for w in ours.weights] == [w.path for w in theirs.weights]
    weights = [GENERATOR.normal(size=16) for _ in range(2)]
    ours.set_weights(weights)
    theirs.set_weights(weights)
    np.testing.assert_allclose(ours(x), theirs(x), atol=1e-5)

"""The fast forms of `fused` against the formulas of textbooks: values and gradients."""

import contextlib
import functools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from bert_tf.base.tensorflow_ops import compiling_for_gpu
from bert_tf.layers import dropout as dropouts
from bert_tf.layers import fused
from bert_tf.layers.layer import LayerNormalization

pytestmark = pytest.mark.usefixtures("optimized_graphs")

GENERATOR = np.random.default_rng(0)
SEED = np.array([5, -6], np.int32)
LABELS = GENERATOR.integers(0, 11, (3, 4)).astype(np.int32)
BIAS = tf.where(GENERATOR.random((2, 1, 1, 7)) > 0.3, 0.0, -1e9)


def normal(*shape: int, deviation: float = 1.5) -> tf.Tensor:
    return tf.constant(GENERATOR.normal(0.3, deviation, shape), tf.float32)


def dense_weights(width: int, outputs: int) -> tuple[tf.Tensor, ...]:
    return normal(width, outputs), normal(outputs)


ACTIVATIONS = {
    "gelu": functools.partial(keras.activations.gelu, approximate=False),
    "gelu_new": functools.partial(keras.activations.gelu, approximate=True),
    "relu": keras.activations.relu,
}


def plain_dense(x, kernel, bias):
    return x @ kernel + bias


def plain_feed_forward(name, x, in_kernel, in_bias, out_kernel, out_bias):
    return plain_dense(ACTIVATIONS[name](plain_dense(x, in_kernel, in_bias)), out_kernel, out_bias)


def plain_layer_norm(x, gamma, beta, epsilon):
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, beta, gamma, epsilon)


def plain_attention(query, key, value, bias, rate, seed):
    shares = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) + bias)
    return (dropouts.plain_dropout(shares, rate, seed) if rate else shares) @ value


def plain_cross_entropy(logits, labels):
    return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)


def case(fast, plain, arguments: tuple, options: dict | None = None, **shared) -> tuple:
    """The fast form with its own options, the plain form, and what gradients are compared for."""
    fast = functools.partial(fast, **shared, **(options or {}))
    return fast, functools.partial(plain, **shared), arguments


QUERY_KEY_VALUE = tuple(normal(2, 3, 7, 4) for _ in range(3))
LOGITS = (normal(3, 4, 11, deviation=30.0),)
KEPT, RECOMPUTED = {}, {"recompute": True}
CASES = {
    "dense": case(fused.dense, plain_dense, (normal(2, 5, 3), *dense_weights(3, 4))),
    "tied_logits": case(
        fused.tied_logits,
        lambda x, table, bias: x @ tf.transpose(table) + bias,
        (normal(5, 3), normal(7, 3), normal(7)),
    ),
}
for name in ("gelu", "gelu_new"):
    forms = fused.activation(name), ACTIVATIONS[name]
    CASES[name] = case(*forms, (normal(50, 4, deviation=3),))
for name in ("gelu", "gelu_new", "relu"):
    forms = (functools.partial(x, name) for x in (fused.feed_forward, plain_feed_forward))
    arguments = normal(2, 5, 3, deviation=3.0), *dense_weights(3, 7), *dense_weights(7, 4)
    CASES[f"feed_forward of {name}"] = case(*forms, arguments)
CASES["layer_norm"] = case(
    fused.layer_norm, plain_layer_norm, (normal(2, 5, 6), normal(6), normal(6)), epsilon=1e-3
)
for options in (KEPT, RECOMPUTED):
    forms, shared = (dropouts.dropout, dropouts.plain_dropout), dict(rate=0.3, seed=SEED)
    CASES[f"dropout, {options}"] = case(*forms, (normal(5, 4, 3),), options, **shared)
    forms = fused.cross_entropy, plain_cross_entropy
    CASES[f"cross_entropy, {options}"] = case(*forms, LOGITS, options, labels=LABELS)
for rate, options in ((0.0, KEPT), (0.2, KEPT), (0.2, RECOMPUTED)):
    forms, shared = (fused.fast_attention, plain_attention), dict(bias=BIAS, rate=rate, seed=SEED)
    CASES[f"attention, {rate}, {options}"] = case(*forms, QUERY_KEY_VALUE, options, **shared)


def value_and_gradients(function, *arguments) -> list[tf.Tensor]:
    """The value of a function, and the gradients of a weighted sum of it."""
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        value = function(*arguments)
        weights = tf.cos(tf.reshape(tf.range(tf.size(value), dtype=tf.float32), value.shape))
        total = tf.reduce_sum(tf.cast(value, tf.float32) * weights)
    return [value, *tape.gradient(total, arguments)]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("graph", "form"),
    [(False, contextlib.nullcontext), (True, contextlib.nullcontext), (True, compiling_for_gpu)],
)
@pytest.mark.slow
def test_values_and_gradients(name, graph, form):
    """Oracle: the formula and TensorFlow's automatic gradients of it."""
    function, formula, arguments = CASES[name]

    def run(*arguments):
        return value_and_gradients(function, *arguments)

    with form():
        found = (tf.function(run) if graph else run)(*arguments)
        expected = value_and_gradients(formula, *arguments)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=2e-5)


def in_bfloat16(name: str) -> tuple:
    function, formula, arguments = CASES[name]
    half = [tf.cast(x, tf.bfloat16) for x in arguments]
    if name == "layer_norm":
        half[1:] = arguments[1:]  # The parameters stay in float32.
    return function, formula, half


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_in_bfloat16(name):
    """Oracle: the formula in float32, of the same bfloat16 arguments, to bfloat16's 8 bits."""
    function, formula, half = in_bfloat16(name)
    expected = value_and_gradients(formula, *(tf.cast(x, tf.float32) for x in half))
    for x, y in zip(value_and_gradients(function, *half), expected, strict=True):
        size = np.abs(y).max()
        np.testing.assert_allclose(tf.cast(x, tf.float32), y, rtol=0.05, atol=0.02 * size)


@pytest.mark.parametrize("name", ["gelu", "gelu_new", "layer_norm"])
def test_bfloat16_is_rounded_once(name):
    """Oracle: float32 values of the same bfloat16 arguments, to bfloat16's precision."""
    function, _, half = in_bfloat16(name)
    expected = function(*(ops.cast(x, "float32") for x in half))
    found = function(*half)
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
    difference = np.abs(np.asarray(ops.cast(found, "float32")) - expected)
    assert (difference <= 2**-8 * np.abs(expected) + 1e-6).all()


@pytest.mark.parametrize("name", ["gelu", "gelu_new"])
def test_the_forms_of_gelu(name):
    """Oracle: NumPy's and math's float64 formulas of erf and tanh."""
    x = np.linspace(-4, 4, 101)
    erf = [v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in x]
    tanh = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    expected = {"gelu": np.array(erf), "gelu_new": tanh}
    found = fused.activation(name)(x.astype(np.float32))
    np.testing.assert_allclose(found, expected[name], atol=1e-6)
    assert np.abs(expected["gelu"] - tanh).max() > 1e-4


def test_normalization_is_that_of_keras():
    """Oracle: keras.layers.LayerNormalization with the same weights, and their names."""
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

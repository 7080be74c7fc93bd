"""Dense layers, and the activations of `bert_config.json`, with few passes over memory."""

import math
from collections.abc import Callable

import keras
from keras import ops

from bert_tf.layers.initializers import truncated_normal


def add_dense(layer: keras.layers.Layer, name: str, shape: tuple[int, int], stddev: float):
    """Adds `<name>_kernel` [in, out], truncated normal, and `<name>_bias` [out], 0, to a layer."""
    kernel = layer.add_weight(
        name=f"{name}_kernel", shape=shape, initializer=truncated_normal(stddev)
    )
    return kernel, layer.add_weight(name=f"{name}_bias", shape=shape[1:], initializer="zeros")


def dense(x, kernel, bias):
    """`x` [..., in], `kernel` [in, out], `bias` [out] -> [..., out].

    A product of two matrices, because that is what the CPU's and the TPU's matmul are fast at.
    """
    *batch, width = ops.shape(x)
    # The values, because a function with its own gradient must not see variables.
    kernel, bias = ops.copy(kernel), ops.copy(bias)
    output = _affine(ops.reshape(x, (-1, width)), kernel, bias)
    return ops.reshape(output, (*batch, kernel.shape[-1]))


@ops.custom_gradient
def _affine(x, kernel, bias):
    def gradient(upstream):
        x_gradient = ops.matmul(upstream, ops.transpose(kernel))
        return x_gradient, ops.matmul(ops.transpose(x), upstream), _sum_of_rows(upstream)

    return ops.matmul(x, kernel) + bias, gradient


def scores(x, table, bias):
    """`x` [N, E], `table` [V, E], `bias` [V] -> [N, V]: the products of all rows of both."""
    return _scores(x, table, ops.copy(bias))


@ops.custom_gradient
def _scores(x, table, bias):
    def gradient(upstream):
        # The gradient of a transposed table would have to be transposed back: a slow pass.
        table_gradient = ops.matmul(ops.transpose(upstream), x)
        return ops.matmul(upstream, table), table_gradient, _sum_of_rows(upstream)

    return ops.matmul(x, ops.transpose(table)) + bias, gradient


def _sum_of_rows(x):
    # On the CPU a sum over rows is a slow reduction, but a fast product.
    return ops.matmul(ops.ones((1, ops.shape(x)[0]), x.dtype), x)[0]


def activation(name: str) -> Callable:
    """The function of a `hidden_act`: "gelu" is exact (erf), "gelu_new" the tanh approximation."""
    return {"gelu": gelu, "gelu_new": gelu_new}.get(name) or keras.activations.get(name)


@ops.custom_gradient
def gelu(x):
    """x P(X <= x) of a normal X: Gaussian Error Linear Units (arXiv:1606.08415).

    In float32 inside, whatever the type of x: for bfloat16, Keras' own takes three times as long
    on the CPU. The derivative is computed at once and kept in place of x.
    """
    scaled = ops.cast(x, "float32") * math.sqrt(0.5)
    twice = ops.erf(scaled) + 1.0
    density = scaled * ops.exp(-ops.square(scaled)) * math.sqrt(1 / math.pi)
    return _with_derivative(x, scaled * math.sqrt(0.5) * twice, twice * 0.5 + density)


@ops.custom_gradient
def gelu_new(x):
    """The tanh approximation of `gelu`, computed in the same way."""
    wide = ops.cast(x, "float32")
    square = ops.square(wide)
    slope = math.sqrt(2 / math.pi)
    tanh = ops.tanh(wide * (square * (slope * 0.044715) + slope))
    twice, half = tanh + 1.0, wide * 0.5
    inner = square * (slope * 3 * 0.044715) + slope
    return _with_derivative(x, half * twice, 0.5 * twice + half * (1 - ops.square(tanh)) * inner)


def _with_derivative(x, value, derivative):
    derivative = ops.cast(derivative, x.dtype)

    def gradient(upstream):
        return upstream * derivative

    return ops.cast(value, x.dtype), gradient

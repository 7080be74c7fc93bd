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


def activated_dense(name: str, x, kernel, bias):
    """`dense` of the activation of this name of x [..., in].

    Of a GELU it keeps only x for the backward pass, where the activation is computed anew: of all
    that a step keeps, its result would be the largest part.
    """
    if name not in _GELUS:
        return dense(activation(name)(x), kernel, bias)
    value, value_and_slope = _GELUS[name]

    @ops.custom_gradient
    def affine(x, kernel, bias):
        def gradient(upstream):
            hidden, slope = (ops.cast(part, x.dtype) for part in value_and_slope(_wide(x)))
            by_hidden = ops.matmul(upstream, ops.transpose(kernel))
            kernel_gradient = ops.matmul(ops.transpose(hidden), upstream)
            return slope * by_hidden, kernel_gradient, _sum_of_rows(upstream)

        return ops.matmul(ops.cast(value(_wide(x)), x.dtype), kernel) + bias, gradient

    *batch, width = ops.shape(x)
    output = affine(ops.reshape(x, (-1, width)), ops.copy(kernel), ops.copy(bias))
    return ops.reshape(output, (*batch, kernel.shape[-1]))


def gelu(x):
    """x P(X <= x) of a normal X: Gaussian Error Linear Units (arXiv:1606.08415).

    In float32 inside, whatever the type of x: for bfloat16, Keras' own takes three times as long
    on the CPU.
    """
    return _with_own_gradient("gelu", x)


def gelu_new(x):
    """The tanh approximation of `gelu`, computed in the same way."""
    return _with_own_gradient("gelu_new", x)


def _with_own_gradient(name: str, x):
    value, value_and_slope = _GELUS[name]

    @ops.custom_gradient
    def function(x):
        def gradient(upstream):
            return upstream * ops.cast(value_and_slope(_wide(x))[1], x.dtype)

        return ops.cast(value(_wide(x)), x.dtype), gradient

    return function(x)


def _wide(x):
    return ops.cast(x, "float32")


def _gelu(x):
    return x * (ops.erf(x * math.sqrt(0.5)) * 0.5 + 0.5)


# The erf and tanh of the backward pass are of -x, so that XLA does not find them to be those of the
# forward pass, and keep them.
def _gelu_and_slope(x):
    probability = 0.5 - 0.5 * ops.erf(x * -math.sqrt(0.5))
    density = ops.exp(ops.square(x) * -0.5) * math.sqrt(0.5 / math.pi)
    return x * probability, x * density + probability


def _gelu_new(x):
    return x * (ops.tanh(x * (ops.square(x) * _CUBE + _SLOPE)) * 0.5 + 0.5)


def _gelu_new_and_slope(x):
    square = ops.square(x)
    tanh = ops.tanh(x * (square * -_CUBE - _SLOPE))
    probability = 0.5 - 0.5 * tanh
    inner = square * (3 * _CUBE) + _SLOPE
    return x * probability, probability + 0.5 * x * (1 - ops.square(tanh)) * inner


_SLOPE = math.sqrt(2 / math.pi)
_CUBE = 0.044715 * _SLOPE
_GELUS = {"gelu": (_gelu, _gelu_and_slope), "gelu_new": (_gelu_new, _gelu_new_and_slope)}

"""Fast forms of the formulas that the layers use.

Automatic differentiation of the plain formulas makes more passes over large tensors than necessary,
and keeps more of them for the backward pass. The fast forms therefore define their own gradients,
and some recompute values instead of keeping them. docs/results.md has the measurements.

Two rules apply to every function with a custom gradient:

- Its arguments are values, not variables, as `ops.custom_gradient` requires: hence `ops.copy`.
- Whatever it recomputes must look different from the first computation. Otherwise XLA merges the
  two and keeps the result: hence the zeros that depend on the upstream gradient, and the negated
  arguments of erf and tanh.
"""

import math
from collections.abc import Callable

import keras
from keras import ops

from bert_tf.base.tensorflow_ops import for_gpu
from bert_tf.layers.dropout import plain_dropout


def dense(x, kernel, bias):
    """Computes `x` [..., in] times `kernel` [in, out] plus `bias` [out] -> [..., out].

    Flattens x into a matrix, because CPUs and TPUs are fastest at matrix products. The gradient of
    the bias is a matrix product as well, because a sum over rows is a slow reduction on the CPU.
    """
    *batch, width = ops.shape(x)
    output = _affine(ops.reshape(x, (-1, width)), ops.copy(kernel), ops.copy(bias))
    return ops.reshape(output, (*batch, kernel.shape[-1]))


@ops.custom_gradient
def _affine(x, kernel, bias):
    def gradient(upstream):
        x_gradient = ops.matmul(upstream, ops.transpose(kernel))
        return x_gradient, ops.matmul(ops.transpose(x), upstream), _column_sums_by_product(upstream)

    return ops.matmul(x, kernel) + bias, gradient


def _column_sums_by_product(x):
    if for_gpu():
        # XLA would copy the arguments of all layers into one product.
        return _column_sums(x)
    return ops.matmul(ops.ones((1, ops.shape(x)[0]), x.dtype), x)[0]


def tied_logits(x, table, bias):
    """Scores `x` [N, E] against every row of `table` [V, E], plus `bias` [V] -> [N, V].

    Computes the gradient of the table in the table's own layout. Automatic differentiation would
    compute that of the transposed table and then transpose it in a slow pass.
    """
    return _tied_logits(x, table, ops.copy(bias))


@ops.custom_gradient
def _tied_logits(x, table, bias):
    def gradient(upstream):
        table_gradient = ops.matmul(ops.transpose(upstream), x)
        return ops.matmul(upstream, table), table_gradient, _column_sums_by_product(upstream)

    return ops.matmul(x, ops.transpose(table)) + bias, gradient


def activation(name: str) -> Callable:
    """Returns the function that a `hidden_act` in `bert_config.json` names.

    "gelu" is x P(X <= x) for a standard normal X, and "gelu_new" its tanh approximation. They
    compute in float32 whatever the type of x, keep only x for the gradient, and take a third of the
    time of Keras' bfloat16 GELU on the CPU.

    Source: Gaussian Error Linear Units (arXiv:1606.08415).
    """
    if name not in _GELUS:
        return keras.activations.get(name)
    value, value_and_slope = _GELUS[name]

    @ops.custom_gradient
    def gelu(x):
        def gradient(upstream):
            return upstream * ops.cast(value_and_slope(_float32(x))[1], x.dtype)

        return ops.cast(value(_float32(x)), x.dtype), gradient

    return gelu


def feed_forward(name: str, x, in_kernel, in_bias, out_kernel, out_bias, wide: bool = True):
    """Applies a dense layer to `x` [..., in], the activation `name`, and a dense layer [..., out].

    For a GELU, keeps only x and the input of the activation for the backward pass and recomputes
    the result of the activation, which would be the largest tensor that a training step keeps. In
    inference on the CPU, the first product, its bias and the GELU become one operation of oneDNN.

    Args:
        wide: whether a GELU is computed in float32, whatever the type of x. oneDNN always does so,
            but TensorFlow recognizes the GELU only without the conversions.
    """
    if name not in _GELUS:
        hidden = activation(name)(dense(x, in_kernel, in_bias))
        return dense(hidden, out_kernel, out_bias)
    value, value_and_slope = _GELUS[name]

    @ops.custom_gradient
    def of_rows(x, in_kernel, in_bias, out_kernel, out_bias):
        # ops.add, unlike +, becomes TensorFlow's BiasAdd.
        inner = ops.add(ops.matmul(x, in_kernel), in_bias)
        hidden = ops.cast(value(_float32(inner)), x.dtype) if wide else value(inner)

        def gradient(upstream):
            hidden, slope = (ops.cast(part, x.dtype) for part in value_and_slope(_float32(inner)))
            inner_gradient = slope * ops.matmul(upstream, ops.transpose(out_kernel))
            return (
                ops.matmul(inner_gradient, ops.transpose(in_kernel)),
                ops.matmul(ops.transpose(x), inner_gradient),
                _column_sums_by_product(inner_gradient),
                ops.matmul(ops.transpose(hidden), upstream),
                _column_sums_by_product(upstream),
            )

        return ops.add(ops.matmul(hidden, out_kernel), out_bias), gradient

    *batch, width = ops.shape(x)
    weights = (ops.copy(weight) for weight in (in_kernel, in_bias, out_kernel, out_bias))
    output = of_rows(ops.reshape(x, (-1, width)), *weights)
    return ops.reshape(output, (*batch, out_kernel.shape[-1]))


def _float32(x):
    return ops.cast(x, "float32")


_SLOPE = math.sqrt(2 / math.pi)
_CUBE = 0.044715 * _SLOPE


# TensorFlow fuses these two forms with the preceding matrix product. LiteRT's converter, which has
# no erf, knows the first one as a GELU; it would not know x * (0.5 * (erf(...) + 1)).
def _erf_form(x):
    return x * 0.5 * (ops.erf(x * math.sqrt(0.5)) + 1.0)


def _erf_form_and_slope(x):
    # Computed from -x, so that XLA does not merge it with the erf of the forward pass.
    probability = 0.5 - 0.5 * ops.erf(x * -math.sqrt(0.5))
    density = ops.exp(ops.square(x) * -0.5) * math.sqrt(0.5 / math.pi)
    return x * probability, x * density + probability


def _tanh_form(x):
    return x * 0.5 * (ops.tanh((x + x * ops.square(x) * 0.044715) * _SLOPE) + 1.0)


def _tanh_form_and_slope(x):
    square = ops.square(x)
    tanh = ops.tanh(x * (square * -_CUBE - _SLOPE))  # from -x, as above
    probability = 0.5 - 0.5 * tanh
    inner = square * (3 * _CUBE) + _SLOPE
    return x * probability, probability + 0.5 * x * (1 - ops.square(tanh)) * inner


_GELUS = {"gelu": (_erf_form, _erf_form_and_slope), "gelu_new": (_tanh_form, _tanh_form_and_slope)}


def layer_norm(x, gamma, beta, epsilon: float):
    """Normalizes the last axis of `x`, then scales by `gamma` and shifts by `beta`, in float32.

    Keeps x in its own type and two numbers per row, where automatic differentiation keeps several
    float32 copies of x.
    """

    @ops.custom_gradient
    def normalize(x, gamma, beta):
        wide = _float32(x)
        mean = ops.mean(wide, axis=-1, keepdims=True)
        centered = wide - mean
        scale = ops.rsqrt(ops.mean(ops.square(centered), axis=-1, keepdims=True) + epsilon)
        output = ops.cast(centered * scale * gamma + beta, x.dtype)

        def gradient(upstream):
            upstream = _float32(upstream)
            normalized = (_float32(x) - mean) * scale
            product = upstream * normalized
            along = ops.mean(product * gamma, axis=-1, keepdims=True)
            scaled = upstream * gamma
            centered = scaled - ops.mean(scaled, axis=-1, keepdims=True)
            x_gradient = ops.cast((centered - normalized * along) * scale, x.dtype)
            return x_gradient, _column_sums(product), _column_sums(upstream)

        return output, gradient

    return normalize(x, ops.copy(_float32(gamma)), ops.copy(_float32(beta)))


def _column_sums(x):
    return ops.sum(ops.reshape(x, (-1, x.shape[-1])), axis=0)


def fast_attention(query, key, value, bias, rate: float = 0.0, seed=None, recompute: bool = False):
    """Computes dot-product attention.

    Keeps the probabilities before and after dropout, in the type of `query`, or with `recompute`
    only the arguments. Automatic differentiation would also keep the mask and float32 copies.

    Args:
        query, key, value: [B, N, S, D]; the queries are already scaled.
        bias: added to the scores [B, N, S, S]; it has no gradient. Its type is that of the softmax.
        rate: dropout rate of the probabilities.
        seed: int32 [2], decides which probabilities are dropped; not needed if `rate` is 0.
        recompute: whether the backward pass recomputes the probabilities.

    Returns the context [B, N, S, D].
    """

    def probabilities(query, key, bias, seed):
        scores = ops.cast(ops.matmul(query, _transposed(key)), bias.dtype)  # [B, N, S, S]
        result = ops.cast(ops.softmax(scores + bias), query.dtype)
        return result, plain_dropout(result, rate, seed) if rate else result

    @ops.custom_gradient
    def attend(query, key, value, bias):
        forward = probabilities(query, key, bias, seed)

        def gradient(upstream):
            kept, dropped = forward
            if recompute:
                # XLA does not know that this is zero, and so does not merge the two computations.
                zero = upstream[0, 0, 0, 0] * 0.0
                shifted = None if seed is None else seed + ops.cast(zero, "int32")
                kept, dropped = probabilities(query + zero, key, bias, shifted)
            dropped_gradient = ops.matmul(upstream, _transposed(value))
            # The gradient of the probabilities, times the probabilities.
            product = _float32(dropped_gradient) * _float32(dropped)
            total = ops.sum(product, axis=-1, keepdims=True)
            scores_gradient = ops.cast(product - _float32(kept) * total, query.dtype)
            return (
                ops.matmul(scores_gradient, key),
                ops.matmul(_transposed(scores_gradient), query),
                ops.matmul(_transposed(dropped), upstream),
                ops.zeros_like(bias),
            )

        return ops.matmul(forward[1], value), gradient

    return attend(query, key, value, bias)


def _transposed(x):
    return ops.transpose(x, (0, 1, 3, 2))


def cross_entropy(logits, labels, recompute: bool = False):
    """Computes softmax cross-entropy: logits [..., C], labels int [...] -> float32 [...].

    Keeps the exponentials of the forward pass for the gradient, which halves the time on the CPU
    if C is a whole vocabulary. With `recompute`, uses that of Keras, which keeps less.
    """
    if recompute:
        logits = _float32(logits)
        return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    flat_logits = _float32(ops.reshape(logits, (-1, logits.shape[-1])))
    losses = _cross_entropy(flat_logits, ops.reshape(labels, (-1, 1)))
    return ops.reshape(losses, ops.shape(labels))


@ops.custom_gradient
def _cross_entropy(logits, labels):
    """Maps logits, float32 [N, C], and labels, int [N, 1], to losses [N]."""
    largest = ops.max(logits, axis=-1, keepdims=True)
    exponentials = ops.exp(logits - largest)
    total = ops.sum(exponentials, axis=-1, keepdims=True)
    losses = ops.log(total) + largest - ops.take_along_axis(logits, labels, axis=-1)

    def gradient(upstream):
        scaled = exponentials * (upstream[:, None] / total)  # softmax times upstream
        rows = ops.arange(ops.shape(labels)[0], dtype=labels.dtype)[:, None]
        at_labels = ops.take_along_axis(scaled, labels, axis=-1)[:, 0] - upstream
        indices = ops.concatenate([rows, labels], axis=-1)
        return ops.scatter_update(scaled, indices, at_labels), None

    return losses[:, 0], gradient

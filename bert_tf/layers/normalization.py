"""Layer normalization with few passes over memory."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="bert_tf")
class LayerNormalization(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` of the last axis, with the same weights and values.

    Both the normalization and its gradient are computed in float32. For the backward pass it keeps
    x in its own type, and two numbers for a row.

    Source: Layer Normalization (arXiv:1607.06450).
    """

    def call(self, x):
        # The values, because a function with its own gradient must not see variables.
        gamma, beta = ops.copy(self.gamma), ops.copy(self.beta)
        return ops.cast(_normalize(x, gamma, beta, self.epsilon), self.compute_dtype)


def _normalize(x, gamma, beta, epsilon: float):
    @ops.custom_gradient
    def normalize(x, gamma, beta):
        wide = ops.cast(x, "float32")
        mean = ops.mean(wide, axis=-1, keepdims=True)
        centered = wide - mean
        scale = ops.rsqrt(ops.mean(ops.square(centered), axis=-1, keepdims=True) + epsilon)
        output = ops.cast(centered * scale * gamma + beta, x.dtype)

        def gradient(upstream):
            return _gradient(ops.cast(upstream, "float32"), x, mean, scale, gamma)

        return output, gradient

    return normalize(x, gamma, beta)


def _gradient(upstream, x, mean, scale, gamma):
    """Those of x, gamma and beta."""
    normalized = (ops.cast(x, "float32") - mean) * scale
    product = upstream * normalized
    along = ops.mean(product * gamma, axis=-1, keepdims=True)
    scaled = upstream * gamma
    centered = scaled - ops.mean(scaled, axis=-1, keepdims=True)
    x_gradient = (centered - normalized * along) * scale
    return ops.cast(x_gradient, x.dtype), _sum_of_rows(product), _sum_of_rows(upstream)


def _sum_of_rows(x):
    return ops.sum(ops.reshape(x, (-1, x.shape[-1])), axis=0)

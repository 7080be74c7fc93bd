"""Weights in 8 bits inside a SavedModel, which computes in float32."""

from collections.abc import Callable, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf


def quantize(weight: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the int8 values of a matrix and their float32 scales, one for each index of an axis.

        value = round(weight / scale),  scale = max|weight| / 127 over the other axis

    A weight differs from value * scale by at most half a scale.
    """
    scale = np.max(np.abs(weight), axis=1 - axis, keepdims=True) / np.float32(127)
    values = np.divide(weight, scale, out=np.zeros_like(weight), where=scale > 0)
    return np.rint(values).astype(np.int8), scale


class Int8Weights:
    """The matrices and tables of a model in 8 bits; vectors stay as they are.

    Every column of a matrix has a scale, that is, every output of a dense layer; so has every row
    of a table of embeddings. Without weights, all stay as they are.
    """

    def __init__(self, weights: Sequence[keras.Variable]):
        self._stored = {}
        for weight in weights:
            if len(weight.shape) == 2:
                axis = 0 if weight.path.endswith("_embeddings") else 1
                values, scale = quantize(weight.numpy(), axis)
                self._stored[weight.path] = (
                    weight,
                    tf.Variable(values, trainable=False, name=weight.path),
                    tf.Variable(scale, name=f"{weight.path}_scale"),
                )

    def reading(self, function: Callable, layers: Sequence[keras.layers.Layer]) -> Callable:
        """Returns a function in which some layers read what is stored in place of their weights."""
        if not self._stored:
            return function
        weights = [weight for layer in layers for weight in layer.variables]
        stored = [self._stored[w.path] for w in weights if w.path in self._stored]
        others = [weight for weight in weights if weight.path not in self._stored]

        def read(*args):
            values = [
                (weight, tf.cast(values, tf.float32) * scale) for weight, values, scale in stored
            ]
            with keras.StatelessScope(values) as scope:
                outputs = function(*args)
            # The scope keeps the next seed of dropout to itself.
            for variable in others:
                if (value := scope.get_current_value(variable)) is not None:
                    variable.assign(value)
            return outputs

        return read

    def variables(self, weights: Sequence[keras.Variable]) -> list[tf.Variable]:
        """Returns what holds some of the weights of the model."""
        found = []
        for weight in weights:
            _, *variables = self._stored.get(weight.path, (weight, weight.value))
            found += variables
        return found


class Int8Model:
    """A float32 model whose matrices are stored in 8 bits, to be called without training.

    Attributes:
        stored: what holds the weights, for the object to save.
    """

    # Those of Keras.
    variables = ()

    def __init__(self, model: keras.Model):
        stored = Int8Weights(model.weights)
        self.stored = stored.variables(model.weights)
        self._call = stored.reading(lambda inputs: model(inputs, training=False), [model])

    def __call__(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        return self._call(inputs)

"""A model that computes with quantized weights and activations while it trains."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf

from bert_tf.compression.quantization import (
    Quantization,
    is_quantized,
    straight_through,
    symmetric,
)
from bert_tf.layers import fused
from bert_tf.models.task_model import BertTaskModel
from bert_tf.weights.names import STATE, num_layers

# The default of the authors' code.
_DECAY = 0.9999


class QuantizedModel(keras.Model):
    """A student with quantized weights and quantized inputs of its dense layers.

    Training computes with quantized weights, and updates float32 weights with the gradients of the
    quantized ones. An evaluation assumes that the weights are quantized already: see
    `evaluated_weights`. What enters a dense layer has 8 bits. The end of its grid is a moving
    average of the largest absolute values in training.

    In addition to the weights of the student, under the same paths, checkpoints hold
    `activation_ranges`, the ends of the grids in the order of the dense layers' calls, and
    `layer_bits`, the bits of each layer.

    Args:
        quantization: how weights are quantized; None for a model that does not train.
        layer_bits: the bits of each layer.
        eigenvalues: what the bits were chosen by [layers, 2]; kept in checkpoints.
        ranges: the activation ranges of a model that does not train.

    Call: the inputs of the student -> its output.

    Source: Q8BERT (arXiv:1910.06188) section 2.
    """

    def __init__(
        self,
        student: BertTaskModel,
        quantization: Quantization | None = None,
        layer_bits: Sequence[int] = (),
        eigenvalues: np.ndarray | None = None,
        ranges: np.ndarray | None = None,
        name: str = STATE,
    ):
        super().__init__(name=name)
        self.student, self._quantization = student, quantization
        self._ranges = ranges
        # In a call in half precision, `weight.value` would be cast. In a function, where Keras does
        # not find them twice.
        quantized = [(w, w.value) for w in student.weights if is_quantized(w.shape)]
        self._quantized = lambda: quantized
        if quantization:
            self._ranges = self._state("activation_ranges", np.zeros(num_dense(student)))
            self._layer_bits = self._state("layer_bits", layer_bits)
        if eigenvalues is not None:
            self._state("eigenvalues", eigenvalues)
        self.build()

    def build(self, input_shape=None) -> None:
        self.built = True

    @property
    def encoder(self) -> keras.Model:
        return self.student.encoder

    @property
    def head(self) -> keras.layers.Layer:
        return self.student.head

    def call(self, inputs, training=None):
        ranges = tf.convert_to_tensor(self._ranges, tf.float32)
        found: list[tf.Tensor] = []
        with self._rounded_weights() if training else contextlib.nullcontext():
            with fused.dense_inputs(_rounding(ranges, found, training)):
                output = self.student(inputs, training=training)
        if training:
            self._ranges.assign(tf.stack(found))
        return output

    @contextlib.contextmanager
    def evaluated_weights(self) -> Iterator[None]:
        """Makes a context in which the student has its quantized weights."""
        kept = [tf.identity(value) for _, value in self._quantized()]
        for weight, value in self._quantized():
            value.assign(self._round(weight, value))
        try:
            yield
        finally:
            for (_, value), before in zip(self._quantized(), kept, strict=True):
                value.assign(before)

    def _state(self, name: str, value: Sequence[float] | np.ndarray) -> keras.Variable:
        variable = self.add_weight(
            shape=np.shape(value), dtype="float32", trainable=False, autocast=False, name=name
        )
        variable.assign(value)
        return variable

    def _round(self, weight: keras.Variable, value: tf.Variable) -> tf.Tensor:
        bits = tf.convert_to_tensor(self._layer_bits)
        return self._quantization.rounded(weight.path, tf.convert_to_tensor(value), bits)

    def _rounded_weights(self) -> keras.StatelessScope:
        """Returns a scope in which the student reads quantized weights."""
        return keras.StatelessScope(
            [(w, straight_through(value, self._round(w, value))) for w, value in self._quantized()]
        )


def num_dense(model: BertTaskModel) -> int:
    """Returns how many calls of dense layers a call of the model makes; layers may share some."""
    kernels = [weight.path for weight in model.weights if weight.path.endswith("kernel")]
    in_blocks = sum("/layer_" in path for path in kernels)
    calls = in_blocks * model.config.num_hidden_layers // num_layers(model.config)
    return len(kernels) - in_blocks + calls


def _rounding(ranges: tf.Tensor, found: list[tf.Tensor], training: bool | None) -> Callable:
    """Returns a function that quantizes the input of one dense layer after another.

    Args:
        ranges: the ends of their grids.
        found: takes the ends after this call, which training moves.
    """

    def rounded(x: tf.Tensor) -> tf.Tensor:
        wide, end = tf.cast(x, tf.float32), ranges[len(found)]
        if training:
            largest = tf.stop_gradient(tf.reduce_max(tf.abs(wide)))
            end = tf.where(end == 0.0, largest, end + (1.0 - _DECAY) * (largest - end))
        found.append(end)
        return straight_through(x, tf.cast(symmetric(wide, end), x.dtype))

    return rounded

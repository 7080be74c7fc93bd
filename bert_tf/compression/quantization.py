"""Quantizes weights and activations: their grids, and a model that trains with them."""

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from bert_tf.compression.distillation import StudentModel
from bert_tf.layers.layer import Layer, dense_inputs
from bert_tf.models.task_model import BertTaskModel
from bert_tf.weights.names import num_layers, num_matrices

# How fast the ranges of activations move: the default of the authors' code.
_DECAY = 0.9999
# What the names of a model's state begin with that is not a weight.
STATE = "quantization"


def symmetric(x: tf.Tensor, largest: tf.Tensor, bits: tf.Tensor | int = 8) -> tf.Tensor:
    """Rounds values to an even grid of 2^bits - 1 values from -largest to largest.

        Q(x) = clamp(round(x M / largest), -M, M) largest / M,  M = 2^(bits - 1) - 1

    `largest` has a shape that broadcasts; where it is 0, the result is 0.

    Source: Q8BERT (arXiv:1910.06188) equations 1 to 3.
    """
    end = tf.pow(2.0, tf.cast(bits, tf.float32) - 1.0) - 1.0
    steps = tf.round(tf.math.divide_no_nan(x, largest) * end)
    # In this order, `largest` is on the grid exactly, so that rounding twice changes nothing.
    return tf.clip_by_value(steps, -end, end) / end * largest


def uniform(x: tf.Tensor, lowest: tf.Tensor, highest: tf.Tensor, bits: tf.Tensor | int):
    """Rounds values from `lowest` to `highest` to an even grid of 2^bits values between them.

        Q(x) = lowest + round((x - lowest) / D) D,  D = (highest - lowest) / (2^bits - 1)

    Source: Q-BERT (arXiv:1909.05840) equation 1, with even steps.
    """
    steps = tf.pow(2.0, tf.cast(bits, tf.float32)) - 1.0
    share = tf.math.divide_no_nan(x - lowest, highest - lowest)
    share = tf.round(share * steps) / steps
    # Unlike the sum above, exact at both ends.
    return lowest * (1.0 - share) + highest * share


@tf.custom_gradient
def straight_through(x: tf.Tensor, rounded: tf.Tensor):
    """Returns `rounded`, with the gradient of `x`.

    Source: Estimating or Propagating Gradients Through Stochastic Neurons (arXiv:1308.3432).
    """
    return tf.identity(rounded), lambda upstream: (upstream, None)


def num_groups(width: int, wanted: int) -> int:
    """Returns the number of equal groups of columns: the largest divisor up to `wanted`."""
    return max(count for count in range(1, min(width, wanted) + 1) if width % count == 0)


@dataclass(frozen=True)
class Quantization:
    """How the matrices and tables of a model are quantized; its vectors stay in float32.

    Layers have bits of their own. Whatever belongs to no layer, such as embeddings, has 8. Each of
    so many `groups` of neighboring columns in a matrix has a range of its own: `symmetric` about 0,
    or from its smallest to its largest weight. Query, key and value are three matrices. Where the
    columns cannot be shared evenly, there are fewer groups.
    """

    symmetric: bool
    groups: int

    def rounded(self, path: str, value: tf.Tensor, layer_bits: Sequence | tf.Tensor) -> tf.Tensor:
        """Quantizes the weight at a path, float32 [in, out], given the bits of each layer."""
        groups, bits = self._num_groups(path, value.shape[1]), self._bits(path, layer_bits)
        columns = tf.reshape(value, [value.shape[0], groups, -1])
        lowest, highest = (
            reduce(columns, axis=[0, 2], keepdims=True) for reduce in (tf.reduce_min, tf.reduce_max)
        )
        if self.symmetric:
            result = symmetric(columns, tf.maximum(-lowest, highest), bits)
        else:
            result = uniform(columns, lowest, highest, bits)
        return tf.reshape(result, value.shape)

    def num_bytes(self, shapes: Mapping[str, Sequence[int]], layer_bits: Sequence[int]) -> int:
        """Returns the bytes that weights take: their bits, and the ranges of groups in float32."""
        total = 0
        for path, shape in shapes.items():
            bits, ends = 32, 0
            if is_quantized(shape):
                bits = self._bits(path, layer_bits)
                ends = self._num_groups(path, shape[1]) * (1 if self.symmetric else 2)
            total += math.ceil(math.prod(shape) * bits / 8) + 4 * ends
        return total

    def _num_groups(self, path: str, width: int) -> int:
        matrices = num_matrices(path)
        return matrices * num_groups(width // matrices, self.groups)

    def _bits(self, path: str, layer_bits: Sequence | tf.Tensor):
        match = re.search(r"/layer_(\d+)/", path)
        return layer_bits[int(match[1])] if match else 8


def is_quantized(shape: Sequence[int]) -> bool:
    """Returns whether weights of this shape are quantized: matrices and tables are."""
    return len(shape) == 2


class QuantizedModel(StudentModel):
    """A student with quantized weights and quantized inputs of its dense layers.

    Training computes with quantized weights, and updates float32 weights with the gradients of the
    quantized ones. An evaluation assumes that the weights are quantized already: see
    `evaluated_weights`. What enters a dense layer has 8 bits. The end of its grid is a moving
    average of the largest absolute values in training.

    In addition to the weights of the student, checkpoints hold `activation_ranges`, the ends of the
    grids in the order of the dense layers' calls, and `layer_bits`, the bits of each layer. A model
    that does not train has `ranges`, and no `quantization`.

    Source: Q8BERT (arXiv:1910.06188) section 2.
    """

    def __init__(
        self,
        student: BertTaskModel,
        quantization: Quantization | None = None,
        layer_bits: Sequence[int] = (),
        ranges: np.ndarray | None = None,
    ):
        super().__init__(student, STATE)
        self._quantization, self._ranges = quantization, ranges
        # In a call in half precision, `weight.value` would be cast. In a function, where Keras does
        # not find them twice.
        quantized = [(w, w.value) for w in student.weights if is_quantized(w.shape)]
        self._quantized = lambda: quantized
        if quantization:
            self._ranges = self._state("activation_ranges", np.zeros(num_dense(student)))
            self._layer_bits = self._state("layer_bits", layer_bits)
        self.built = True

    def call(self, inputs, training=None):
        ranges = tf.convert_to_tensor(self._ranges, tf.float32)
        found: list[tf.Tensor] = []

        def rounded(layer: Layer, name: str, x: tf.Tensor) -> tf.Tensor:
            """Quantizes the input of a dense layer, and moves the end of its grid in training."""
            wide, end = tf.cast(x, tf.float32), ranges[len(found)]
            if training:
                largest = tf.stop_gradient(tf.reduce_max(tf.abs(wide)))
                end = tf.where(end == 0.0, largest, end + (1.0 - _DECAY) * (largest - end))
            found.append(end)
            return straight_through(x, tf.cast(symmetric(wide, end), x.dtype))

        pairs = self._quantized() if training else ()
        rounded_weights = [(w, straight_through(x, self._round(w, x))) for w, x in pairs]
        with keras.StatelessScope(rounded_weights) if training else contextlib.nullcontext():
            with dense_inputs(self.student, rounded):
                output = super().call(inputs, training)
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


def num_dense(model: BertTaskModel) -> int:
    """Returns how many calls of dense layers a call of the model makes; layers may share some."""
    kernels = [weight.path for weight in model.weights if weight.path.endswith("kernel")]
    in_blocks = sum("/layer_" in path for path in kernels)
    calls = in_blocks * model.config.num_hidden_layers // num_layers(model.config)
    return len(kernels) - in_blocks + calls

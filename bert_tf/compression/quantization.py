"""Weights and activations that take few values: on which grids the papers put them."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from bert_tf.weights.names import num_matrices

# Bits of what belongs to no layer, apart from word embeddings.
_BITS = 8


def symmetric(x: tf.Tensor, largest: tf.Tensor, bits: tf.Tensor | int = 8) -> tf.Tensor:
    """Rounds values to an even grid of 2^bits - 1 values from -largest to largest.

        Q(x) = clamp(round(x M / largest), -M, M) largest / M,  M = 2^(bits - 1) - 1

    Args:
        largest: the end of the grid, of a shape that broadcasts; where it is 0, the result is 0.

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

    Attributes:
        symmetric: whether the values of a group are symmetric about 0. Otherwise, they lie between
            its smallest and its largest weight.
        groups: the number of groups of neighboring columns in a matrix. Each group has a range of
            its own. Query, key and value are three matrices. Where the columns cannot be shared
            evenly, there are fewer groups.
        bits: the bits of the weights of a layer. Of two numbers, the more sensitive half of the
            layers gets the second.
        embedding_bits: the bits of word embeddings. Whatever else belongs to no layer has 8.
    """

    symmetric: bool
    groups: int
    bits: tuple[int, ...] = (8,)
    embedding_bits: int = 8

    @property
    def is_mixed(self) -> bool:
        """Whether layers differ in their bits."""
        return len(self.bits) > 1

    def rounded(self, path: str, value: tf.Tensor, layer_bits: Sequence | tf.Tensor) -> tf.Tensor:
        """Quantizes a weight, float32 [in, out].

        Args:
            path: the path of the weight.
            layer_bits: the bits of the weights of each layer.
        """
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
            if not is_quantized(shape):
                total += 4 * math.prod(shape)
                continue
            numbers = self._num_groups(path, shape[1]) * (1 if self.symmetric else 2)
            total += math.ceil(math.prod(shape) * self._bits(path, layer_bits) / 8) + 4 * numbers
        return total

    def _num_groups(self, path: str, width: int) -> int:
        matrices = num_matrices(path)
        return matrices * num_groups(width // matrices, self.groups)

    def _bits(self, path: str, layer_bits: Sequence | tf.Tensor):
        if match := re.search(r"/layer_(\d+)/", path):
            return layer_bits[int(match[1])]
        return self.embedding_bits if path.endswith("/word_embeddings") else _BITS


def is_quantized(shape: Sequence[int]) -> bool:
    """Returns whether weights of this shape are quantized: matrices and tables are."""
    return len(shape) == 2

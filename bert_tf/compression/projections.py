"""Compares the weights of a student with those of a wider teacher."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.weights.names import part_of, weights

# The axes of weights that differ in size between models of one depth. "3 attended" are three
# matrices side by side.
_WIDTHS = {
    "hidden": "hidden",
    "embedding": "hidden",
    "attended": "hidden",
    "3 attended": "hidden",
    "inner": "inner",
}
_PARTS = ("encoder", "pooler", "masked_lm")


class SharedProjections(keras.layers.Layer):
    """Measures how far the projected weights of a student are from those of its teacher.

    Two widths differ: that of the layers, and that inside the feed-forward networks. For each of
    them, one matrix projects the inputs of the student's kernels to the teacher's width, and one
    the outputs: a kernel W becomes U^T W V. All weights share these four matrices. They start
    orthogonal, so that projecting up keeps lengths.

    Args:
        student, teacher: the configurations, of as many layers.

    Source: Extreme Language Model Compression with Optimal Subwords and Shared Projections
    (arXiv:1909.11687v1) section 3.2, projection up.
    """

    def __init__(self, student: BertConfig, teacher: BertConfig, **kwargs):
        super().__init__(dtype="float32", **kwargs)
        self._axes = _axes_by_path(student)
        self._matrices = {
            (width, role): self.add_weight(
                name=f"{width}_{role}", shape=sizes, initializer="orthogonal"
            )
            for width, sizes in (
                ("hidden", (student.hidden_size, teacher.hidden_size)),
                ("inner", (student.intermediate_size, teacher.intermediate_size)),
            )
            for role in ("input", "output")
        }
        self.built = True

    def distance(
        self, student: Sequence[keras.Variable], teacher: Sequence[keras.Variable]
    ) -> tf.Tensor:
        """Returns the sum of the squared differences over all weights.

        Args:
            student, teacher: the weights of both models, in the same order. Tables of the teacher
                with a row per token hold the rows of the student's tokens last.
        """
        distances = []
        for weight, counterpart in zip(student, teacher, strict=True):
            if weight.path not in self._axes:
                continue
            axes = self._axes[weight.path]
            ours, theirs = map(tf.convert_to_tensor, (weight, counterpart))
            if axes[0] == "vocab":
                theirs = theirs[-ours.shape[0] :]
            difference = tf.math.squared_difference(self._project(ours, axes), theirs)
            distances.append(tf.reduce_sum(difference))
        return tf.add_n(distances)

    def _project(self, weight: tf.Tensor, axes: tuple[str, ...]) -> tf.Tensor:
        """Returns a weight of the student in the teacher's widths, given the names of its axes."""
        if width := _WIDTHS.get(axes[-1]):
            matrix = self._matrices[width, "output"]
            rows = tf.reshape(weight, [-1, matrix.shape[0]]) @ tf.convert_to_tensor(matrix)
            weight = tf.reshape(rows, [*weight.shape[:-1], -1])
        if len(axes) == 2 and (width := _WIDTHS.get(axes[0])):
            weight = tf.matmul(self._matrices[width, "input"], weight, transpose_a=True)
        return weight


def _axes_by_path(config: BertConfig) -> dict[str, tuple[str, ...]]:
    """Returns the names of the axes of all weights to compare."""
    return {
        weight.path.format(layer): weight.shape
        for weight in weights(config)
        if part_of(weight.path) in _PARTS
        for layer in (range(config.num_hidden_layers) if "{}" in weight.path else [0])
    }

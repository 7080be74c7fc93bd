"""Sets weights of small magnitude to zero while a model trains."""

import re
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.training.optimizers import AdamW
from bert_tf.weights.names import num_matrices

# The word embeddings and the matrices of the layers, as in the authors' code.
PRUNED = re.compile(r"encoder/(embeddings/word_embeddings|layer_\d+/.*_kernel)")
# Sorting all weights takes as long as several steps.
_UPDATES = 10


def sparsity_at(step: tf.Tensor, final: float, num_steps: int) -> tf.Tensor:
    """Returns the share of zeros after a step: it rises fast at first, and then ever more slowly.

        s_t = s_f (1 - (1 - t / n)^3)

    `step` is t, at most n = `num_steps`, and `final` is s_f; the result is float64 [].

    Source: To prune, or not to prune (arXiv:1710.01878) equation 1, from 0 at the start.
    """
    left = 1.0 - tf.cast(step, tf.float64) / num_steps
    return final * (1.0 - left**3)


def keep_mask(matrix: tf.Tensor, share: tf.Tensor) -> tf.Tensor:
    """Returns where a matrix keeps its values: false for a share of the smallest magnitudes.

    Values equal to the largest that is dropped are dropped, too.
    """
    magnitudes = tf.sort(tf.abs(tf.reshape(matrix, [-1])))
    count = tf.cast(tf.round(share * matrix.shape.num_elements()), tf.int64)
    threshold = tf.where(count > 0, magnitudes[tf.maximum(count - 1, 0)], -1.0)
    return tf.abs(matrix) > threshold


class PruningAdamW(AdamW):
    """AdamW that sets more and more of the weights to zero.

    In each of the matrices of the layers and in the word embeddings, the smallest magnitudes become
    zero, in at most ten updates during the first `num_steps`; see `sparsity_at`. Query, key and
    value are matrices of their own. What is zero stays zero.

    Args:
        sparsity: the share of zeros in the end.
        num_steps: number of steps until then.

    Source: Compressing BERT (arXiv:2002.08307) section 3; the authors' code for what is pruned.
    """

    def __init__(
        self, variables: Sequence[keras.Variable], sparsity: float, num_steps: int, **kwargs: Any
    ):
        super().__init__(variables, **kwargs)
        self._sparsity, self._num_steps = sparsity, num_steps
        self._prunes = [bool(PRUNED.fullmatch(variable.path)) for variable in variables]
        self._parts = [num_matrices(variable.path) for variable in variables]
        self._step = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.slots["pruning_step"] = self._step

    def apply(self, gradients, learning_rate, scale=1.0, finite=None) -> None:
        # With a moment of 0, which it has since it became 0, a zero then stays as it is.
        gradients = [
            tf.where(tf.equal(target, 0.0), 0.0, gradient) if prunes else gradient
            for target, gradient, prunes in zip(self._targets, gradients, self._prunes, strict=True)
        ]
        super().apply(gradients, learning_rate, scale, finite)
        tf.distribute.get_replica_context().merge_call(self._prune_if_due)

    def _prune_if_due(self, strategy: tf.distribute.Strategy) -> None:
        self._step.assign_add(1)
        step, last = self._step.read_value(), self._num_steps
        due = (step == last) | ((step < last) & (step % -(-last // _UPDATES) == 0))
        tf.cond(due, lambda: self._prune_all(strategy, step), lambda: None)

    def _prune_all(self, strategy: tf.distribute.Strategy, step: tf.Tensor) -> None:
        share = sparsity_at(step, self._sparsity, self._num_steps)
        columns = zip(self._targets, self._moments, self._parts, self._prunes, strict=True)
        for target, (m, _), parts, prunes in columns:
            if prunes:
                strategy.extended.update(target, _prune, args=(m, share, parts))


def _prune(variable: tf.Variable, m: tf.Variable, share: tf.Tensor, parts: int) -> None:
    pieces = tf.split(variable.read_value(), parts, axis=-1)
    kept = tf.concat([keep_mask(piece, share) for piece in pieces], axis=-1)
    for target in (variable, m):
        target.assign(tf.where(kept, target.read_value(), 0.0))

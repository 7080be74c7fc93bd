"""The optimizer of the original BERT."""

import re
from collections.abc import Sequence

import keras
import tensorflow as tf


class AdamW:
    """Adam with decoupled weight decay and without bias correction.

        m <- beta_1 m + (1 - beta_1) g
        v <- beta_2 v + (1 - beta_2) g^2
        w <- w - learning_rate (m / (sqrt(v) + epsilon) + weight_decay w)

    Not a `keras.optimizers.Optimizer`: those clip every replica's gradient before the all-reduce,
    where the original clips the sum, and correct the bias of the moments.

    Args:
        variables: the trainable variables; create the optimizer in their strategy's scope.
        weight_decay: not applied to variables whose path matches `exclude`.
        exclude: by default, biases and the two parameters of layer normalization.

    Source: Decoupled Weight Decay Regularization (arXiv:1711.05101) algorithm 2; google-research/
    bert optimization.py `AdamWeightDecayOptimizer`.
    """

    def __init__(
        self,
        variables: Sequence[keras.Variable],
        weight_decay: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        exclude: str = r"(^|/|_)bias$|/gamma$|/beta$",
    ):
        self.weight_decay = weight_decay
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self._targets = [variable.value for variable in variables]
        self._decays = [not re.search(exclude, variable.path) for variable in variables]
        self.slots = {
            f"{variable.path}/{slot}": tf.Variable(tf.zeros(variable.shape), trainable=False)
            for variable in variables
            for slot in ("adam_m", "adam_v")
        }

    def apply(self, gradients: Sequence[tf.Tensor], learning_rate: tf.Tensor) -> None:
        """Updates the variables; call it in a replica context with gradients already summed.

        Args:
            gradients: dense, in the variables' order, the same on every replica.
            learning_rate: scalar.
        """
        tf.distribute.get_replica_context().merge_call(
            self._update_all, args=(list(gradients), learning_rate)
        )

    def _update_all(self, strategy, gradients, learning_rate) -> None:
        slots = iter(self.slots.values())
        for target, gradient, decays in zip(self._targets, gradients, self._decays, strict=True):
            moments = (next(slots), next(slots))
            strategy.extended.update(
                target, self._update, args=(gradient, *moments, learning_rate, decays)
            )

    def _update(self, variable, gradient, m, v, learning_rate, decays: bool) -> None:
        if decays:
            variable.assign_sub(learning_rate * self.weight_decay * variable)
        # With both powers of beta at 0 the operation corrects no bias.
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=m.handle,
            v=v.handle,
            beta1_power=0.0,
            beta2_power=0.0,
            lr=learning_rate,
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )

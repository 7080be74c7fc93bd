"""Loss scaling, which training in float16 needs."""

from collections.abc import Sequence

import tensorflow as tf

_INITIAL_SCALE = 2.0**15
_GROWTH_STEPS = 2000


class DynamicLossScale:
    """A factor on the loss that keeps small gradients from vanishing in float16.

    The factor doubles after 2,000 consecutive steps with finite gradients. It halves, but not
    below 1, after a step whose gradients are not finite; such a step must be skipped. Create the
    object in the strategy's scope and call its methods in a replica context.

    A checkpoint must hold the variables in `state`.

    Source: Mixed Precision Training (arXiv:1710.03740) section 3.2, with the numbers of
    `keras.optimizers.LossScaleOptimizer`.
    """

    def __init__(self):
        self.scale = tf.Variable(_INITIAL_SCALE, trainable=False, dtype=tf.float32)
        self._good_steps = tf.Variable(0, trainable=False, dtype=tf.int64)
        self.state = {"scale": self.scale, "good_steps": self._good_steps}

    def scale_loss(self, loss: tf.Tensor) -> tf.Tensor:
        """Multiplies the loss, which should be float32, by the scale."""
        return loss * tf.cast(self.scale, loss.dtype)

    def unscale(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Divides dense gradients, already summed over the replicas, by the scale."""
        factor = 1.0 / self.scale
        return [gradient * tf.cast(factor, gradient.dtype) for gradient in gradients]

    def update(self, finite: tf.Tensor) -> None:
        """Counts a step and adjusts the scale; `finite`, bool [], is that of its gradients."""
        tf.distribute.get_replica_context().merge_call(self._update_all, args=(finite,))

    def _update_all(self, strategy, finite) -> None:
        strategy.extended.update(self.scale, self._update, args=(self._good_steps, finite))

    @staticmethod
    def _update(scale, good_steps, finite) -> None:
        count = tf.where(finite, good_steps + 1, 0)
        grows = count == _GROWTH_STEPS
        grown = tf.where(grows, 2.0 * scale, scale)
        scale.assign(tf.where(finite, grown, tf.maximum(0.5 * scale, 1.0)))
        good_steps.assign(tf.where(grows, tf.zeros_like(count), count))

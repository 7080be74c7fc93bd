"""Learning rates as functions of the step."""

from collections.abc import Callable

import tensorflow as tf

Schedule = Callable[[tf.Tensor], tf.Tensor]


def linear_warmup_and_decay(
    learning_rate: float, num_train_steps: int, num_warmup_steps: int
) -> Schedule:
    """From 0 up to `learning_rate` over the warm-up, then on the line that ends at 0 with training.

    During warm-up the rate is `learning_rate * step / num_warmup_steps`; after it
    `learning_rate * (1 - step / num_train_steps)`, so that it falls a little where the two meet.
    The first step, number 0, has rate 0 where there is a warm-up.

    Source: google-research/bert optimization.py `create_optimizer`.
    """

    def schedule(step: tf.Tensor) -> tf.Tensor:
        step = tf.cast(step, tf.float32)
        decayed = learning_rate * (1.0 - tf.minimum(step / num_train_steps, 1.0))
        if not num_warmup_steps:
            return decayed
        return tf.where(step < num_warmup_steps, learning_rate * step / num_warmup_steps, decayed)

    return schedule

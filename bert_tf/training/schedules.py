"""Learning rate schedules."""

import math
from collections.abc import Callable

import tensorflow as tf

Schedule = Callable[[tf.Tensor], tf.Tensor]


def make_schedule(
    name: str,
    learning_rate: float,
    num_train_steps: int,
    num_warmup_steps: int,
) -> Schedule:
    """Returns a linear warm-up to `learning_rate` followed by a decay to 0 at the end of training.

    During the warm-up, the rate is `learning_rate * step / num_warmup_steps`, where the first step
    is number 0. After the warm-up, it is `learning_rate` times

        linear      1 - step / num_train_steps
        cosine      (1 + cos(pi x)) / 2, with x from 0 after the warm-up to 1 at the end
        constant    1

    "linear" drops slightly where warm-up and decay meet, as in the original.

    Args:
        name: one of `choices.SCHEDULES`.

    Source: google-research/bert optimization.py `create_optimizer`; SGDR (arXiv:1608.03983)
    equation 5, without restarts.
    """
    num_decay_steps = max(1, num_train_steps - num_warmup_steps)

    def decay(step: tf.Tensor) -> tf.Tensor:
        left = 1.0 - tf.minimum(step / num_train_steps, 1.0)
        if name == "linear":
            return left
        if name == "cosine":
            done = tf.minimum((step - num_warmup_steps) / num_decay_steps, 1.0)
            return 0.5 * (1.0 + tf.cos(math.pi * done))
        assert name == "constant", name
        return tf.ones_like(step)

    def schedule(step: tf.Tensor) -> tf.Tensor:
        step = tf.cast(step, tf.float32)
        decayed = learning_rate * decay(step)
        if not num_warmup_steps:
            return decayed
        return tf.where(step < num_warmup_steps, learning_rate * step / num_warmup_steps, decayed)

    return schedule


def linear_warmup_and_decay(
    learning_rate: float, num_train_steps: int, num_warmup_steps: int
) -> Schedule:
    """Returns the original BERT's schedule, "linear" of `make_schedule`."""
    return make_schedule("linear", learning_rate, num_train_steps, num_warmup_steps)

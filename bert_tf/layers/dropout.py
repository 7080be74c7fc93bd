"""Dropout whose seed is an argument, with half a random word for an element."""

import keras
import numpy as np
from keras import ops

# Thresholds are of 16 bits: the rate that results is within 0.001 % of the one asked for.
_LEVELS = 1 << 16


@keras.saving.register_keras_serializable(package="bert_tf")
class Dropout(keras.layers.Layer):
    """Sets elements to 0 in training, each with probability `rate`, and scales the others up.

    The seed decides which: the same one drops the same elements, whatever ran before. So a run
    that resumes goes on with the masks it would have had, and a layer that is computed a second
    time for the backward pass drops the same elements again.

    Args:
        rate: the probability, at least 0 and below 1.
        recompute: whether the backward pass draws the mask a second time instead of keeping it.

    Call: `x` of any shape, `seed` int32 [2] -> the shape of x. Without training or where the rate
    is 0 it returns x, and needs no seed.

    Raises:
        ValueError: in training, without a seed.

    Source: Dropout (Srivastava et al., 2014).
    """

    def __init__(self, rate: float, recompute: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate
        self.recompute = recompute
        self.threshold = round(rate * _LEVELS)
        self.built = True

    @property
    def scale(self) -> float:
        """What kept elements are multiplied by: the expectation stays the same.

        A compute type of 8 bits rounds it: 1 / 0.9 is 0.16 % less in bfloat16.
        """
        return _LEVELS / (_LEVELS - self.threshold)

    def active(self, training: bool | None) -> bool:
        """Whether anything is dropped."""
        return bool(training) and self.threshold > 0

    def kept(self, shape: tuple, seed):
        """The mask: bool of this shape, true where an element is kept."""
        if seed is None:
            raise ValueError(f"{self.path}: dropout needs a seed in training, int32 [2]")
        rows, *rest = shape
        # The two halves of a word are for an element of the first half of the rows and one of the
        # second: along the last axis they would have to be interleaved.
        words = keras.random.randint(
            ((rows + 1) // 2, *rest), -(2**31), 2**31 - 1, dtype="int32", seed=_Given(seed)
        )
        limit = self.threshold * _LEVELS - 2**31
        halves = [words >= limit, ops.left_shift(words, 16) >= limit]
        return ops.concatenate(halves, axis=0)[:rows]

    def call(self, x, seed=None, training=None):
        if not self.active(training):
            return x
        if not self.recompute:
            return x * self._factors(x, seed)

        @ops.custom_gradient
        def drop(x):
            def gradient(upstream):
                # Of the upstream gradient, so that no compiler finds both masks to be the same.
                zero = ops.cast(upstream[(0,) * len(x.shape)] * 0.0, "int32")
                return upstream * self._factors(upstream, seed + zero)

            return x * self._factors(x, seed), gradient

        return drop(x)

    def _factors(self, x, seed):
        scale = ops.cast(self.scale, x.dtype)
        return ops.where(self.kept(ops.shape(x), seed), scale, ops.zeros_like(scale))

    def get_config(self):
        return super().get_config() | {"rate": self.rate, "recompute": self.recompute}


def derived_seed(seed, number: int):
    """The seed of the dropout of this number, from the seed of all: int32 [2] -> [2].

    Args:
        seed: none where nothing is dropped; that is then what it returns.
    """
    if seed is None:
        return None
    # A large odd multiple, so that seeds that follow each other do not share their derived ones.
    step = (number * 0x9E3779B1 + 2**31) % 2**32 - 2**31
    return seed + np.array([step, 0], np.int32)


class _Given(keras.random.SeedGenerator):
    """`keras.random` takes a seed as a number or from a generator, not as a tensor."""

    def __init__(self, seed):
        self._seed = seed

    def next(self, ordered=True):
        # Each backend wants another type; of others than int32, TensorFlow's takes a remainder.
        return ops.cast(self._seed, "uint32" if keras.backend.backend() == "jax" else "int32")

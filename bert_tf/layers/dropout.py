"""Dropout whose seed is an argument, and the seeds of the dropouts in one call of a model."""

import math

import keras
import numpy as np
from keras import ops

from bert_tf.base.tensorflow_ops import for_gpu


class DropoutSeeds:
    """Gives every dropout of a call its own seed, numbered in the order of the calls.

    Layers that drop elements take one seed per call even if their rate is 0, so that a dropout's
    number depends on the architecture alone.

    Args:
        seed: int32 [2], from which all seeds are derived.
        number: the number of the next seed.
    """

    def __init__(self, seed, number: int = 0):
        self._seed = seed
        self.number = number

    def next(self):
        """Returns the next seed, int32 [2]."""
        # A large odd multiple, so that successive seeds do not share their derived ones.
        step = (self.number * 0x9E3779B1 + 2**31) % 2**32 - 2**31
        self.number += 1
        return self._seed + np.array([step, 0], np.int32)

    def shifted(self, difference) -> "DropoutSeeds":
        """Returns seeds with the same next number, from a seed that differs by an int32 scalar."""
        return DropoutSeeds(ops.add(self._seed, difference), self.number)


def next_seed(seeds: DropoutSeeds | None):
    """Returns the next seed, or None if there are no seeds."""
    return None if seeds is None else seeds.next()


# Dropout compares 16 random bits with a threshold, so the rate is accurate to 0.001%.
_LEVELS = 1 << 16


def dropout_scale(rate: float) -> float:
    """Returns the factor for kept elements, which preserves the expectation.

    bfloat16 rounds it: 1 / 0.9 becomes 0.16% smaller.
    """
    return _LEVELS / (_LEVELS - round(rate * _LEVELS))


def dropout_mask(shape: tuple, rate: float, seed):
    """Returns a bool tensor of this shape, true with probability 1 - `rate`.

    Draws one random word for every two elements, because random numbers are slow on the CPU. On a
    GPU, computes them in the kernel that uses them.
    """
    if seed is None:
        raise ValueError("dropout needs a seed in training: pass seeds=DropoutSeeds(...)")
    limit = round(rate * _LEVELS)
    if for_gpu():
        return ops.right_shift(_hashed(shape, seed), np.uint32(16)) >= np.uint32(limit)
    rows, *rest = shape
    # One half of each word serves the first half of the rows, the other half the second. Along the
    # last axis, they would have to be interleaved.
    words = keras.random.randint(
        ((rows + 1) // 2, *rest), -(2**31), 2**31 - 1, dtype="int32", seed=_GivenSeed(seed)
    )
    limit = limit * _LEVELS - 2**31
    halves = [words >= limit, ops.left_shift(words, 16) >= limit]
    return ops.concatenate(halves, axis=0)[:rows]


def _hashed(shape: tuple, seed):
    """Returns a random uint32 for every element, the hash of its number and the seed."""
    # pcg3d of Hash Functions for GPU Rendering (Jarzynski and Olano, JCGT 9(3), 2020).
    size = math.prod(shape[1:])
    # Counted by row, because int32, the type of a range, ends at 2^31.
    row, place = (ops.cast(ops.arange(n, dtype="int32"), "uint32") for n in (shape[0], size))
    x = ops.reshape(row[:, None] * ops.cast(size, "uint32") + place, shape)
    x, y, z = (ops.cast(part, "uint32") for part in (x, seed[0], seed[1]))
    x, y, z = (part * np.uint32(1664525) + np.uint32(1013904223) for part in (x, y, z))
    x, y, z = _mixed(x, y, z)
    x, y, z = (ops.bitwise_xor(part, ops.right_shift(part, np.uint32(16))) for part in (x, y, z))
    return _mixed(x, y, z)[0]


def _mixed(x, y, z):
    x += y * z
    y += z * x
    z += x * y
    return x, y, z


class _GivenSeed(keras.random.SeedGenerator):
    """Passes a tensor as the seed to `keras.random`, which takes numbers and generators only."""

    def __init__(self, seed):
        self._seed = seed

    def next(self, ordered=True):
        # The backends expect different types; TensorFlow's would reduce any type other than int32.
        return ops.cast(self._seed, "uint32" if keras.backend.backend() == "jax" else "int32")


def plain_dropout(x, rate: float, seed):
    scale = ops.cast(dropout_scale(rate), x.dtype)
    return x * ops.where(dropout_mask(ops.shape(x), rate, seed), scale, ops.zeros_like(scale))


def dropout(x, rate: float, seed, recompute: bool = False):
    """Sets elements of `x` to 0 with probability `rate`, and scales the others up.

    With `recompute`, the backward pass draws the mask again instead of keeping it.
    """
    if not recompute:
        return plain_dropout(x, rate, seed)

    @ops.custom_gradient
    def drop(x):
        def gradient(upstream):
            # XLA does not know that this is zero, and so does not merge the two masks.
            zero = ops.cast(upstream[(0,) * len(x.shape)] * 0.0, "int32")
            return plain_dropout(upstream, rate, seed + zero)

        return plain_dropout(x, rate, seed), gradient

    return drop(x)


@keras.saving.register_keras_serializable(package="bert_tf")
class Dropout(keras.layers.Layer):
    """Sets elements to 0 in training, each with probability `rate`, and scales the others up.

    The seed decides which: the same seed drops the same elements, whatever ran before. A resumed
    run therefore draws the masks that it would have drawn without the interruption, and a layer
    that is recomputed in the backward pass drops the same elements again.

    Args:
        rate: the probability, at least 0 and below 1.
        recompute: whether the backward pass draws the mask again instead of keeping it.

    Call: `x` of any shape, `seeds` a `DropoutSeeds` -> the shape of x. Outside of training, or if
    the rate is 0, it returns x and needs no seeds.

    Raises:
        ValueError: in training, without seeds.

    Source: Dropout (Srivastava et al., 2014).
    """

    def __init__(self, rate: float, recompute: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate
        self.recompute = recompute
        self.built = True

    def call(self, x, seeds=None, training=None):
        seed = next_seed(seeds)
        if not training or not self.rate:
            return x
        return dropout(x, self.rate, seed, self.recompute)

    def get_config(self):
        return super().get_config() | {"rate": self.rate, "recompute": self.recompute}

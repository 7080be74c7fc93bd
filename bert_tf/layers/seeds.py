"""The seeds of the dropouts in one call of a model."""

import numpy as np
from keras import ops


class DropoutSeeds:
    """Gives every dropout of a call its own seed, numbered in the order of the calls.

    Layers that drop elements take one seed per call even if their rate is 0, so that a dropout's
    number depends on the architecture alone.

    Args:
        seed: int32 [2], from which all seeds are derived.
        number: the number of the first seed.

    Attributes:
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

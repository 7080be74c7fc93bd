"""Seeds of initial weights, from a generator of one thread in place of Python's global one."""

import contextlib
import random
from collections.abc import Iterator
from contextvars import ContextVar

from keras.initializers import Initializer, TruncatedNormal, Zeros

_generator: ContextVar[random.Random | None] = ContextVar("generator", default=None)
_drawn: ContextVar[bool] = ContextVar("drawn", default=True)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Makes a context in which this thread's new models get the weights of a seed.

    They are those that `keras.utils.set_random_seed` would give them, but other threads neither
    change them nor notice.
    """
    token = _generator.set(random.Random(seed))
    try:
        yield
    finally:
        _generator.reset(token)


def new_seed() -> int:
    """Returns the next seed for an initializer; outside of `seeded`, the one that Keras draws."""
    return (_generator.get() or random).randint(1, 10**9)


@contextlib.contextmanager
def loaded_next() -> Iterator[None]:
    """Makes a context in which new models have zeros for random weights, which takes less time.

    It is for models whose weights are loaded next.
    """
    token = _drawn.set(False)
    try:
        yield
    finally:
        _drawn.reset(token)


def truncated_normal(stddev: float) -> Initializer:
    """Returns an initializer with the next seed."""
    normal = TruncatedNormal(stddev=stddev, seed=new_seed())
    return normal if _drawn.get() else Zeros()

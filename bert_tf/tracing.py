"""Whether XLA compiles for a GPU what is being traced.

There, the time of a step depends on the number of its kernels. Some functions therefore have a
second form, which XLA joins with the operations around it. On a CPU, that form would be slow.
"""

import contextlib
import contextvars
from collections.abc import Iterator

_for_gpu = contextvars.ContextVar("for_gpu", default=False)


@contextlib.contextmanager
def compiling_for_gpu() -> Iterator[None]:
    """Makes `for_gpu` true within a block."""
    token = _for_gpu.set(True)
    try:
        yield
    finally:
        _for_gpu.reset(token)


def for_gpu() -> bool:
    """Returns whether the form for GPUs is wanted."""
    return _for_gpu.get()

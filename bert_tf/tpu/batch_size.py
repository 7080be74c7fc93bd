"""The largest batch whose training step fits into a TPU's memory."""

from collections.abc import Callable
from dataclasses import dataclass

from bert_tf.tpu.compiler import CompiledStep, DoesNotFit

# What the system leaves of a chip's memory, a little more than 98 % on those seen.
_USABLE = 0.98
_FULL = 0.95
_MOST_COMPILES = 6
_MOST_GROWTH = 64
_MULTIPLE = 8


@dataclass(frozen=True)
class LargestBatch:
    """What a search has found; sequences of one replica.

    Attributes:
        size: 0 where not even one sequence fits.
        step: compiled with it; None for size 0.
        bytes_per_sequence: by which memory grew from the first size on; None where it is the first.
    """

    size: int
    step: CompiledStep | None
    bytes_per_sequence: float | None = None


def attempt(compile_at: Callable[[int], CompiledStep], size: int) -> CompiledStep | DoesNotFit:
    """Compiles for so many sequences; gives the error, if it is that they do not fit."""
    try:
        return compile_at(size)
    except DoesNotFit as error:
        return error


def find_largest_batch(
    compile_at: Callable[[int], CompiledStep],
    size: int,
    step: CompiledStep | DoesNotFit,
    memory: float,
) -> LargestBatch:
    """Estimates the largest batch from compiles at two sizes, and compiles it to be sure.

    Memory grows in proportion to the batch, but for what the compiler does where it has much of
    it, or little: so what is estimated is compiled, and serves for the next estimate, until one
    fits and fills memory well.

    Args:
        compile_at: compiles the step for so many sequences, or raises `DoesNotFit`.
        size, step: one that was compiled, or tried, already.
        memory: bytes that a replica has.
    """
    usable = _USABLE * memory
    while isinstance(step, DoesNotFit):
        if size == 1:
            return LargestBatch(0, None)
        size = max(1, min(size // 2, int(size * 0.5 * usable / step.needed)))
        step = attempt(compile_at, size)
    free = usable - (step.memory - step.temporaries)
    # Were temporaries all that grows, the second batch would fill half of what is free.
    growth = (free / max(step.temporaries, 1) - 1) / 2
    target = size + max(1, int(size * min(growth, _MOST_GROWTH)))
    temporaries = {size: step.temporaries}
    fits, too_large = size, None
    for _ in range(_MOST_COMPILES):
        target = _rounded(target)
        if target <= fits:
            break
        found = attempt(compile_at, target)
        if isinstance(found, DoesNotFit):
            temporaries[target], too_large = found.needed, target
        else:
            temporaries[target], fits, step = found.temporaries, target, found
            if found.memory >= _FULL * usable:
                break
        other = too_large or size
        slope = (temporaries[fits] - temporaries[other]) / (fits - other)
        if slope <= 0:
            break
        target = fits + int((free - temporaries[fits]) / slope)
        target = min(target, too_large - 1) if too_large else target
    growth = (temporaries[fits] - temporaries[size]) / (fits - size) if fits > size else None
    return LargestBatch(fits, step, growth)


def _rounded(size: int) -> int:
    return size - size % _MULTIPLE if size > _MULTIPLE else size

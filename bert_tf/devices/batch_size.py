"""The largest batch whose training step fits into the memory of a device."""

from collections.abc import Callable

from bert_tf.devices.compiler import CompiledStep, DoesNotFit
from bert_tf.devices.topology import USABLE

# The search ends when this share of the usable memory is filled.
_FULL = 0.95
_MOST_COMPILES = 6
_MOST_GROWTH = 64
_MULTIPLE = 8


def find_largest_batch(
    compile_for: Callable[[int], CompiledStep | DoesNotFit],
    size: int,
    step: CompiledStep | DoesNotFit,
    memory: float,
) -> tuple[int, CompiledStep | None]:
    """Extrapolates the largest batch from two compiled sizes, and verifies it by compiling it.

    Memory grows linearly with the batch, except that the compiler makes different choices when
    memory is plentiful or tight. Every estimate is therefore compiled and improves the next one,
    until a size fits and fills the memory well.

    Args:
        compile_for: returns the step compiled for a number of sequences, or the error.
        size: the size that was tried first; smaller ones are tried until one fits.
        step: the result of `compile_for` for `size`.
        memory: bytes of memory of a replica.

    Returns the number of sequences and the step compiled for it; 0 and None if not even one fits.
    """
    usable = USABLE * memory
    while isinstance(step, DoesNotFit):
        if size == 1:
            return 0, None
        size = max(1, min(size // 2, int(size * 0.5 * usable / step.needed)))
        step = compile_for(size)
    free = usable - (step.memory - step.temporaries)
    # If only temporaries grow, the second size fills half of the free memory.
    growth = (free / max(step.temporaries, 1) - 1) / 2
    target = size + max(1, int(size * min(growth, _MOST_GROWTH)))
    temporaries = {size: step.temporaries}
    fits, too_large = size, None
    for _ in range(_MOST_COMPILES):
        if target > _MULTIPLE:
            target -= target % _MULTIPLE
        if target <= fits:
            break
        found = compile_for(target)
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
    return fits, step

"""The largest batch whose training step fits into a TPU's memory."""

from collections.abc import Callable
from dataclasses import dataclass

from bert_tf.training.tpu_compiler import CompiledStep, DoesNotFit

# What the system leaves of a chip's memory, a little more than 98 % on those seen.
_USABLE = 0.98
_ROUND = 8
_STEP_DOWN = 0.05


@dataclass(frozen=True)
class LargestBatch:
    """What a search has found; sequences of one replica.

    Attributes:
        size: 0 where not even one sequence fits.
        step: compiled with it; None for size 0.
        bytes_per_sequence: by which memory grows; None where too little was compiled to tell.
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

    Memory grows in proportion to the batch, up to rounding and what the compiler does where it
    gets tight: so the estimate is compiled, and a smaller one as long as it does not fit.

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
    # Were temporaries all that grows, the second would fill half of what is free.
    growth = (usable - step.memory) / (2 * max(step.temporaries, 1))
    second_size = _rounded(size + max(1, int(size * growth)))
    second = attempt(compile_at, second_size)
    if isinstance(second, DoesNotFit):
        return _step_down(compile_at, second_size, LargestBatch(size, step))
    slope = (second.memory - step.memory) / (second_size - size)
    if slope <= 0:
        return LargestBatch(second_size, second)
    found = LargestBatch(second_size, second, slope)
    estimate = _rounded(second_size + int((usable - second.memory) / slope))
    if estimate <= second_size:
        return found
    last = attempt(compile_at, estimate)
    if isinstance(last, DoesNotFit):
        return _step_down(compile_at, estimate, found)
    return LargestBatch(estimate, last, slope)


def _step_down(
    compile_at: Callable[[int], CompiledStep], too_large: int, fits: LargestBatch
) -> LargestBatch:
    """The first that fits of sizes that fall, ever faster, from one that does not."""
    size, step_down = too_large, _STEP_DOWN
    while (size := _rounded(min(size - 1, int(size * (1 - step_down))))) > fits.size:
        step = attempt(compile_at, size)
        if isinstance(step, CompiledStep):
            return LargestBatch(size, step, fits.bytes_per_sequence)
        step_down *= 2
    return fits


def _rounded(size: int) -> int:
    return size - size % _ROUND if size > _ROUND else size

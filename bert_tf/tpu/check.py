"""Compiles a training step for a TPU and prints what the compiler reports."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from bert_tf.tpu import report
from bert_tf.tpu.batch_size import find_largest_batch, try_compile
from bert_tf.tpu.compiler import CompiledStep, DoesNotFit, TpuCompiler
from tfrecords.progress import say

Batch = Mapping[str, tf.Tensor]


def check_step(
    compiler: TpuCompiler,
    subject: report.Subject,
    *,
    step: Callable[[Batch], Any],
    example_batch: Callable[[int], Batch],
    search: bool,
) -> bool:
    """Compiles a step for the subject's batch size, and searches for the largest one that fits.

    Args:
        step: the step of one replica, a function of a batch.
        example_batch: makes a batch of a number of sequences; only shapes and types matter.
        search: whether to search for the largest batch.

    Returns:
        whether the subject's batch size fits.
    """
    started = time.perf_counter()
    print(report.describe_subject(subject), flush=True)
    say("\nCompiling")

    def compile_for(size: int) -> CompiledStep:
        elapsed = time.perf_counter() - started
        say(f"[{elapsed:5.0f} s] {size} sequences per {subject.replica}: ", end="")
        try:
            compiled = compiler.compile(step, example_batch(size))
        except DoesNotFit as error:
            say(f"does not fit, {error}")
            raise
        say(f"fits, {compiled.memory / 1e9:,.2f} GB")
        return compiled

    compiled = try_compile(compile_for, subject.batch_size)
    print(f"\n{report.describe_step(subject, compiled)}\n", flush=True)
    if search:
        largest = find_largest_batch(compile_for, subject.batch_size, compiled, subject.memory)
        print(f"\n{report.describe_largest(subject, largest)}")
    return not isinstance(compiled, DoesNotFit)

"""Measures how fast encoders are."""

import time
from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from tfrecords.progress import progress_bar

BATCH, LENGTH = 32, 128
_ROUNDS = 10


def sequences_per_second(encoders: Sequence[keras.Model]) -> list[float]:
    """Measures inference with batches of 32 sequences of 128 tokens, without padding.

    The encoders take turns, so that whatever else the machine does slows all of them. The fastest
    turn counts, as in Python's timeit, because other work can only make a turn slower.

    Args:
        encoders: encoders; those with fewer positions read shorter sequences.

    Returns:
        sequences per second in the fastest of ten turns.
    """
    calls = [_call(encoder) for encoder in encoders]
    seconds = []
    with progress_bar(total=_ROUNDS, desc="Measuring speed", unit="round") as progress:
        for _ in range(_ROUNDS):
            seconds.append([_seconds(call) for call in calls])
            progress.update()
    return list(BATCH / np.min(seconds, axis=0))


def _call(encoder: keras.Model) -> Callable[[], None]:
    config = encoder.config
    length = min(LENGTH, config.max_position_embeddings)
    ids = tf.random.stateless_uniform([BATCH, length], [0, 0], 0, config.vocab_size, tf.int32)
    inputs = {
        "input_word_ids": ids,
        "input_mask": tf.ones_like(ids),
        "input_type_ids": tf.zeros_like(ids),
    }
    function = tf.function(lambda: encoder(inputs, training=False)["pooled_output"])
    # Without it, TensorFlow would warn that many models are many traces of one function.
    concrete = function.get_concrete_function()
    return lambda: concrete().numpy()


def _seconds(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start

"""Operations that Keras lacks or implements slowly, and whether XLA compiles for a GPU.

There, the time of a step depends on the number of its kernels. Some functions therefore have a
second form, which XLA joins with the operations around it. On a CPU, that form would be slow.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

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


def argmax(x: tf.Tensor) -> tf.Tensor:
    """Returns the index of the largest value of the last axis: [..., C] -> int32 [...].

    `keras.ops.argmax` makes several passes over x to order negative zeros.
    """
    return tf.argmax(x, axis=-1, output_type=tf.int32)


def compiled_by_xla() -> bool:
    """Returns whether XLA compiles what is being traced, on whatever device."""
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def is_traced() -> bool:
    """Returns whether a `tf.function`, such as a training step, is being traced."""
    return tf.inside_function()


def recompute(function: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], x: tf.Tensor) -> tf.Tensor:
    """Computes `function(x, zero)`, and again in the backward pass, so that only x is kept.

    `keras.remat` does the same, but the compiler for TPUs sees through it and keeps everything.
    `function` may read variables; `zero` is a scalar.
    """

    @tf.custom_gradient
    def compute(x):
        def gradient(upstream, variables):
            # XLA does not know that this is zero, and so does not merge the two computations.
            zero = tf.reshape(upstream, [-1])[0] * 0
            with tf.GradientTape() as tape:
                again = x + zero
                tape.watch(again)
                output = function(again, zero)
            x_gradient, *gradients = tape.gradient(output, [again, *variables], upstream)
            return x_gradient, gradients

        return function(x, tf.zeros([], x.dtype)), gradient

    return compute(x)

"""The loss of a classification over many classes, with few passes over the logits."""

import keras
from keras import ops


def cross_entropy(logits, labels, recompute: bool = False):
    """Softmax cross-entropy with integer labels: logits [..., C], labels int [...] -> [...].

    The same as `keras.losses.sparse_categorical_crossentropy(from_logits=True)`, in float32. Over
    a whole vocabulary that loss is bound by memory and is a large part of a small model's step;
    keeping the exponentials of the forward pass for the gradient saves half of it on the CPU.

    Args:
        recompute: whether the backward pass computes them a second time instead.
    """
    if recompute:
        logits = ops.cast(logits, "float32")
        return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    num_classes = logits.shape[-1]
    flat_logits = ops.cast(ops.reshape(logits, (-1, num_classes)), "float32")
    losses = _cross_entropy(flat_logits, ops.reshape(labels, (-1, 1)))
    return ops.reshape(losses, ops.shape(labels))


@ops.custom_gradient
def _cross_entropy(logits, labels):
    """logits float32 [N, C], labels int [N, 1] -> [N]."""
    largest = ops.max(logits, axis=-1, keepdims=True)
    exponentials = ops.exp(logits - largest)
    total = ops.sum(exponentials, axis=-1, keepdims=True)
    losses = ops.log(total) + largest - ops.take_along_axis(logits, labels, axis=-1)

    def gradient(upstream):
        scaled = exponentials * (upstream[:, None] / total)  # softmax times upstream
        rows = ops.arange(ops.shape(labels)[0], dtype=labels.dtype)[:, None]
        at_labels = ops.take_along_axis(scaled, labels, axis=-1)[:, 0] - upstream
        indices = ops.concatenate([rows, labels], axis=-1)
        return ops.scatter_update(scaled, indices, at_labels), None

    return losses[:, 0], gradient

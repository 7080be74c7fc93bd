"""What the classifiers in single files have in common."""

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from bert_tf.config import Head

# What a classifier reads and predicts, in the file of a model.
CLASSIFIER = "classifier.json"
# Maps the encoder's inputs by name, int32 [B, S], to `probabilities` or a `value`, or to the
# outputs of an encoder.
Runner = Callable[..., Mapping[str, np.ndarray]]


class RunnerModel:
    """A classifier in a file that is called like a `BertTaskModel`.

    Args:
        run: maps rows of the encoder's inputs to logits [B, C], or to values [B].
        head: what the model predicts.

    Call: the encoder's inputs, int32 [B, S] -> logits [B, C], or values [B] if there are no labels.
    """

    variables = ()

    def __init__(self, run: Callable[[dict[str, np.ndarray]], np.ndarray], head: Head):
        self._run, self._labels = run, head.labels

    def __call__(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        def compute(*columns):
            return self._run(dict(zip(inputs, columns, strict=True)))

        outputs = tf.numpy_function(compute, [*inputs.values()], tf.float32)
        shape = [None, len(self._labels)] if self._labels else [None]
        return tf.ensure_shape(outputs, shape)


def outputs_of(found: Mapping[str, np.ndarray], head: Head) -> np.ndarray:
    """Returns the logits, or the values, from which a classifier made its outputs.

    Logits of classes that exclude each other are known only up to a constant.
    """
    if not head.labels:
        return np.asarray(found["value"])
    probabilities = np.asarray(found["probabilities"])
    tiny = np.finfo(np.float32).tiny
    logits = np.log(np.maximum(probabilities, tiny))
    if head.multi_label:
        logits -= np.log(np.maximum(1.0 - probabilities, tiny))
    return logits

"""Loads the weights of a checkpoint into a model."""

from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from bert_tf.training import checkpoints
from bert_tf.weights.growing import VocabularyMapping


def load_weights(
    checkpoint: str,
    weights: Sequence[keras.Variable],
    mapping: VocabularyMapping | None = None,
) -> None:
    """Sets all of `weights` from a checkpoint written by `Checkpointer`.

    Args:
        mapping: grows the tables with one row per token to an extended vocabulary.

    Raises:
        ValueError: a weight is missing from the checkpoint or has another shape there; no weight
            is changed in that case.
        OSError: the checkpoint is damaged.
    """
    targets = {weight.path: weight.value for weight in weights}
    shapes = checkpoints.saved_shapes(checkpoint)
    if mapping:
        shapes |= _grown_shapes(checkpoint, shapes, targets, mapping)
    checkpoints.check_shapes(checkpoint, shapes, targets)
    for path, value in checkpoints.read_weights(checkpoint, targets).items():
        targets[path].assign(mapping.grow(value) if mapping and mapping.grows(path) else value)


def _grown_shapes(
    checkpoint: str,
    saved: Mapping[str, tuple[int, ...]],
    targets: Mapping[str, tf.Variable],
    mapping: VocabularyMapping,
) -> dict[str, tuple[int, ...]]:
    """Returns the shapes that the saved tables have once they are grown."""
    grown = {}
    for path in sorted(filter(mapping.grows, targets.keys() & saved.keys())):
        for size, expected, owner in (
            (saved[path][0], mapping.old_size, checkpoint),
            (targets[path].shape[0], mapping.new_size, "this model"),
        ):
            if size != expected:
                raise ValueError(
                    f"{owner} has a vocabulary of {size} tokens, but the mapping leads from "
                    f"{mapping.old_size} to {mapping.new_size}: use the mapping that belongs to it"
                )
        grown[path] = (mapping.new_size, *saved[path][1:])
    return grown

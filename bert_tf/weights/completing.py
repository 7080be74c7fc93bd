"""Random values for the weights that a checkpoint lacks."""

import dataclasses
import functools
from collections.abc import Collection, Sequence

import numpy as np

from bert_tf.layers.initializers import truncated_normal
from bert_tf.training.checkpoints import Tensor
from bert_tf.weights.checkpoint import Checkpoint, matches
from bert_tf.weights.names import part_of
from bert_tf.weights.table import entries, own_rows


def complete(
    checkpoint: Checkpoint, parts: Sequence[str], allowed: Collection[str]
) -> tuple[Checkpoint, list[str]]:
    """Adds the weights that a checkpoint lacks, with the random values of a new model.

    Args:
        parts: those of `names.PARTS` that the result must have.
        allowed: patterns of the paths of weights that may be missing.

    Returns:
        the complete checkpoint, and the paths of the added weights.

    Raises:
        ValueError: other weights are missing; lists them.
    """
    config = checkpoint.spec.config
    shapes = {entry.ours: entry.our_shape for entry in entries(own_rows(config), config, parts)}
    missing = [path for path in shapes if path not in checkpoint.tensors]
    # `import_tensors` has already checked the parts that a foreign checkpoint has.
    checked = {part_of(path) for path in checkpoint.tensors} if checkpoint.format else ()
    refused = [path for path in missing if part_of(path) not in checked]
    if refused := [path for path in refused if not matches(path, allowed)]:
        raise ValueError(
            f"{checkpoint.path} lacks {', '.join(refused)}: to start these from random values, "
            f"give --allow_missing='{refused[0].rpartition('/')[0]}/*'"
        )
    stddev = config.initializer_range
    added = {
        path: Tensor(shapes[path], functools.partial(_random, path, shapes[path], stddev))
        for path in missing
    }
    return dataclasses.replace(checkpoint, tensors={**checkpoint.tensors, **added}), missing


def _random(path: str, shape: tuple[int, ...], stddev: float) -> np.ndarray:
    if path.endswith("gamma"):
        return np.ones(shape, np.float32)
    if path.endswith(("beta", "bias")):
        return np.zeros(shape, np.float32)
    return np.asarray(truncated_normal(stddev)(shape, "float32"))

"""Random values for the weights that a checkpoint lacks."""

import dataclasses
import functools
from collections.abc import Collection, Sequence

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.layers.initializers import truncated_normal
from bert_tf.training.checkpoints import Tensor
from bert_tf.weights.checkpoint import Checkpoint, matches
from bert_tf.weights.names import num_layers, part_of, sizes
from bert_tf.weights.names import parts as all_parts


def complete(
    checkpoint: Checkpoint, parts: Sequence[str], allowed: Collection[str]
) -> tuple[Checkpoint, list[str]]:
    """Adds the weights that a checkpoint lacks, with the random values of a new model.

    Args:
        parts: the parts of `names.parts` that the result must have.
        allowed: patterns of the paths of weights that may be missing.

    Returns:
        the complete checkpoint, and the paths of the added weights.

    Raises:
        ValueError: other weights are missing; lists them.
    """
    shapes = _shapes(checkpoint.spec.config, parts)
    missing = [path for path in shapes if path not in checkpoint.tensors]
    # `import_tensors` has already checked the parts that a foreign checkpoint has.
    checked = {part_of(path) for path in checkpoint.tensors} if checkpoint.format else ()
    refused = [path for path in missing if part_of(path) not in checked]
    if refused := [path for path in refused if not matches(path, allowed)]:
        raise ValueError(
            f"{checkpoint.path} lacks {', '.join(refused)}: to start these from random values, "
            f"give --allow_missing='{refused[0].rpartition('/')[0]}/*'"
        )
    stddev = checkpoint.spec.config.initializer_range
    added = {
        path: Tensor(shapes[path], functools.partial(_random, path, shapes[path], stddev))
        for path in missing
    }
    return dataclasses.replace(checkpoint, tensors={**checkpoint.tensors, **added}), missing


def _shapes(config: BertConfig, parts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    known = all_parts(config)
    return {
        path.format(index): tuple(sizes(config, layer=index)[name] for name in shape)
        for part in parts
        for path, shape in known.get(part, {}).items()
        for index in range(num_layers(config) if "{}" in path else 1)
    }


def _random(path: str, shape: tuple[int, ...], stddev: float) -> np.ndarray:
    if path.endswith("gamma"):
        return np.ones(shape, np.float32)
    if path.endswith(("beta", "bias")):
        return np.zeros(shape, np.float32)
    return np.asarray(truncated_normal(stddev)(shape, "float32"))

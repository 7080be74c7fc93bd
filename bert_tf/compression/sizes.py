"""How large the weights of an encoder and its head are."""

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_tf.compression.pruning import PRUNED
from bert_tf.training.checkpoints import Tensor
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.names import part_of


def num_parameters(checkpoint: Checkpoint) -> int:
    """Returns the number of parameters, without a pooler that the head does not read."""
    return sum(int(np.prod(tensor.shape)) for _, tensor in _weights(checkpoint))


def sparse_sizes(teacher: Checkpoint, student: Checkpoint) -> dict[str, Any]:
    """Returns what `compression.json` says about the zeros of a student.

    `sparsity` is the share of zeros in the weights that `PruningAdamW` prunes.
    """
    values = {path: tensor.read() for path, tensor in _weights(student)}
    pruned = [values[path] for path in values if PRUNED.fullmatch(path)]
    kept = sum(map(np.count_nonzero, pruned))
    return {
        "sparsity": float(1 - kept / sum(value.size for value in pruned)),
        "student_nonzero": int(sum(map(np.count_nonzero, values.values()))),
        "teacher_gzip_bytes": _gzip_bytes(teacher),
        "student_bytes": _gzip_bytes(student),
    }


def _gzip_bytes(checkpoint: Checkpoint) -> int:
    """Returns the size in bytes of all parameters as float32 under gzip."""
    compressor = zlib.compressobj(wbits=31)
    parts = (np.ascontiguousarray(x.read(), np.float32) for _, x in _weights(checkpoint))
    return sum(len(compressor.compress(part)) for part in parts) + len(compressor.flush())


def _weights(checkpoint: Checkpoint) -> Iterator[tuple[str, Tensor]]:
    # Some programs leave out a pooler that is not read.
    unread = "pooler" if checkpoint.head and not checkpoint.head.reads_pooler else None
    for path in sorted(checkpoint.tensors):
        if path.split("/")[0] in ("encoder", "task_model") and part_of(path) != unread:
            yield path, checkpoint.tensors[path]

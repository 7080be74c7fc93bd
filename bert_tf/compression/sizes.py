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


def gzip_bytes(checkpoint: Checkpoint) -> int:
    """Returns the size in bytes of all parameters as float32 under gzip."""
    compressor = zlib.compressobj(wbits=31)
    parts = (np.ascontiguousarray(x.read(), np.float32) for _, x in _weights(checkpoint))
    return sum(len(compressor.compress(part)) for part in parts) + len(compressor.flush())


def sparse_sizes(teacher: Checkpoint, student: Checkpoint) -> dict[str, Any]:
    """Returns what `compression.json` says about the zeros of a student.

    Returns:
        sparsity: the share of zeros in the weights that `PruningAdamW` prunes.
        student_nonzero: how many of the student's parameters are not zero.
        teacher_gzip_bytes, student_bytes: see `gzip_bytes`.
    """
    counts = {
        path: (int(np.count_nonzero(tensor.read())), int(np.prod(tensor.shape)))
        for path, tensor in _weights(student)
    }
    pruned = np.sum([counts[path] for path in counts if PRUNED.fullmatch(path)], axis=0)
    return {
        "sparsity": float(1 - pruned[0] / pruned[1]),
        "student_nonzero": sum(nonzero for nonzero, _ in counts.values()),
        "teacher_gzip_bytes": gzip_bytes(teacher),
        "student_bytes": gzip_bytes(student),
    }


def _weights(checkpoint: Checkpoint) -> Iterator[tuple[str, Tensor]]:
    # Some programs leave out a pooler that is not read.
    unread = "pooler" if checkpoint.head and not checkpoint.head.reads_pooler else None
    for path in sorted(checkpoint.tensors):
        if path.split("/")[0] in ("encoder", "task_model") and part_of(path) != unread:
            yield path, checkpoint.tensors[path]

"""What a run keeps for when it resumes: results that take long to compute, and its teacher."""

import hashlib
import io
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from bert_tf.base.files import read_file
from bert_tf.base.output_files import atomic_write, check_free
from bert_tf.base.progress import say
from bert_tf.base.provenance import check_same
from bert_tf.finetuning.saved_run import PRECOMPUTED
from bert_tf.runs.run import Run
from bert_tf.weights.checkpoint import Checkpoint, fingerprint

_Arrays = dict[str, np.ndarray]
_DIGEST_BYTES = hashlib.sha256().digest_size


def computed_once(
    run_folder: str, name: str, inputs: object, compute: Callable[[], _Arrays]
) -> _Arrays:
    """Returns the result of `compute`; keeps it in the run folder and reads it there the next time.

    The file holds a checksum of the inputs and the arrays, then the arrays in NumPy's npz format.
    `inputs` are everything that determines the result; different ones differ in their `repr`.
    """
    path, key = os.path.join(run_folder, PRECOMPUTED, name), repr(inputs).encode()
    stored = _read(path)
    digest, content = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
    if digest == hashlib.sha256(key + content).digest():
        say(f"Read {path}.")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return dict(arrays)
    if stored:
        say(f"{path} is damaged or belongs to other flags or data: computing it again.")
    arrays, file = compute(), io.BytesIO()
    np.savez(file, **arrays)
    content = file.getvalue()
    atomic_write(path, hashlib.sha256(key + content).digest() + content)
    return arrays


def _read(path: str) -> bytes:
    """Returns the content of a file; empty if there is no such file."""
    return read_file(path) if tf.io.gfile.exists(path) else b""


def check_same_teacher(run_folder: str, teacher: Checkpoint) -> None:
    """Raises a ValueError unless a run resumes with its teacher.

    The teacher's checksum is kept in the run folder.
    """
    path, digest = os.path.join(run_folder, PRECOMPUTED, "teacher"), fingerprint(teacher)
    stored = _read(path).decode(errors="replace")
    if stored and Run(run_folder).has_checkpoint:
        then, now = ({teacher.path: {"sha256": x}} for x in (stored, digest))
        check_same(run_folder, then, now, "restore it, or choose another --output_dir")
    if stored and len(stored) != len(digest):
        check_free(path, advice="it holds no checksum, so choose another --output_dir")
    if stored != digest:
        atomic_write(path, digest)

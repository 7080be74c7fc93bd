"""What takes long to compute before training, kept in the run folder for a run that resumes."""

import hashlib
import io
import os
import zipfile
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.saved_run import PRECOMPUTED
from bert_tf.weights.checkpoint import Checkpoint
from tfrecords.progress import say
from tfrecords.writer import atomic_write

Arrays = dict[str, np.ndarray]
_KEY = "key"


def computed_once(
    run_folder: str | None, name: str, inputs: object, compute: Callable[[], Arrays]
) -> Arrays:
    """Returns what `compute` returns, and reads it from the run folder the next time.

    Args:
        run_folder: the run folder; None to keep nothing.
        name: the name of the file, such as "copies".
        inputs: all that decides the result; its `repr` tells different inputs apart.
        compute: returns arrays.

    Raises:
        OSError: the file cannot be written.
    """
    if run_folder is None:
        return compute()
    key = hashlib.sha256(repr(inputs).encode()).hexdigest()
    path = os.path.join(run_folder, PRECOMPUTED, f"{name}.npz")
    arrays = _read(path)
    if str(arrays.pop(_KEY, "")) == key:
        say(f"Read {path}.")
        return arrays
    arrays = compute()
    file = io.BytesIO()
    np.savez(file, **arrays, **{_KEY: np.array(key)})
    atomic_write(path, file.getvalue())
    return arrays


def _read(path: str) -> Arrays:
    """Returns the arrays in a file; none if there is no such file, or if it is damaged."""
    if not tf.io.gfile.exists(path):
        return {}
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            stored = io.BytesIO(file.read())
        with np.load(stored, allow_pickle=False) as arrays:
            return dict(arrays)
    except (tf.errors.OpError, ValueError, EOFError, zipfile.BadZipFile) as error:
        say(f"{path} cannot be read ({error}): computing it again.")
        return {}


def fingerprint(checkpoint: Checkpoint) -> str:
    """Returns a checksum of a model: its weights, configuration, vocabulary, casing and head."""
    spec = checkpoint.spec
    vocab = spec.vocab and spec.vocab.sha256
    digest = hashlib.sha256(repr((spec.config, vocab, spec.lower_case, checkpoint.head)).encode())
    for name, tensor in sorted(checkpoint.tensors.items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensor.read()).tobytes())
    return digest.hexdigest()

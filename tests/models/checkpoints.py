"""Checkpoints that tests make, load, write and damage."""

import os
import pathlib

import numpy as np
from support import one_line

from bert_tf.config import Head, ModelSpec
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.training.checkpoints import Tensor
from bert_tf.weights.checkpoint import OPTIONAL, Checkpoint, load_weights
from bert_tf.weights.opening import open_checkpoint


def of_arrays(arrays: dict[str, np.ndarray], spec: ModelSpec, head=None) -> Checkpoint:
    """A checkpoint in memory; the arrays have our names."""
    tensors = {path: Tensor(array.shape, array.copy) for path, array in arrays.items()}
    return Checkpoint("made up", "", spec, tensors, head)


def of_model(model, spec: ModelSpec | None = None, head: Head | None = None) -> Checkpoint:
    arrays = {w.path: w.numpy() for w in model.weights if "seed" not in w.path}
    return of_arrays(arrays, spec or ModelSpec(model.config), head)


def values(path) -> dict[str, np.ndarray]:
    """The weights of a checkpoint on disk, by our names."""
    return {name: tensor.read() for name, tensor in open_checkpoint(str(path)).tensors.items()}


def pretrainer(checkpoint: Checkpoint) -> BertPretrainer:
    """The model that has the weights of a checkpoint; parts that it lacks are random."""
    model = BertPretrainer(checkpoint.spec.config)
    load_weights(checkpoint.path, checkpoint.tensors, model.weights, optional_parts=OPTIONAL)
    return model


def written(format_, checkpoint: Checkpoint, path: pathlib.Path) -> str:
    """Writes a checkpoint into a new folder with a module of `weights.formats`."""
    path.mkdir(parents=True)
    format_.write(checkpoint, str(path))
    return str(path)


def assert_refused(path, message: str, **options) -> None:
    """Asserts that a checkpoint cannot be read, for a reason of one line."""
    with one_line(message):
        for tensor in open_checkpoint(os.fspath(path), **options).tensors.values():
            tensor.read()


def assert_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Compares arrays by their names, bit for bit."""
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, strict=True, err_msg=name)

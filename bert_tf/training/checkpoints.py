"""Saving, resuming and starting from checkpoints, with every variable under its own name."""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf

from bert_tf.training.optimizers import AdamW
from bert_tf.training.vocabulary_mapping import VocabularyMapping


class Checkpointer:
    """Keeps the newest training states of a run in a folder.

    A checkpoint holds the model's weights under their Keras paths, the optimizer's moments under
    `<path>/adam_m` and `<path>/adam_v`, the state of the random generators, and the step. It is
    in TensorFlow's own format and has no Python object in it.

    Args:
        directory: where `ckpt-<step>` files go.
        model, optimizer: what to save.
        step: int64 variable, the number of finished steps.
        max_to_keep: older checkpoints are deleted.
    """

    def __init__(
        self,
        directory: str,
        model: keras.Model,
        optimizer: AdamW,
        step: tf.Variable,
        max_to_keep: int = 5,
    ):
        self._weights = {weight.path: weight.value for weight in model.weights}
        self._slots = optimizer.slots
        generators = [
            variable for variable in model.variables if variable.path not in self._weights
        ]
        self._step = step
        self._directory = directory
        checkpoint = tf.train.Checkpoint(
            model=self._weights,
            optimizer=self._slots,
            generators=[variable.value for variable in generators],
            step=step,
        )
        self._manager = tf.train.CheckpointManager(
            checkpoint, directory, max_to_keep, checkpoint_name="ckpt"
        )

    def restore(self) -> str | None:
        """Restores the newest checkpoint, if there is one, and returns its path.

        Raises:
            ValueError: where it is of another model; the message names the variable.
            OSError: where it cannot be read, or the folder's `checkpoint` file is lost.
        """
        path = self._manager.latest_checkpoint
        if path:
            _check_shapes(path, saved_shapes(path), self._weights)
            with _reading(path):
                self._manager.checkpoint.restore(path).assert_existing_objects_matched()
        elif found := tf.io.gfile.glob(os.path.join(self._directory, "ckpt-*.index")):
            raise OSError(
                f"{self._directory}: its file `checkpoint` is lost or damaged; write "
                f'model_checkpoint_path: "{os.path.basename(found[-1]).removesuffix(".index")}" '
                "in it, or take another folder"
            )
        return path

    def save(self) -> str:
        """Writes a checkpoint of the current step and returns its path.

        Raises:
            OSError: it cannot be written; the checkpoints before it are kept.
        """
        try:
            return self._manager.save(checkpoint_number=self._step.numpy())
        except tf.errors.OpError as error:
            raise OSError(
                f"cannot write a checkpoint to {self._directory}: {error.message}"
            ) from error


def latest_checkpoint(path: str) -> str:
    """The checkpoint a user means: the newest of a folder, or the one of this name.

    Raises:
        FileNotFoundError: where there is none.
    """
    found = tf.train.latest_checkpoint(path) if tf.io.gfile.isdir(path) else path
    if not found or not tf.io.gfile.exists(f"{found}.index"):
        raise FileNotFoundError(f"{path}: no checkpoint there (looked for {found or 'a folder'})")
    return found


def saved_shapes(checkpoint: str) -> dict[str, tuple[int, ...]]:
    """The paths and shapes of the model weights in a checkpoint of `Checkpointer`."""
    with _reading(checkpoint):
        shapes = tf.train.load_checkpoint(checkpoint).get_variable_to_shape_map()
    paths = {_path(key): tuple(shape) for key, shape in shapes.items() if _path(key)}
    if not paths:
        raise ValueError(f"{checkpoint}: holds no model weights of ours; convert it first")
    return paths


def load_weights(
    checkpoint: str,
    weights: Sequence[keras.Variable],
    mapping: VocabularyMapping | None = None,
) -> None:
    """Sets every one of `weights` from a checkpoint of `Checkpointer`.

    Args:
        mapping: lets the arrays with a row for every token grow with an extended vocabulary.

    Raises:
        ValueError: where one is missing there or has another shape; nothing is set then.
    """
    targets = {weight.path: weight.value for weight in weights}
    saved = saved_shapes(checkpoint)
    if mapping:
        saved = _grown_shapes(checkpoint, saved, targets, mapping)
    _check_shapes(checkpoint, saved, targets)
    with _reading(checkpoint):
        reader = tf.train.load_checkpoint(checkpoint)
        keys = [key for key in reader.get_variable_to_shape_map() if _path(key) in targets]
        values = {_path(key): np.asarray(reader.get_tensor(key)) for key in keys}
    for path, value in values.items():
        targets[path].assign(mapping.grow(value) if mapping and mapping.grows(path) else value)


@contextlib.contextmanager
def _reading(checkpoint: str) -> Iterator[None]:
    """Turns what TensorFlow raises over damaged files into one OSError."""
    try:
        yield
    except (tf.errors.OpError, IndexError) as error:
        raise OSError(
            f"{checkpoint} is damaged or incomplete; to go on from an older checkpoint, remove its "
            "files and name the older one in the file `checkpoint` beside it"
        ) from error


def _path(key: str) -> str | None:
    """A weight's path from its key, in which tf.train.Checkpoint writes "/" as ".S"."""
    match = re.fullmatch(r"model/([^/]+)/\.ATTRIBUTES/VARIABLE_VALUE", key)
    return match and match[1].replace(".S", "/").replace("..", ".")


def _check_shapes(checkpoint: str, saved: dict, targets: dict) -> None:
    parts = {path.split("/")[0] for path in targets}
    if extra := sorted(p for p in saved if p not in targets and p.split("/")[0] in parts):
        raise ValueError(f"{checkpoint}: has {extra[0]} besides; it is of another model")
    for path, target in targets.items():
        if path not in saved:
            raise ValueError(f"{checkpoint}: has no {path}; it is of another model")
        if saved[path] != tuple(target.shape):
            raise ValueError(
                f"{checkpoint}: {path} has shape {saved[path]} there, {tuple(target.shape)} in "
                "this model; give the configuration the checkpoint was trained with"
            )


def _grown_shapes(
    checkpoint: str, saved: dict, targets: dict, mapping: VocabularyMapping
) -> dict[str, tuple[int, ...]]:
    """The shapes that the saved arrays will have."""
    grown = dict(saved)
    for path in sorted(filter(mapping.grows, targets.keys() & saved.keys())):
        for size, needed, what in (
            (saved[path][0], mapping.old_size, checkpoint),
            (targets[path].shape[0], mapping.new_size, "this model"),
        ):
            if size != needed:
                raise ValueError(
                    f"{what} has a vocabulary of {size}, where the mapping leads from "
                    f"{mapping.old_size} to {mapping.new_size} tokens"
                )
        grown[path] = (mapping.new_size, *saved[path][1:])
    return grown

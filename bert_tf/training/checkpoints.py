"""Saves and restores checkpoints, with every variable under its own name."""

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Mapping

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.command_help import docs
from bert_tf.base.files import named_errors, read_file, shortened, whole
from bert_tf.base.finite import NonFinite
from bert_tf.base.output_files import atomic_write

BEST = "best"
_OURS = re.compile(r"/ckpt-\d+(\.(index|data-\d{5}-of-\d{5})(\.tempstate\d+)?$|_temp/part-)")
# What TensorFlow raises for damaged files.
_DAMAGE = (tf.errors.OpError, IndexError)


class Checkpointer:
    """Keeps the newest training states of a run in a folder.

    A checkpoint is in TensorFlow's own format. It holds the model's weights under their Keras
    paths and the rest of the state under names such as the optimizer's `<path>/adam_m`.

    Args:
        directory: folder of the `ckpt-<step>` files.
        state: the variables to save beside the model's; must include "step", int64, the number of
            finished steps.
        writes: whether `save` writes; False on all workers but the chief.
    """

    # tf.train.CheckpointManager trusts the `checkpoint` file alone: it would not find a checkpoint
    # that a kill left unlisted, and would start over if the file were lost. Its `save_counter`
    # would differ between a resumed run and an uninterrupted one.

    def __init__(
        self,
        directory: str,
        model: keras.Model,
        state: Mapping[str, tf.Variable],
        max_to_keep: int = 5,
        writes: bool = True,
    ):
        self._weights = {weight.path: weight.value for weight in model.weights}
        self._step = state["step"]
        self._directory = directory
        self._max_to_keep = max_to_keep
        self._writes = writes
        self._checkpoint = tf.train.Checkpoint(model=self._weights, state=dict(state))

    def restore(self) -> str | None:
        """Restores the newest checkpoint that can be read.

        Newer ones that cannot be read are reported on standard output and left in place. Returns
        the checkpoint's path; None if there is none.
        """
        damaged: list[OSError] = []
        for path in reversed(_checkpoints_of(self._directory)):
            try:
                self.restore_from(path)
            except OSError as error:
                damaged.append(error)
                continue
            if self._writes:
                for error in damaged:
                    print(f"WARNING: {error}. Using the previous checkpoint.")
            return path
        if damaged:
            raise OSError(f"{damaged[0]}, and no earlier checkpoint can be read")
        return None

    def save(self) -> str:
        """Writes a checkpoint of the current step and returns its path.

        Raises a `NonFinite` instead of writing weights that are not finite.
        """
        path = self._path
        for name, weight in self._weights.items():
            if weight.dtype.is_floating and not tf.reduce_all(tf.math.is_finite(weight)):
                raise NonFinite(
                    f"{name} is NaN or infinite in step {self._step.numpy():,}, which is not saved "
                    "(earlier checkpoints are kept): try a lower learning rate"
                )
        if not self._writes:
            return path
        try:
            self._checkpoint.write(path)
        except tf.errors.OpError as error:
            _remove(path)
            reason = re.sub(r".*; |\{\{.*?\}\} | *\[Op:\w+\]", "", error.message)
            raise OSError(
                f"cannot write a checkpoint to {self._directory} ({reason}): earlier checkpoints "
                "are kept, so fix this and run the same command to resume"
            ) from error
        self._keep_newest(path)
        return path

    def tidy(self) -> None:
        """Lists the restored checkpoint as the newest, and removes what a killed run left."""
        path = self._path
        if self._writes and path in _checkpoints_of(self._directory):
            self._keep_newest(path)
            for name in tf.io.gfile.glob(os.path.join(self._directory, "ckpt-*")):
                found = re.search(r".*/ckpt-\d+(?=\.data-|_temp$)", name)
                if found and not tf.io.gfile.exists(f"{found[0]}.index"):
                    _remove(found[0])

    @property
    def _path(self) -> str:
        return os.path.join(self._directory, f"ckpt-{self._step.numpy()}")

    def restore_from(self, path: str) -> None:
        """Restores one checkpoint."""
        saved = {name: tensor.shape for name, tensor in saved_tensors(path).items()}
        check_shapes(path, saved, self._weights)
        with whole(path, *_DAMAGE, advice=""):
            try:
                self._checkpoint.read(path).assert_existing_objects_matched()
            except (AssertionError, ValueError):
                raise ValueError(
                    f"{path} was written with another objective, optimizer or precision: use the "
                    "same flags to resume, or start a new run from it with --init_checkpoint"
                ) from None

    def _keep_newest(self, newest: str) -> None:
        """Lists a checkpoint as the newest in the `checkpoint` file and deletes old ones."""
        # `restore` skipped those of later steps.
        until = [p for p in _checkpoints_of(self._directory) if _step_of(p) <= _step_of(newest)]
        kept = [os.path.basename(path) for path in until[-self._max_to_keep :]]
        lines = [f'model_checkpoint_path: "{kept[-1]}"']
        lines += [f'all_model_checkpoint_paths: "{name}"' for name in kept]
        atomic_write(os.path.join(self._directory, "checkpoint"), "\n".join(lines) + "\n")
        for path in until[: -self._max_to_keep]:
            _remove(path)


def check_name(path: str) -> None:
    """Raises a ValueError if TensorFlow would read the name of a checkpoint as a pattern."""
    if found := re.search(r"[*?\[\]\\]", path):
        raise ValueError(
            f"{path}: TensorFlow finds no checkpoints in folders with {found[0]} in their names: "
            "choose another name"
        )


def _checkpoints_of(directory: str) -> list[str]:
    """Returns the paths of a folder's checkpoints, ordered by step."""
    check_name(directory)
    found = tf.io.gfile.glob(os.path.join(directory, "ckpt-*.index"))
    paths = (path.removesuffix(".index") for path in found)
    return sorted((path for path in paths if re.search(r"/ckpt-\d+$", path)), key=_step_of)


def _step_of(path: str) -> int:
    return int(path.rpartition("-")[2])


def _remove(path: str) -> None:
    """Removes the files of a checkpoint, or those that a failed save of it left."""
    temporary = f"{path}_temp"
    for file in tf.io.gfile.glob([f"{path}.*", f"{temporary}/part-*"]):
        if _OURS.search(file):
            tf.io.gfile.remove(file)
    if tf.io.gfile.isdir(temporary) and not tf.io.gfile.listdir(temporary):
        tf.io.gfile.rmtree(temporary)


def latest_checkpoint(path: str) -> str:
    """Returns the newest checkpoint of a folder, or `path` itself if it is a checkpoint."""
    # Accepts the name of a file, as a shell completes it.
    found: str | None = re.sub(r"\.(index|data-\d+-of-\d+)$", "", path)
    if tf.io.gfile.isdir(path):
        # A run killed during its first save has no `checkpoint` file.
        found = listed_checkpoint(path) or next(reversed(_checkpoints_of(path)), None)
    if not found or not tf.io.gfile.exists(f"{found}.index"):
        is_hub = re.fullmatch(r"[\w.-]+/[\w.-]+", path) and not os.path.isdir(path.split("/")[0])
        raise FileNotFoundError(
            f"{path}: no checkpoint found ({_describe(path)}): name a run folder, a checkpoint in "
            "one, such as run/ckpt-1000, or a model of the Hugging Face Hub, such as "
            f"hf:{path if is_hub else 'google-bert/bert-base-uncased'}; {docs('checkpoints')} "
            "lists all formats"
        )
    return found


def listed_checkpoint(folder: str) -> str | None:
    """Returns the checkpoint that the file `checkpoint` in a folder names, or None."""
    try:
        state = tf.train.get_checkpoint_state(folder)
    except UnicodeDecodeError:  # TensorFlow ignores any other damage
        return None
    # The file may come from another machine, where the folder had another path.
    found = state and os.path.join(folder, os.path.basename(state.model_checkpoint_path))
    return found if found and tf.io.gfile.exists(f"{found}.index") else None


def chosen_checkpoint(path: str) -> str:
    """Returns a checkpoint itself; of a run folder, the best weights or else the newest."""
    best = os.path.join(path, BEST)
    return latest_checkpoint(best if _checkpoints_of(best) else path)


def _describe(path: str) -> str:
    """Describes what is at a path that holds no checkpoint, or beside it."""
    if tf.io.gfile.isdir(path):
        names = sorted(tf.io.gfile.listdir(path))
        return f"the folder holds {shortened(names)}" if names else "the folder is empty"
    folder = os.path.dirname(path) or "."
    if found := _checkpoints_of(folder):
        names = ", ".join(os.path.basename(name) for name in found[-5:])
        return f"{folder} holds {names}"
    return "it is a file" if tf.io.gfile.exists(path) else "it does not exist"


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor on disk; `read` reads its values."""

    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]


def saved_tensors(checkpoint: str) -> dict[str, Tensor]:
    """Returns the model weights in a checkpoint written by `Checkpointer`, by their paths."""
    tensors = tensors_by_key(checkpoint, advice="")
    weights = {_path(key): tensor for key, tensor in tensors.items() if _path(key)}
    if not weights:
        raise ValueError(
            f"{checkpoint} holds no weights of bert_tf (it holds "
            f"{shortened(sorted(tensors), 1)} variables): "
            f"{docs('checkpoints')} lists the formats that can be read"
        )
    return weights


def save_tensors(path: str, tensors: Mapping[str, Tensor]) -> None:
    """Writes the weights of a model, without the state of an optimizer, as `Checkpointer` does."""
    check_name(path)
    variables = {name: tf.Variable(tensor.read()) for name, tensor in tensors.items()}
    with named_errors(f"cannot write {path}"):
        tf.train.Checkpoint(model=variables).write(path)


def tensors_by_key(checkpoint: str, **advice: str) -> dict[str, Tensor]:
    """Returns all tensors of a TensorFlow checkpoint, by their keys; `advice`: see `whole`."""
    check_name(checkpoint)
    for file in (f"{checkpoint}.index", *tf.io.gfile.glob(f"{checkpoint}.data-*")):
        read_file(file, 64)  # says why it cannot be read
    with whole(checkpoint, *_DAMAGE, **advice):
        reader = tf.train.load_checkpoint(checkpoint)
        shapes = reader.get_variable_to_shape_map()

    def read(key: str) -> np.ndarray:
        with whole(checkpoint, *_DAMAGE, **advice):
            value = reader.get_tensor(key)
            # NumPy's own strings lose the zeros at their ends.
            return np.asarray(value, object if isinstance(value, bytes) else None)

    return {
        key: Tensor(tuple(shape), functools.partial(read, key)) for key, shape in shapes.items()
    }


def _path(key: str) -> str | None:
    """Returns the weight's path for a key; tf.train.Checkpoint writes "/" as ".S" in keys."""
    match = re.fullmatch(r"model/([^/]+)/\.ATTRIBUTES/VARIABLE_VALUE", key)
    return match and match[1].replace(".S", "/").replace("..", ".")


def check_shapes(
    checkpoint: str, saved: Mapping[str, tuple[int, ...]], targets: Mapping[str, tf.Variable]
) -> None:
    """Raises a ValueError unless the checkpoint holds exactly these weights in these shapes.

    It may also hold other top-level parts of a model, such as a head.
    """
    parts = {path.split("/")[0] for path in targets}
    if extra := sorted(p for p in saved if p not in targets and p.split("/")[0] in parts):
        raise ValueError(f"{checkpoint} has an additional {extra[0]}: it belongs to another model")
    for path, target in targets.items():
        if path not in saved:
            raise ValueError(f"{checkpoint} has no {path}: it belongs to another model")
        if saved[path] != tuple(target.shape):
            raise ValueError(
                f"{checkpoint}: {path} has shape {saved[path]} there but {tuple(target.shape)} in "
                "this model: use the configuration that the checkpoint was trained with"
            )

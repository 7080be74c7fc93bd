"""LoRA: trains small matrices beside frozen weights, and keeps them in a file of their own."""

import contextlib
import hashlib
import io
import json
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.calling import checked
from bert_tf.base.files import parse_json, read_file
from bert_tf.base.output_files import atomic_write
from bert_tf.config import Head, ModelSpec
from bert_tf.finetuning.task import make_model
from bert_tf.finetuning.task_learner import TaskLearner
from bert_tf.layers.initial_weights import new_seed
from bert_tf.sessions.learner import Training
from bert_tf.sessions.session import Session
from bert_tf.training.checkpoints import Tensor
from bert_tf.weights.checkpoint import OPTIONAL, load_weights
from bert_tf.weights.names import SIDE_BY_SIDE, part_of
from bert_tf.weights.opening import open_checkpoint

ADAPTERS = "adapters.npz"
_KERNEL = re.compile(r"encoder/(layer_\d+)/attention/(qkv|qk|value)_kernel")


@dataclass(frozen=True)
class _Adapted:
    """A kernel with adapters: an object of its own, or Keras would list its weights twice."""

    kernel: keras.Variable
    value: tf.Variable  # which a call in half precision does not cast
    # A and B for each projection side by side in the kernel; None for a key.
    pairs: list[tuple[tf.Variable, tf.Variable] | None]


class LoraModel(keras.Model):
    """A task's model in which only a few weights train.

    The kernel W [in, out] of every query and value becomes W + alpha / rank A B, with A [in, rank]
    and B [rank, out]. Only A, B, the head and, if the head reads it, the pooler train. Training
    computes with the sum; an evaluation assumes that W holds it: see `merged`.

    Source: LoRA (arXiv:2106.09685) section 4. The pooler belongs to the head, as the same layer of
    RoBERTa does there. A starts as in the authors' code and in peft.
    """

    def __init__(self, task_model: keras.Model, rank: int, alpha: float, trains_pooler: bool):
        super().__init__(name="lora")
        self.task_model, self.encoder = task_model, task_model.encoder
        self._rank, self._scale = rank, alpha / rank
        for weight in self.encoder.weights:
            weight.trainable = trains_pooler and part_of(weight.path) == "pooler"
        self._adapted = []
        for kernel in self.encoder.weights:
            if match := _KERNEL.fullmatch(kernel.path):
                names = SIDE_BY_SIDE.get(match[2], (match[2],))
                shape = kernel.shape[0], kernel.shape[1] // len(names)
                pairs = [
                    None if name == "key" else self._pair(f"{match[1]}_{name}", *shape)
                    for name in names
                ]
                self._adapted.append(_Adapted(kernel, kernel.value, pairs))
        self.built = True

    def _pair(self, name: str, width: int, outputs: int) -> tuple[tf.Variable, tf.Variable]:
        """Adds A and B for a kernel [width, outputs]."""
        # From -1 / sqrt(width) to 1 / sqrt(width).
        scaling, rank = keras.initializers.VarianceScaling, self._rank
        uniform = scaling(1 / 3, "fan_in", "uniform", new_seed())
        a = self.add_weight((width, rank), uniform, name=f"{name}_a", autocast=False)
        b = self.add_weight((rank, outputs), "zeros", name=f"{name}_b", autocast=False)
        return a.value, b.value

    def call(self, inputs, training=None):
        with keras.StatelessScope(self._sums()) if training else contextlib.nullcontext():
            return self.task_model(inputs, training=training)

    def _sums(self) -> list[tuple[keras.Variable, tf.Tensor]]:
        """Returns the adapted kernels with W + alpha / rank A B."""
        sums = []
        for adapted in self._adapted:
            pieces = tf.split(adapted.value, len(adapted.pairs), axis=1)
            for index, pair in enumerate(adapted.pairs):
                if pair:
                    pieces[index] += self._scale * tf.matmul(*pair)
            sums.append((adapted.kernel, tf.concat(pieces, axis=1)))
        return sums

    def merge(self) -> None:
        """Makes the kernels hold the sums."""
        for kernel, total in self._sums():
            kernel.value.assign(total)

    @contextlib.contextmanager
    def merged(self) -> Iterator[None]:
        """Makes a context in which the kernels hold the sums."""
        kept = [tf.identity(adapted.value) for adapted in self._adapted]
        self.merge()
        try:
            yield
        finally:
            for adapted, before in zip(self._adapted, kept, strict=True):
                adapted.value.assign(before)

    def base_checksum(self) -> str:
        """Returns a checksum of the weights that the adapters belong to, outside `merged`."""
        digest = hashlib.sha256()
        for weight in self.encoder.weights:
            if part_of(weight.path) != "pooler":
                digest.update(weight.numpy().tobytes())
        return digest.hexdigest()


class LoraLearner(TaskLearner):
    """Trains a `LoraModel`. The best weights are merged; adapters.npz has what trained."""

    def build_model(self, session: Session, spec: ModelSpec) -> LoraModel:
        options, width = session.options, spec.config.hidden_size
        if options.lora_rank > width:
            raise ValueError(
                f"--lora_rank={options.lora_rank} is larger than the hidden size, {width}, and so "
                "than the rank of any matrix of the model: choose a smaller one, such as 8"
            )
        model = super().build_model(session, spec)
        reads_pooler = self.task.head.reads_pooler
        return LoraModel(model, options.lora_rank, options.lora_alpha, reads_pooler)

    def preset_weights(self, model: LoraModel) -> list[keras.Variable]:
        return [weight for weight in model.weights if weight.path.startswith("lora/")]

    def evaluated_weights(self, model: LoraModel) -> AbstractContextManager:
        return model.merged()

    def finish(self, training: Training) -> None:
        options, model = training.session.options, training.model
        # Before the best weights, which are merged, take the place of the frozen ones.
        base = {"base": options.init_checkpoint, "base_sha256": model.base_checksum()}
        super().finish(training)
        head = {"task": self.task.name, "head": self.task.head.to_dict()}
        description = base | head | {"rank": options.lora_rank, "alpha": options.lora_alpha}
        arrays = {weight.path: weight.numpy() for weight in model.trainable_weights}
        if training.session.is_chief:
            file = io.BytesIO()
            np.savez(file, description=json.dumps(description), **arrays)
            atomic_write(training.session.run.file(ADAPTERS), file.getvalue())


# What adapters.npz says about its arrays.
_DESCRIPTION = {"base": str, "base_sha256": str, "head": dict[str, Any], "rank": int}
_DESCRIPTION |= {"alpha": float}


@checked
def load_adapters(path: str | os.PathLike, base: str | os.PathLike) -> keras.Model:
    """Loads the model of a run of run_finetuning --lora_rank from its adapters alone.

    Args:
        path: the run's `adapters.npz`.
        base: the model that the run started from, which may have moved.

    Example:
        model = bert_tf.load_adapters("mrpc/adapters.npz", "run")
        logits = model(bert_tf.load_preprocessor("run")(["a text"], ["another one"]))

    Raises:
        ValueError: the adapters belong to another model, or the file is damaged.
    """
    try:
        arrays = dict(np.load(io.BytesIO(read_file(path)), allow_pickle=False))
        description = parse_json(str(arrays.pop("description")), _DESCRIPTION)
        head = Head.from_dict(description["head"])
        rank, alpha = description["rank"], description["alpha"]
        if arrays["lora/layer_0_query_a"].shape[1:] != (rank,) or not np.isfinite(alpha):
            raise ValueError
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        raise ValueError(f"{path} is damaged, or not the {ADAPTERS} of a run") from None
    checkpoint = open_checkpoint(base)
    task_model = make_model(head, checkpoint.spec.config)
    model = LoraModel(task_model, rank, alpha, head.reads_pooler)
    load_weights(checkpoint.path, checkpoint.tensors, model.encoder.weights, None, OPTIONAL)
    if model.base_checksum() != description["base_sha256"]:
        raise ValueError(
            f"{path} was trained on {description['base']}: give that, not {checkpoint.path}"
        )
    tensors = {name: Tensor(array.shape, array.copy) for name, array in arrays.items()}
    load_weights(path, tensors, model.trainable_weights)
    model.merge()
    return task_model

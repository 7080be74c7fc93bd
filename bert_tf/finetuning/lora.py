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

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig, Head
from bert_tf.finetuning.fine_tuner import Training
from bert_tf.finetuning.finetuning_options import LORA_ALPHA, FineTuningOptions
from bert_tf.finetuning.task import Task, make_model
from bert_tf.models.task_model import BertTaskModel
from bert_tf.session import Session
from bert_tf.training.checkpoints import BEST
from bert_tf.training.driver import Driver
from bert_tf.weights.checkpoint import OPTIONAL, Checkpoint, load_weights
from bert_tf.weights.names import SIDE_BY_SIDE, part_of
from tfrecords.files import read_file
from tfrecords.writer import atomic_write

ADAPTERS = "adapters.npz"
_DESCRIPTION = "description"
_KERNEL = re.compile(r"encoder/(layer_\d+)/attention/(\w+)_kernel")

Pair = tuple[tf.Variable, tf.Variable]


class LoraModel(keras.Model):
    """A task's model of which little trains.

    The kernel W [in, out] of every query and value becomes W + alpha / rank A B, with A [in, rank]
    and B [rank, out]. Only A, B, the head and, if the head reads it, the pooler train. Training
    computes with the sum; an evaluation assumes that W holds it: see `merged`.

    Source: LoRA (arXiv:2106.09685) section 4. The pooler belongs to the head, as the same layer of
    RoBERTa does there. A starts as in the authors' code and in peft.
    """

    def __init__(self, task_model: keras.Model, rank: int, alpha: float, trains_pooler: bool):
        super().__init__(name="lora")
        self.task_model, self._rank, self._scale = task_model, rank, alpha / rank
        for weight in self.encoder.weights:
            weight.trainable = trains_pooler and part_of(weight.path) == "pooler"
        adapted = []
        for kernel in self.encoder.weights:
            if match := _KERNEL.fullmatch(kernel.path):
                names = SIDE_BY_SIDE.get(match[2], (match[2],))
                shape = kernel.shape[0], kernel.shape[1] // len(names)
                pairs = [
                    self._pair(f"{match[1]}_{name}", *shape) if name in ("query", "value") else None
                    for name in names
                ]
                # In a call in half precision, `kernel.value` would be cast.
                adapted.append((kernel, kernel.value, pairs))
        # In a function, where Keras does not find them twice.
        self._adapted = lambda: [entry for entry in adapted if any(entry[2])]
        self.built = True

    @property
    def encoder(self) -> keras.Model:
        return self.task_model.encoder

    def _pair(self, name: str, width: int, outputs: int) -> Pair:
        """Adds A and B for a kernel [width, outputs]."""
        # From -1 / sqrt(width) to 1 / sqrt(width).
        uniform = keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
        a, b = (
            self.add_weight(
                shape=shape, initializer=start, name=f"{name}_{part}", autocast=False
            ).value
            for part, shape, start in (
                ("a", (width, self._rank), uniform),
                ("b", (self._rank, outputs), "zeros"),
            )
        )
        return a, b

    def call(self, inputs, training=None):
        sums = self._sums() if training else ()
        with keras.StatelessScope(sums) if training else contextlib.nullcontext():
            return self.task_model(inputs, training=training)

    def _sums(self) -> list[tuple[keras.Variable, tf.Tensor]]:
        """Returns the adapted kernels with W + alpha / rank A B."""
        sums = []
        for kernel, value, pairs in self._adapted():
            pieces = tf.split(value, len(pairs), axis=1)
            for index, pair in enumerate(pairs):
                if pair:
                    pieces[index] += self._scale * tf.matmul(*pair)
            sums.append((kernel, tf.concat(pieces, axis=1)))
        return sums

    def merge(self) -> None:
        """Makes the kernels hold the sums."""
        for (_, value, _), (_, total) in zip(self._adapted(), self._sums(), strict=True):
            value.assign(total)

    @contextlib.contextmanager
    def merged(self) -> Iterator[None]:
        """Makes a context in which the kernels hold the sums."""
        kept = [tf.identity(value) for _, value, _ in self._adapted()]
        self.merge()
        try:
            yield
        finally:
            for (_, value, _), before in zip(self._adapted(), kept, strict=True):
                value.assign(before)

    def base_checksum(self) -> str:
        """Returns a checksum of the weights that the adapters belong to, outside `merged`."""
        digest = hashlib.sha256()
        for weight in sorted(self.encoder.weights, key=lambda weight: weight.path):
            if part_of(weight.path) != "pooler":
                digest.update(weight.path.encode() + weight.numpy().tobytes())
        return digest.hexdigest()


class LoraTraining(Training):
    """Trains a `LoraModel` of a task. The best weights are merged; `ADAPTERS` has what trained."""

    def __init__(self, task: Task, options: FineTuningOptions):
        super().__init__(task)
        if not task.head:
            raise ValueError(
                f"--lora_rank does not suit --task={task.name}, whose model is its own: omit it"
            )
        self._rank, self._alpha = options.lora_rank, options.lora_alpha or LORA_ALPHA

    def build_model(self, config: BertConfig) -> LoraModel:
        model = super().build_model(config)
        return LoraModel(model, self._rank, self._alpha, self.task.head.reads_pooler)

    def preset_weights(self, model: LoraModel) -> list[keras.Variable]:
        return [weight for weight in model.weights if weight.path.startswith("lora/")]

    def evaluated_weights(self, model: LoraModel) -> AbstractContextManager:
        return model.merged()

    def finish(self, session: Session, driver: Driver, model: LoraModel) -> None:
        # Before the best weights, which are merged, take the place of the frozen ones.
        description = {
            "task": self.task.name,
            "head": self.task.head.to_dict(),
            "rank": self._rank,
            "alpha": self._alpha,
            "base": session.options.init_checkpoint,
            "base_sha256": model.base_checksum(),
        }
        super().finish(session, driver, model)
        if not session.is_chief:
            return
        file = io.BytesIO()
        arrays = {weight.path: weight.numpy() for weight in model.trainable_weights}
        np.savez(file, **{_DESCRIPTION: json.dumps(description)}, **arrays)
        atomic_write(session.run.file(ADAPTERS), file.getvalue())
        trained = sum(array.size for array in arrays.values())
        session.say(
            f"{ADAPTERS} has the {trained:,} weights that trained, and {BEST} all "
            f"{model.task_model.count_params():,}."
        )


def adapted_model(base: Checkpoint, path: str) -> BertTaskModel:
    """Returns the fine-tuned model of a file of adapters on the model that they belong to."""
    path = os.path.join(path, ADAPTERS) if tf.io.gfile.isdir(path) else path
    try:
        with np.load(io.BytesIO(read_file(path)), allow_pickle=False) as file:
            arrays = dict(file)
        description = json.loads(str(arrays.pop(_DESCRIPTION)))
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} holds no adapters ({error}): give the {ADAPTERS} that run_finetuning "
            "--lora_rank wrote"
        ) from None
    head = Head.from_dict(description["head"])
    task_model = make_model(head, base.spec.config)
    model = LoraModel(task_model, description["rank"], description["alpha"], head.reads_pooler)
    load_weights(base.path, base.tensors, model.encoder.weights, optional_parts=OPTIONAL)
    if model.base_checksum() != description["base_sha256"]:
        raise ValueError(
            f"{path} belongs to {description['base']}, which {base.path} is not: give that model"
        )
    for weight in model.trainable_weights:
        weight.assign(arrays[weight.path])
    model.merge()
    return task_model

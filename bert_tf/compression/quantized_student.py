"""A student with quantized weights: how they are quantized, the task that it learns, its size."""

import dataclasses
import os
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.compression.options import CompressionOptions
from bert_tf.compression.quantization import Quantization
from bert_tf.compression.quantized_model import QuantizedModel
from bert_tf.compression.recipes import Recipe
from bert_tf.compression.sensitivity import choose_bits, layer_eigenvalues, moments
from bert_tf.compression.student import StudentTask
from bert_tf.config import BertConfig
from bert_tf.finetuning.batches import train_batches
from bert_tf.finetuning.run import model_spec, read_features
from bert_tf.finetuning.task import TRAIN, Task
from bert_tf.finetuning.trained_head import load_task_model
from bert_tf.models.task_model import BertTaskModel
from bert_tf.run_folder import RunFolder
from bert_tf.training.checkpoints import BEST, chosen_checkpoint, saved_tensors
from bert_tf.training.strategy import set_precision
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.names import STATE, num_layers
from tfrecords.progress import say

# The parts of the training data whose eigenvalues are measured.
_PARTS, _EXAMPLES = 10, 8


def quantization(options: CompressionOptions, recipe: Recipe) -> Quantization:
    """Returns how a recipe quantizes weights, with the values of the flags."""
    flags = {
        "bits": options.layer_bits,
        "groups": options.weight_groups,
        "embedding_bits": options.embedding_bits,
    }
    given = {name: value for name, value in flags.items() if value}
    return dataclasses.replace(recipe.quantization, **given)


class QuantizedTask(StudentTask):
    """A task that a student learns with quantized weights.

    Args:
        task, recipe, teacher, keeps_head: see `StudentTask`.
        quantization: how its weights are quantized.
        eigenvalues: what the bits of its layers are chosen by [layers, 2]; zeros for a run that
            resumes, whose checkpoints hold the bits.

    Raises:
        ValueError: the task has a model that cannot be quantized.
    """

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        teacher: Checkpoint,
        keeps_head: bool,
        quantization: Quantization,
        eigenvalues: np.ndarray | None,
    ):
        super().__init__(task, recipe, teacher, keeps_head)
        self._quantization, self._eigenvalues = quantization, eigenvalues
        if not task.head:
            raise ValueError(
                f"--task={task.name}: this recipe quantizes encoders with one dense layer on top, "
                "which is not what this task trains"
            )

    def build_model(self, config: BertConfig) -> keras.Model:
        """See `Task.build_model`.

        Raises:
            ValueError: there are several replicas.
        """
        # Each would move the ranges of its activations in its own way.
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise ValueError(
                "quantization trains on one device: give --strategy=cpu, or make one GPU visible "
                "with CUDA_VISIBLE_DEVICES=0"
            )
        quantization, eigenvalues = self._quantization, self._eigenvalues
        bits = list(quantization.bits[:1]) * num_layers(config)
        if eigenvalues is not None:
            bits = choose_bits(eigenvalues, *quantization.bits)
        return QuantizedModel(self._task.build_model(config), quantization, bits, eigenvalues)

    def evaluated_weights(self, model: keras.Model) -> AbstractContextManager:
        """See `Task.evaluated_weights`."""
        return model.evaluated_weights()


class QuantizedStudentTask:
    """A task whose model is a finished student; otherwise, the task itself.

    Args:
        task: the task.
        folder: the run folder of the student.
    """

    def __init__(self, task: Task, folder: str):
        self._task, self._ranges = task, _state(folder)["activation_ranges"]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def build_model(self, config: BertConfig) -> BertTaskModel:
        """Returns a model whose activations are quantized, too."""
        return QuantizedModel(self._task.build_model(config), ranges=self._ranges)


def measure_sensitivity(
    options: CompressionOptions, quantization: Quantization, task: Task, teacher: Checkpoint
) -> np.ndarray | None:
    """Returns mean and deviation of the top eigenvalue of each layer of the teacher [layers, 2].

    They are measured on ten batches of 8 training examples, and printed with the bits of each
    layer. Returns zeros for a run that resumes, and None if all layers have the same bits.
    """
    if not quantization.is_mixed:
        return None
    if RunFolder(options.output_dir).has_checkpoint():
        return np.zeros([num_layers(teacher.spec.config), 2])
    set_precision("float32")
    model = load_task_model(task, teacher)
    spec = model_spec(options, RunFolder(options.output_dir), teacher, None)
    features = read_features(options, task, spec, [TRAIN], lambda line: None)[TRAIN]
    batches = train_batches(features, _EXAMPLES, _PARTS, options.random_seed)
    found = moments(layer_eigenvalues(model, task.objective, batches, options.random_seed))
    bits = choose_bits(found, *quantization.bits)
    for layer, ((mean, deviation), count) in enumerate(zip(found, bits, strict=True)):
        say(f"Layer {layer}: top eigenvalue {mean:.3g} +- {deviation:.2g}, {count} bits.")
    return found


def student_facts(quantization: Quantization, checkpoint: Checkpoint, folder: str) -> dict:
    """Returns what `compression.json` says of a quantized student besides its parameters."""
    state = _state(folder)
    bits = [int(value) for value in state["layer_bits"]]
    shapes = {path: tensor.shape for path, tensor in checkpoint.tensors.items()}
    facts = {
        "student_bytes": quantization.num_bytes(shapes, bits),
        "layer_bits": bits,
        "embedding_bits": quantization.embedding_bits,
    }
    if "eigenvalues" in state:
        facts["eigenvalues"] = state["eigenvalues"].tolist()
    return facts


def _state(folder: str) -> dict[str, np.ndarray]:
    """Reads what the checkpoint of a quantized student holds beside its weights."""
    tensors = saved_tensors(chosen_checkpoint(os.path.join(folder, BEST)))
    return {
        path.removeprefix(f"{STATE}/"): tensor.read()
        for path, tensor in tensors.items()
        if path.startswith(f"{STATE}/")
    }

"""A student with quantized weights: the bits of its layers, the task that it learns, its size."""

import functools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.progress import progress_bar, say
from bert_tf.compression.compression_options import CompressionOptions
from bert_tf.compression.quantization import STATE, Quantization, QuantizedModel, is_quantized
from bert_tf.compression.recipes import Loss
from bert_tf.compression.student import StudentLearner, training_features
from bert_tf.config import BertConfig, ModelSpec
from bert_tf.finetuning.batches import train_batches
from bert_tf.finetuning.fine_tuned import load_task_model
from bert_tf.finetuning.task import Task
from bert_tf.models.task_model import BertTaskModel
from bert_tf.runs.run import Run
from bert_tf.sessions.session import Session
from bert_tf.training.checkpoints import BEST, chosen_checkpoint, saved_tensors
from bert_tf.training.strategy import set_precision
from bert_tf.training.trainer import Batch, Objective
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.names import num_layers

# The parts of the training data whose eigenvalues are measured.
_PARTS, _EXAMPLES = 10, 8
# Where the power iteration ends: at a change of the eigenvalue by this share, or after so many
# products.
_TOLERANCE, _MOST_PRODUCTS = 0.01, 20

Vector = Sequence[tf.Tensor]


class QuantizedLearner(StudentLearner):
    """Trains a task that a student learns with quantized weights.

    `default_bits` are those of a layer. Of two numbers, the more sensitive half of the layers gets
    the second.
    """

    quantization: Quantization
    default_bits: tuple[int, ...] = (8,)

    def __init__(self, options: CompressionOptions, task: Task, teacher: Checkpoint, loss: Loss):
        super().__init__(options, task, teacher, loss)
        self._bits = options.layer_bits or self.default_bits
        self._layer_bits = self._measured_bits()

    @staticmethod
    def evaluated_task(task: Task, folder: str) -> Task:
        ranges = _state(folder)["activation_ranges"]

        def build_model(config: BertConfig) -> keras.Model:
            return QuantizedModel(task.build_model(config), ranges=ranges)

        return task.changed(build_model=build_model)

    @classmethod
    def facts(
        cls, options: CompressionOptions, teacher: Checkpoint, student: Checkpoint
    ) -> dict[str, Any]:
        bits = [int(value) for value in _state(options.output_dir)["layer_bits"]]
        shapes = {path: tensor.shape for path, tensor in student.tensors.items()}
        return {"student_bytes": cls.quantization.num_bytes(shapes, bits), "layer_bits": bits}

    def _measured_bits(self) -> list[int]:
        """Returns the bits of each layer, by its eigenvalue; [] if all are equal or stored."""
        options, teacher, bits = self._options, self._teacher, self._bits
        if len(bits) == 1 or Run(options.output_dir).has_checkpoint:
            return []
        set_precision("float32")
        model = load_task_model(self.task, teacher)
        features = training_features(options, self.task, teacher)
        batches = train_batches(features, _EXAMPLES, range(_PARTS), options.random_seed)
        values = layer_eigenvalues(model, self.task.objective, batches, options.random_seed)
        found = np.stack([values.mean(axis=1), values.std(axis=1)], axis=1)
        chosen = choose_bits(found, *bits)
        for layer, (mean, deviation) in enumerate(found):
            measured = f"top eigenvalue {mean:.3g} +- {deviation:.2g}"
            say(f"Layer {layer}: {measured}, {chosen[layer]} bits.")
        return chosen

    def build_model(self, session: Session, spec: ModelSpec) -> keras.Model:
        # Each replica would move the ranges of its activations in its own way.
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise ValueError(
                "quantization trains on one device: give --strategy=cpu, or make one GPU visible "
                "with CUDA_VISIBLE_DEVICES=0"
            )
        bits = self._layer_bits or [self._bits[0]] * num_layers(spec.config)
        return QuantizedModel(super().build_model(session, spec), self.quantization, bits)

    def preset_weights(self, model: QuantizedModel) -> list[keras.Variable]:
        return [weight for weight in model.weights if weight.path.startswith(f"{STATE}/")]

    def evaluated_weights(self, model: keras.Model) -> AbstractContextManager:
        return model.evaluated_weights()


class Q8BertLearner(QuantizedLearner):
    """Trains a student with weights of 8 bits."""

    quantization = Quantization(symmetric=True, groups=1)


class QBertLearner(QuantizedLearner):
    """Trains a student that starts as its teacher, and whose sensitive layers have more bits."""

    quantization = Quantization(symmetric=False, groups=128)
    default_bits = (2, 3)


def _state(folder: str) -> dict[str, np.ndarray]:
    """Reads what the checkpoint of a quantized student holds beside its weights."""
    tensors = saved_tensors(chosen_checkpoint(os.path.join(folder, BEST)))
    return {
        path.removeprefix(f"{STATE}/"): tensor.read()
        for path, tensor in tensors.items()
        if path.startswith(f"{STATE}/")
    }


def top_eigenvalue(product: Callable[[Vector], Vector], start: Vector) -> float:
    """Returns the eigenvalue of a symmetric matrix with the largest absolute value, to about 1%.

    `product` multiplies the matrix by a vector, a list of tensors; `start` is a random vector.

    Source: Q-BERT (arXiv:1909.05840) algorithm 1.
    """
    vector, eigenvalue = start, 0.0
    for _ in range(_MOST_PRODUCTS):
        norm = tf.linalg.global_norm(vector)
        vector = [tf.math.divide_no_nan(part, norm) for part in vector]
        image = product(vector)
        previous, eigenvalue = eigenvalue, float(_dot(vector, image))
        if abs(eigenvalue - previous) <= _TOLERANCE * abs(eigenvalue):
            break
        vector = image
    return eigenvalue


def hessian_product(
    model: keras.Model,
    objective: Objective,
    weights: Sequence[tf.Variable],
    batch: Batch,
    vector: Vector,
) -> list[tf.Tensor]:
    """Multiplies the Hessian of a batch's loss with respect to some weights by a vector."""
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            sums, counts = objective.sums(model, batch, training=False), objective.counts(batch)
            loss = tf.add_n([sums[name] / counts[name] for name in objective.losses])
        along = _dot(inner.gradient(loss, weights), vector)
    return outer.gradient(along, weights)


def layer_eigenvalues(
    model: BertTaskModel, objective: Objective, batches: Iterable[Batch], seed: int
) -> np.ndarray:
    """Returns the top eigenvalue of the Hessian of each layer's matrices, [layers, batches].

    Source: Q-BERT (arXiv:1909.05840), mixed precision quantization.
    """
    batches, layers, rows = list(batches), layer_matrices(model), []
    # Of any length: tracing the product takes seconds.
    specs = {
        name: tf.TensorSpec([None] * values.shape.rank, values.dtype)
        for name, values in batches[0].items()
    }
    with progress_bar(total=len(layers) * len(batches), desc="Hessian", unit="value") as bar:
        for weights in layers:
            product = functools.partial(hessian_product, model, objective, weights)
            product = tf.function(product, autograph=False).get_concrete_function(
                specs, [tf.TensorSpec(weight.shape) for weight in weights]
            )
            rows.append([])
            for index, batch in enumerate(batches):
                start = [
                    tf.random.stateless_normal(w.shape, [seed, index * len(weights) + i])
                    for i, w in enumerate(weights)
                ]
                rows[-1].append(top_eigenvalue(functools.partial(product, batch), start))
                bar.update(1)
    return np.array(rows)


def layer_matrices(model: BertTaskModel) -> list[list[tf.Variable]]:
    """Returns the matrices of each layer that has weights of its own."""
    found: dict[int, list[tf.Variable]] = {}
    for weight in model.encoder.weights:
        match = re.search(r"/layer_(\d+)/", weight.path)
        if match and is_quantized(weight.shape):
            found.setdefault(int(match[1]), []).append(weight.value)
    return [found[layer] for layer in sorted(found)]


def choose_bits(moments: np.ndarray, few: int, many: int) -> list[int]:
    """Gives more bits to the more sensitive half of the layers, rounded up.

        Omega_i = |mean(lambda_i)| + std(lambda_i)

    `moments` are mean and standard deviation of the top eigenvalue of each layer [layers, 2].

    Source: Q-BERT (arXiv:1909.05840) equation 2; the share of the layers is not in the paper.
    """
    omega = np.abs(moments[:, 0]) + moments[:, 1]
    sensitive = np.argsort(-omega, kind="stable")[: (len(omega) + 1) // 2]
    return [many if layer in sensitive else few for layer in range(len(omega))]


def _dot(left: Vector, right: Vector) -> tf.Tensor:
    return tf.add_n([tf.reduce_sum(a * b) for a, b in zip(left, right, strict=True)])

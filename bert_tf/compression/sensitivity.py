"""How sensitive each layer of a model is to quantization, and the bits that it gets."""

import functools
import re
from collections.abc import Callable, Iterable, Sequence

import keras
import numpy as np
import tensorflow as tf

from bert_tf.compression.quantization import is_quantized
from bert_tf.models.task_model import BertTaskModel
from bert_tf.training.trainer import Batch, Objective
from tfrecords.progress import progress_bar

# Where the power iteration ends: at a change of the eigenvalue by this share, or after so many
# products.
_TOLERANCE = 0.01
_MOST_PRODUCTS = 20

Tensors = Sequence[tf.Tensor]


def top_eigenvalue(product: Callable[[Tensors], Tensors], start: Tensors) -> float:
    """Returns the eigenvalue of a symmetric matrix with the largest absolute value, to about 1%.

    Args:
        product: multiplies the matrix by a vector, which is a list of tensors.
        start: a random vector.

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
    vector: Tensors,
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
    batches, rows = list(batches), []
    layers = layer_matrices(model)
    with progress_bar(total=len(layers) * len(batches), desc="Hessian", unit="value") as bar:
        for weights in layers:
            product = _compiled_product(model, objective, weights, batches[0])
            rows.append([])
            for index, batch in enumerate(batches):
                start = [
                    tf.random.stateless_normal(w.shape, [seed, index * len(weights) + i])
                    for i, w in enumerate(weights)
                ]
                rows[-1].append(top_eigenvalue(functools.partial(product, batch), start))
                bar.update(1)
    return np.array(rows)


def _compiled_product(
    model: BertTaskModel, objective: Objective, weights: Sequence[tf.Variable], batch: Batch
) -> Callable[[Batch, Tensors], Tensors]:
    """Returns `hessian_product` for batches of any length: tracing it takes seconds."""
    specs = {name: tf.TensorSpec([None] * x.shape.rank, x.dtype) for name, x in batch.items()}
    product = functools.partial(hessian_product, model, objective, weights)
    return tf.function(product, autograph=False).get_concrete_function(
        specs, [tf.TensorSpec(weight.shape) for weight in weights]
    )


def layer_matrices(model: BertTaskModel) -> list[list[tf.Variable]]:
    """Returns the matrices of each layer that has weights of its own."""
    found: dict[int, list[tf.Variable]] = {}
    for weight in model.encoder.weights:
        match = re.search(r"/layer_(\d+)/", weight.path)
        if match and is_quantized(weight.shape):
            found.setdefault(int(match[1]), []).append(weight.value)
    return [found[layer] for layer in sorted(found)]


def moments(eigenvalues: np.ndarray) -> np.ndarray:
    """Returns mean and standard deviation over the batches [layers, 2]."""
    return np.stack([eigenvalues.mean(axis=1), eigenvalues.std(axis=1)], axis=1)


def choose_bits(moments: np.ndarray, few: int, many: int) -> list[int]:
    """Gives more bits to the more sensitive half of the layers, rounded up.

        Omega_i = |mean(lambda_i)| + std(lambda_i)

    Args:
        moments: mean and standard deviation of the top eigenvalue of each layer [layers, 2].

    Source: Q-BERT (arXiv:1909.05840) equation 2; the share of the layers is not in the paper.
    """
    omega = np.abs(moments[:, 0]) + moments[:, 1]
    sensitive = np.argsort(-omega, kind="stable")[: (len(omega) + 1) // 2]
    return [many if layer in sensitive else few for layer in range(len(omega))]


def _dot(left: Tensors, right: Tensors) -> tf.Tensor:
    return tf.add_n([tf.reduce_sum(a * b) for a, b in zip(left, right, strict=True)])

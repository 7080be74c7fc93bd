"""Smaller models by removing attention heads or setting weights to zero."""

import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.progress import say, with_progress
from bert_tf.compression.compression_options import CompressionOptions
from bert_tf.compression.run_files import weights_of
from bert_tf.compression.student import StudentLearner, initial_student, training_features
from bert_tf.finetuning.batches import eval_batches
from bert_tf.finetuning.fine_tuned import load_task_model
from bert_tf.finetuning.objectives import Called
from bert_tf.finetuning.task import Task
from bert_tf.finetuning.tokenizing import Features
from bert_tf.layers.bert import SelfAttention
from bert_tf.layers.layer import Layer, dense_inputs
from bert_tf.models.task_model import BertTaskModel
from bert_tf.training.optimizers import AdamW
from bert_tf.training.trainer import Objective
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.names import num_matrices
from bert_tf.weights.reshaping import remove_heads


def without_heads(options: CompressionOptions, task: Task, teacher: Checkpoint) -> Checkpoint:
    """Returns a fine-tuned model without its least important heads; see `head_importance`."""
    checkpoint = initial_student(options, teacher)
    config = checkpoint.spec.config
    if config.model_type == "mobilebert" or config.num_hidden_groups:
        raise ValueError(
            f"{checkpoint.path} is a MobileBERT or shares weights between layers, so that its "
            "heads cannot be removed: use another recipe"
        )
    features = training_features(options, task, checkpoint)
    model = load_task_model(task, checkpoint)
    batch_size = options.eval_batch_size
    importance = head_importance(model, task.objective, features, batch_size)
    heads = {
        layer: [config.kept_heads(layer)[place] for place in places]
        for layer, places in least_important(importance, options.pruned_share).items()
    }
    before, removed = sum(map(len, importance)), sum(map(len, heads.values()))
    names = (f"{layer}: {', '.join(map(str, heads[layer]))}" for layer in heads)
    say(
        f"Removing {removed} of {before} attention heads, the least important ones for the "
        f"loss of {len(features):,} training examples{'; by layer, ' if heads else ''}"
        f"{'; '.join(names)}."
    )
    return remove_heads(checkpoint, heads)


def head_importance(
    model: BertTaskModel, objective: Objective, features: Features, batch_size: int
) -> list[np.ndarray]:
    """Returns how sensitive the loss is to each head, normalized in each layer.

        I_h = mean_x |dL(x) / dg_h|,  divided by the Euclidean norm of the layer

    g_h = 1 is a factor on the output of head h, so that |dL(x) / dg_h| is, to first order, how much
    the loss of an example x changes without the head. There is no dropout. The result has the
    importance of the heads of every layer, float64 [N].

    Source: Are Sixteen Heads Really Better than One? (arXiv:1905.10650) equation 2 and section
    4.1.
    """

    @tf.function(autograph=False, reduce_retracing=True)
    def sensitivities(batch):
        blocks = [model.encoder.block(i) for i in range(model.config.num_hidden_layers)]
        gates = [tf.ones([batch_size, block.attention.num_heads]) for block in blocks]
        with tf.GradientTape() as tape:
            tape.watch(gates)
            outputs = gated_outputs(model, batch, gates)
            sums = objective.sums(Called(outputs), batch, False)
            # Each gate belongs to one example, so that the gradient of a sum is that of each.
            loss = tf.add_n([sums[name] for name in objective.losses])
        return [tf.reduce_sum(tf.abs(slope), axis=0) for slope in tape.gradient(loss, gates)]

    batches = eval_batches(features, batch_size)
    batches = with_progress(batches, "Importance of heads", total=len(batches))
    found = [sensitivities(batch) for batch in batches]
    totals = [np.sum(layer, axis=0, dtype=np.float64) for layer in zip(*found, strict=True)]
    return [layer / max(np.linalg.norm(layer), 1e-20) for layer in totals]


def gated_outputs(
    model: BertTaskModel, batch: Mapping[str, tf.Tensor], gates: Sequence[tf.Tensor]
) -> tf.Tensor:
    """Computes the output with factors, float32 [B, N] for every layer, on the outputs of heads."""

    def gated(layer: Layer, name: str, x: tf.Tensor) -> tf.Tensor:
        # What the heads compute, [B, S, N D] or, in the last layer of a classifier, [B, N D].
        if not isinstance(layer, SelfAttention) or name != "output":
            return x
        # With a row for every choice.
        factors = gates[layer.index]
        factors = tf.repeat(factors, tf.shape(x)[0] // tf.shape(factors)[0], axis=0)
        factors = tf.repeat(factors, x.shape[-1] // factors.shape[1], axis=1)
        return x * (factors if x.shape.rank == 2 else factors[:, tf.newaxis])

    with dense_inputs(model.encoder, gated):
        return model(batch, training=False)


def least_important(importance: Sequence[np.ndarray], share: float) -> dict[int, list[int]]:
    """Chooses the places of the heads to remove, by layer; the best of each layer always stays."""
    spared = {(layer, int(np.argmax(values))) for layer, values in enumerate(importance)}
    order = sorted(
        (value, layer, head)
        for layer, values in enumerate(importance)
        for head, value in enumerate(values)
        if (layer, head) not in spared
    )
    count = round(share * sum(map(len, importance)))
    chosen: dict[int, list[int]] = {}
    for _, layer, head in order[:count]:
        chosen.setdefault(layer, []).append(head)
    return {layer: sorted(chosen[layer]) for layer in sorted(chosen)}


# The word embeddings and the matrices of the layers, as in the authors' code.
PRUNED = re.compile(r"encoder/(embeddings/word_embeddings|layer_\d+/.*_kernel)")
# Sorting all weights takes as long as several steps.
_UPDATES = 10


def sparsity_at(step: tf.Tensor, final: float, num_steps: int) -> tf.Tensor:
    """Returns the share of zeros after a step: it rises fast at first, and then ever more slowly.

        s_t = s_f (1 - (1 - t / n)^3)

    `step` is t, at most n = `num_steps`, and `final` is s_f; the result is float64 [].

    Source: To prune, or not to prune (arXiv:1710.01878) equation 1, from 0 at the start.
    """
    left = 1.0 - tf.cast(step, tf.float64) / num_steps
    return final * (1.0 - left**3)


def keep_mask(matrix: tf.Tensor, share: tf.Tensor) -> tf.Tensor:
    """Returns where a matrix keeps its values: not at a share of the smallest, nor at ties."""
    magnitudes = tf.sort(tf.abs(tf.reshape(matrix, [-1])))
    count = tf.cast(tf.round(share * matrix.shape.num_elements()), tf.int64)
    threshold = tf.where(count > 0, magnitudes[tf.maximum(count - 1, 0)], -1.0)
    return tf.abs(matrix) > threshold


class ZeroingLearner(StudentLearner):
    """Trains a student while more and more of its weights become zero."""

    @staticmethod
    def facts(
        options: CompressionOptions, teacher: Checkpoint, student: Checkpoint
    ) -> dict[str, Any]:
        values = {path: tensor.read() for path, tensor in weights_of(student)}
        pruned = [values[path] for path in values if PRUNED.fullmatch(path)]
        kept = sum(map(np.count_nonzero, pruned))
        return {
            "sparsity": float(1 - kept / sum(value.size for value in pruned)),
            "student_nonzero": int(sum(map(np.count_nonzero, values.values()))),
            "teacher_gzip_bytes": _gzip_bytes(teacher),
            "student_bytes": _gzip_bytes(student),
        }

    def make_optimizer(
        self,
        optimizer: type[AdamW],
        weights: Sequence[keras.Variable],
        num_first_steps: int,
        **arguments: Any,
    ) -> AdamW:
        return PruningAdamW(weights, self._options.pruned_share, num_first_steps, **arguments)


def _gzip_bytes(checkpoint: Checkpoint) -> int:
    """Returns the size in bytes of all parameters as float32 under gzip."""
    compressor = zlib.compressobj(wbits=31)
    parts = (np.ascontiguousarray(x.read(), np.float32) for _, x in weights_of(checkpoint))
    return sum(len(compressor.compress(part)) for part in parts) + len(compressor.flush())


class PruningAdamW(AdamW):
    """AdamW that sets more and more of the weights to zero.

    In each of the matrices of the layers and in the word embeddings, the smallest magnitudes become
    zero, in at most ten updates during the first `num_steps`; see `sparsity_at`. Query, key and
    value are matrices of their own. What is zero stays zero. In the end, the share of zeros is
    `sparsity`.

    Source: Compressing BERT (arXiv:2002.08307) section 3; the authors' code for what is pruned.
    """

    def __init__(
        self, variables: Sequence[keras.Variable], sparsity: float, num_steps: int, **kwargs: Any
    ):
        super().__init__(variables, **kwargs)
        self._sparsity, self._num_steps = sparsity, num_steps
        self._prunes = [bool(PRUNED.fullmatch(variable.path)) for variable in variables]
        self._parts = [num_matrices(variable.path) for variable in variables]
        self._step = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.slots["pruning_step"] = self._step

    def apply(self, gradients, learning_rate, scale=1.0) -> None:
        # With a moment of 0, which it has since it became 0, a zero then stays as it is.
        gradients = [
            tf.where(tf.equal(target, 0.0), 0.0, gradient) if prunes else gradient
            for target, gradient, prunes in zip(self._targets, gradients, self._prunes, strict=True)
        ]
        super().apply(gradients, learning_rate, scale)
        tf.distribute.get_replica_context().merge_call(self._prune_if_due)

    def _prune_if_due(self, strategy: tf.distribute.Strategy) -> None:
        self._step.assign_add(1)
        step, last = self._step.read_value(), self._num_steps
        due = (step == last) | ((step < last) & (step % -(-last // _UPDATES) == 0))
        tf.cond(due, lambda: self._prune_all(strategy, step), lambda: None)

    def _prune_all(self, strategy: tf.distribute.Strategy, step: tf.Tensor) -> None:
        share = sparsity_at(step, self._sparsity, self._num_steps)

        def prune(variable: tf.Variable, m: tf.Variable, parts: int) -> None:
            pieces = tf.split(variable.read_value(), parts, axis=-1)
            kept = tf.concat([keep_mask(piece, share) for piece in pieces], axis=-1)
            for target in (variable, m):
                target.assign(tf.where(kept, target.read_value(), 0.0))

        columns = zip(self._targets, self._moments, self._parts, self._prunes, strict=True)
        for target, (m, _), parts, prunes in columns:
            if prunes:
                strategy.extended.update(target, prune, args=(m, parts))

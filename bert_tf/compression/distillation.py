"""Trains a student with its teacher: the model and the objective."""

from collections.abc import Mapping

import keras
import tensorflow as tf

from bert_tf.compression.outputs import compute
from bert_tf.compression.recipes import Recipe
from bert_tf.compression.terms import Pair, active
from bert_tf.compression.theseus import mixed_logits, replacing_rate
from bert_tf.layers.initializers import truncated_normal
from bert_tf.models.task_model import BertTaskModel
from bert_tf.training.trainer import Objective

Tensors = Mapping[str, tf.Tensor]


class Distillation(keras.Model):
    """A student, the teacher that it learns from, and projections to the teacher's width.

    The weights are those of the student, under the same paths, and the projections, which exist if
    the widths differ. The teacher's weights are not among them: they do not train, and checkpoints
    do not hold them.

    Call: the inputs of the student -> its output.
    """

    def __init__(self, student: BertTaskModel, teacher: BertTaskModel, name="distillation"):
        super().__init__(name=name)
        self.student = student
        # In a function, where Keras does not find it.
        self._teacher = lambda: teacher
        self._projections = []
        if student.config.hidden_size != teacher.config.hidden_size:
            self._projections = [
                keras.layers.Dense(
                    teacher.config.hidden_size,
                    use_bias=False,
                    kernel_initializer=truncated_normal(student.config.initializer_range),
                    dtype="float32",
                    name=name,
                )
                for name in ("hidden_projection", "embedding_projection")
            ]
        self.build()

    def build(self, input_shape=None) -> None:
        for layer in self._projections:
            layer.build((None, None, self.student.config.hidden_size))
        self.built = True

    @property
    def teacher(self) -> BertTaskModel:
        return self._teacher()

    @property
    def encoder(self) -> keras.Model:
        return self.student.encoder

    @property
    def head(self) -> keras.layers.Layer:
        return self.student.head

    def project(self, x: tf.Tensor, embeddings: bool) -> tf.Tensor:
        """Maps hidden states or embeddings [B, S, H] of the student to the teacher's width."""
        return self._projections[embeddings](x) if self._projections else x

    def call(self, inputs, training=None):
        return self.student(inputs, training=training)


class DistillationObjective:
    """The task's own loss, `labels`, and the terms of a recipe, each measured with its factor.

    Trains a `Distillation`; predicts what the task's objective predicts, with the student.

    Args:
        base: the objective of the task.
        num_train_steps: the number of steps of the run.
    """

    reads_step = True

    def __init__(self, base: Objective, recipe: Recipe, num_train_steps: int = 1):
        self._base, self._recipe, self._steps = base, recipe, num_train_steps
        own = tuple(name for name in base.measures if name != "loss")
        terms = tuple(term.name for term in recipe.terms)
        labels = ("labels",) if recipe.labels else ()
        self.losses = (*labels, *terms)
        self.measures = (*self.losses, *own)

    def counts(self, batch: Tensors) -> dict[str, tf.Tensor]:
        counts = self._base.counts(batch)
        examples = tf.reduce_sum(batch["example_weights"])
        own = {"labels": counts["loss"]} | counts
        return {name: own.get(name, examples) for name in self.measures}

    def sums(self, model: Distillation, batch: Tensors, training: bool) -> dict[str, tf.Tensor]:
        progress = tf.constant(1.0)
        if "step" in batch:
            progress = tf.cast(batch["step"], tf.float32) / self._steps
        logits, terms = self._call(model, batch, progress, training)
        # The task's objective calls a model: this one has been called already.
        own = self._base.sums(lambda *_, **__: logits, batch, training)
        factor = self._recipe.labels * active(progress, self._recipe.labels_during)
        return own | terms | {"labels": factor * own["loss"]}

    def outputs(self, model: Distillation, batch: Tensors) -> dict[str, tf.Tensor]:
        return self._base.outputs(model.student, batch)

    def _call(
        self, model: Distillation, batch: Tensors, progress: tf.Tensor, training: bool
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns the student's output and the sums of the terms."""
        if self._recipe.replaces and training:
            rate = replacing_rate(progress)
            return mixed_logits(model.student, model.teacher, batch, rate), {}
        student = compute(model.student, batch, self._recipe.reads, training)
        teacher = compute(model.teacher, batch, self._recipe.reads, False)
        teacher = tf.nest.map_structure(tf.stop_gradient, teacher)
        pair = Pair(teacher, student, batch["input_mask"], progress, model.project)
        sums = {}
        for term in self._recipe.terms:
            factor = term.weight * active(progress, term.during)
            sums[term.name] = factor * tf.reduce_sum(term.loss(pair) * batch["example_weights"])
        return student.logits, sums

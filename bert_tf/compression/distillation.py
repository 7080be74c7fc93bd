"""Trains a student with its teacher: the model, the objective, and layers that they mix."""

from typing import Any

import keras
import tensorflow as tf

from bert_tf.compression import losses
from bert_tf.compression.augmentation import LABELED
from bert_tf.compression.recipes import REPLACED_AFTER, Loss, Term, teacher_layer
from bert_tf.finetuning.objectives import Called, Tensors
from bert_tf.layers.initial_weights import truncated_normal
from bert_tf.models.bert_encoder import skip_padding
from bert_tf.models.task_model import BertTaskModel
from bert_tf.training.trainer import Objective

# The target that holds the teacher's predictions if they were made before training.
TEACHER = "teacher_outputs"

# The paper leaves it, as well as REPLACED_AFTER, to a search.
_FIRST_RATE = 0.3


class StudentModel(keras.Model):
    """A student, whose weights keep their paths, and what its training adds; calls the student."""

    def __init__(self, student: keras.Model, name: str):
        super().__init__(name=name)
        self.student = student

    @property
    def encoder(self) -> keras.Model:
        return getattr(self.student, "encoder", self.student)

    @property
    def head(self) -> keras.layers.Layer:
        return self.student.head

    def call(self, inputs, training=None):
        return self.student(inputs, training=training)


class Distillation(StudentModel):
    """A student, the teacher that it learns from, and projections to the teacher's width.

    The projections exist if the widths differ and hidden states are compared: `projects`. The
    teacher's weights are not among those of the model: they do not train, and checkpoints do not
    hold them. `teacher` is None if it made its predictions before training.
    """

    def __init__(self, student: keras.Model, teacher: keras.Model | None, projects: bool = True):
        super().__init__(student, "distillation")
        # In a function, where Keras does not find it.
        self._teacher = lambda: teacher
        self._skips_padding = False
        self._projections = []
        if projects and student.config.hidden_size != teacher.config.hidden_size:
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
    def teacher(self) -> keras.Model | None:
        return self._teacher()

    @property
    def skips_padding(self) -> bool:
        """Whether the teacher skips padding; see `bert_encoder.skip_padding`."""
        return self._skips_padding

    @skips_padding.setter
    def skips_padding(self, value: bool) -> None:
        self._skips_padding = value
        if self.teacher and value:
            skip_padding(self.teacher)

    def project(self, x: tf.Tensor, embeddings: bool) -> tf.Tensor:
        """Maps hidden states or embeddings [B, S, H] of the student to the teacher's width."""
        return self._projections[embeddings](x) if self._projections else x


class DistillationObjective:
    """The task's own loss, `labels`, and the terms of a `Loss`, each measured with its factor.

    A term is the mean over the examples. If it compares the predictions of taggers or masked LMs,
    it is the mean over the tokens with a tag or a mask; in training, taggers divide by the count of
    `TaggingObjective`. If an example has several rows or predictions, their mean counts.

    Trains a `Distillation`; predicts what the objective of the task predicts, with the student.
    """

    def __init__(self, base: Objective, loss: Loss, num_train_steps: int = 1):
        self._base, self._loss, self._steps = base, loss, num_train_steps
        own = tuple(name for name in base.measures if name != "loss")
        terms = tuple(term.name for term in loss.terms)
        labels = ("labels",) if loss.labels else ()
        self.losses = (*labels, *terms)
        self.measures = (*self.losses, *own)

    def counts(self, batch: Tensors) -> dict[str, tf.Tensor]:
        counts = self._base.counts(_labeled(batch))
        if self._loss.labels:
            counts["labels"] = counts[self._base.losses[0]]
        for term in self._loss.terms:
            if term.predicts and "tags" in batch:
                counts[term.name] = counts[self._base.losses[0]]
            else:
                counts[term.name] = tf.reduce_sum(_weights(term, batch))
        return {name: counts[name] for name in self.measures}

    def sums(self, model: Distillation, batch: Tensors, training: bool) -> dict[str, tf.Tensor]:
        loss, progress = self._loss, tf.constant(1.0)
        if "step" in batch:
            progress = tf.cast(batch["step"], tf.float32) / self._steps
        if loss.replaces and training:
            rate = replacing_rate(progress)
            output, sums = mixed_logits(model.student, model.teacher, batch, rate), {}
        else:
            output, sums = self._compare(model, batch, progress, training)
        own = self._base.sums(Called(output, model.student), _labeled(batch), training)
        if loss.labels:
            factor = loss.labels * losses.active(progress, loss.labels_during)
            sums["labels"] = factor * own[self._base.losses[0]]
        return own | sums

    def outputs(self, model: Distillation, batch: Tensors) -> dict[str, tf.Tensor]:
        return self._base.outputs(model.student, batch)

    def _compare(
        self, model: Distillation, batch: Tensors, progress: tf.Tensor, training: bool
    ) -> tuple[Any, dict[str, tf.Tensor]]:
        """Returns the student's output and the sums of the terms."""
        reads, mask = self._loss.reads, losses.encoder_inputs(model.student, batch)["input_mask"]
        student = losses.compute(model.student, batch, reads, training)
        if TEACHER in batch:
            teacher = losses.ModelOutputs(None, batch[TEACHER], [], [])
        else:
            teacher = losses.compute(model.teacher, batch, reads, False)
        ours, theirs = (
            x._replace(logits=losses.distributions(self._base, x.logits, mask))
            for x in (student, teacher)
        )
        theirs = tf.nest.map_structure(lambda x: x if x is None else tf.stop_gradient(x), theirs)
        pair, sums = losses.Pair(theirs, ours, mask, progress, model.project), {}
        for term in self._loss.terms:
            weights = _weights(term, batch)
            # Several losses of one weight count with their mean.
            shape = tf.concat([tf.shape(weights), [-1]], axis=0)
            each = tf.reduce_mean(tf.reshape(losses.term_loss(term, pair), shape), axis=-1)
            total = tf.reduce_sum(each * weights)
            sums[term.name] = term.weight * losses.active(progress, term.during) * total
        return student.output, sums


def _labeled(batch: Tensors) -> Tensors:
    """Returns a batch in which only examples with labels of their own count."""
    if LABELED not in batch:
        return batch
    return {**batch, "example_weights": batch["example_weights"] * batch[LABELED]}


def _weights(term: Term, batch: Tensors) -> tf.Tensor:
    """Returns the weights of what a term compares: examples [B], tokens [B, S], or masks [B, P]."""
    examples = batch["example_weights"]
    if term.predicts and "masked_lm_weights" in batch:
        return batch["masked_lm_weights"]
    if term.predicts and "tags" in batch:
        return tf.cast(batch["tags"] >= 0, tf.float32) * examples[:, tf.newaxis]
    return examples


def replacing_rate(progress: tf.Tensor) -> tf.Tensor:
    """Returns the probability that a module is replaced: min(1, k t + b), t being the progress.

    It rises from b = 0.3 at the start to 1 after two thirds of the steps; from then on, the student
    trains alone.

    Source: BERT-of-Theseus (arXiv:2002.02925) equation 6.
    """
    slope = (1.0 - _FIRST_RATE) / REPLACED_AFTER
    return tf.minimum(1.0, _FIRST_RATE + slope * progress)


def mixed_logits(
    student: BertTaskModel, teacher: BertTaskModel, batch: Tensors, rate: tf.Tensor | float
) -> tf.Tensor:
    """Computes the student's output in training, with some of its layers replaced by the teacher's.

    Each layer of the student stands for a module of the teacher: consecutive layers, whose weights
    do not train. Which modules are replaced depends on the batch's `dropout_seed`, so that a
    resumed run replaces the same ones. Unlike in the paper, embeddings and head, which are the
    student's, train from the start.
    `rate` is the probability that the student's layer is used.

    Source: BERT-of-Theseus (arXiv:2002.02925) section 3.2.
    """
    encoder, rows = student.encoder, student.rows(batch)
    mask = encoder.attention_mask(rows["input_mask"])
    seeds = encoder.dropout_seeds(batch, True)
    count, total = encoder.config.num_hidden_layers, teacher.config.num_hidden_layers
    replaced = tf.random.stateless_uniform([count], seeds.next()) < rate
    x = encoder.embeddings(
        rows["input_word_ids"], rows["input_type_ids"], seeds=seeds, training=True
    )
    for index in range(count):
        module = range(teacher_layer(index, count, total), teacher_layer(index + 1, count, total))

        def successor(x=x, index=index):
            return encoder.block(index)(x, mask, seeds=seeds, training=True)

        def predecessor(x=x, module=module):
            for layer in module:
                x = teacher.encoder.block(layer)(x, mask, seeds=seeds, training=True)
            return x

        x = tf.cond(replaced[index], successor, predecessor)
    outputs = {"sequence_output": x, "pooled_output": encoder.pool(x, rows["input_mask"])}
    return student.logits(outputs, batch, seeds, training=True)

"""The terms of a distillation's loss: which outputs of which layers a loss compares, and when."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from bert_tf.compression import losses
from bert_tf.compression.outputs import ATTENTION, HIDDEN, Outputs

# Shares of the steps of a run.
Span = tuple[float, float]
ALWAYS = (0.0, 1.0)


class Pair(NamedTuple):
    """What teacher and student computed for a batch.

    Attributes:
        mask: the `input_mask`, int [B, S], with a row for every choice.
        progress: the share of the steps taken before this one, float32 [].
        project: maps the student's embeddings or hidden states to the teacher's width; its second
            argument says whether they are embeddings.
    """

    teacher: Outputs
    student: Outputs
    mask: tf.Tensor
    progress: tf.Tensor
    project: Callable[[tf.Tensor, bool], tf.Tensor]


class Term(NamedTuple):
    """A term of the loss.

    Attributes:
        name: its name in the metrics of the run.
        loss: maps a `Pair` to losses, one per row [B]; for predictions, one per distribution.
        weight: the factor in the loss.
        reads: what it needs besides the logits; see `outputs.compute`.
        during: when it counts.
        projects: whether it works for students of another width.
        predicts: whether it compares predictions.
    """

    name: str
    loss: Callable[[Pair], tf.Tensor]
    weight: float = 1.0
    reads: tuple[str, ...] = ()
    during: Span = ALWAYS
    projects: bool = False
    predicts: bool = False


def active(progress: tf.Tensor, during: Span) -> tf.Tensor:
    """Returns 1 during a span and 0 otherwise, float32 []."""
    start, end = during
    # The last step is before 1, and an evaluation at 1.
    return tf.cast((progress >= start) & ((progress < end) | (end == 1.0)), tf.float32)


def teacher_layer(layer: int, num_student: int, num_teacher: int) -> int:
    """Returns the teacher's layer for a student's layer; both count from 1, and 0 maps to 0."""
    return round(layer * num_teacher / num_student)


def soft_labels(weight: float, temperature: float, during: Span = ALWAYS) -> Term:
    """The teacher's probabilities; for a model that predicts a number, the squared error."""

    def loss(pair: Pair) -> tf.Tensor:
        teacher, student = pair.teacher.logits, pair.student.logits
        if student.shape.rank == 1:
            return losses.squared_error(teacher, student)
        return losses.soft_labels(teacher, student, temperature)

    return Term("soft_labels", loss, weight, during=during, projects=True, predicts=True)


def outputs(weight: float) -> Term:
    """The logits, or the number, that the models predict."""

    def loss(pair: Pair) -> tf.Tensor:
        return losses.squared_error(pair.teacher.logits, pair.student.logits)

    return Term("outputs", loss, weight, projects=True, predicts=True)


def last_states(weight: float) -> Term:
    """The direction of the last layer's states."""

    def loss(pair: Pair) -> tf.Tensor:
        return losses.token_cosine(pair.teacher.hidden[-1], pair.student.hidden[-1], pair.mask)

    return Term("cosine", loss, weight, (HIDDEN,))


def patient_layers(weight: float) -> Term:
    """[CLS] of all layers of the student but the last, against every k-th of the teacher."""

    def loss(pair: Pair) -> tf.Tensor:
        layers = range(1, pair.student.num_layers)
        parts = [losses.patience(*_hidden(pair, layer)) for layer in layers]
        return _mean(parts, pair)

    return Term("patience", loss, weight, (HIDDEN,))


def attention_scores(weight: float, during: Span) -> Term:
    """The attention scores of all layers, added up."""

    def loss(pair: Pair) -> tf.Tensor:
        layers = range(1, pair.student.num_layers + 1)
        return tf.add_n(
            [losses.attention_error(*_scores(pair, layer), pair.mask) for layer in layers]
        )

    return Term("attention", loss, weight, (HIDDEN, ATTENTION), during, projects=True)


def hidden_states(weight: float, during: Span) -> Term:
    """The states of all layers, projected to the teacher's width, added up."""

    def loss(pair: Pair) -> tf.Tensor:
        layers = range(1, pair.student.num_layers + 1)
        return tf.add_n([_hidden_error(pair, layer) for layer in layers])

    return Term("hidden", loss, weight, (HIDDEN,), during, projects=True)


def feature_maps(weight: float, during: Span, stacked: bool) -> Term:
    """The same as `hidden_states`, layer after layer; see `_bottom_up`."""
    function = functools.partial(_bottom_up, _hidden_error, during, stacked)
    return Term("hidden", function, weight, (HIDDEN,), during, projects=True)


def embeddings(weight: float, during: Span) -> Term:
    """The embeddings, projected to the teacher's width."""

    def loss(pair: Pair) -> tf.Tensor:
        teacher, student = _hidden(pair, 0)
        return losses.hidden_error(teacher, pair.project(student, True), pair.mask)

    return Term("embeddings", loss, weight, (HIDDEN,), during, projects=True)


def internal_attention(weight: float, during: Span, stacked: bool) -> Term:
    """The attention probabilities, layer after layer; see `_bottom_up`."""

    def loss(pair: Pair, layer: int) -> tf.Tensor:
        return losses.attention_divergence(*_scores(pair, layer), pair.mask)

    function = functools.partial(_bottom_up, loss, during, stacked)
    return Term("attention", function, weight, (HIDDEN, ATTENTION), during, projects=True)


def internal_states(weight: float, during: Span, stacked: bool) -> Term:
    """[CLS], layer after layer; see `_bottom_up`."""

    def loss(pair: Pair, layer: int) -> tf.Tensor:
        return losses.first_token_cosine(*_hidden(pair, layer))

    function = functools.partial(_bottom_up, loss, during, stacked)
    return Term("cosine", function, weight, (HIDDEN,), during)


def _bottom_up(
    loss: Callable[[Pair, int], tf.Tensor], during: Span, stacked: bool, pair: Pair
) -> tf.Tensor:
    """Adds up the losses of the layers that are active.

    A span is divided among the layers from the lowest to the highest. `stacked` layers stay active
    once they have begun; otherwise one layer is active at a time.
    """
    start, end = during
    share = (end - start) / pair.student.num_layers
    parts = []
    for layer in range(1, pair.student.num_layers + 1):
        begins = start + (layer - 1) * share
        until = end if stacked or layer == pair.student.num_layers else begins + share
        parts.append(active(pair.progress, (begins, until)) * loss(pair, layer))
    return tf.add_n(parts)


def _hidden_error(pair: Pair, layer: int) -> tf.Tensor:
    teacher, student = _hidden(pair, layer)
    return losses.hidden_error(teacher, pair.project(student, False), pair.mask)


def _hidden(pair: Pair, layer: int) -> tuple[tf.Tensor, tf.Tensor]:
    number = teacher_layer(layer, pair.student.num_layers, pair.teacher.num_layers)
    return pair.teacher.hidden[number], pair.student.hidden[layer]


def _scores(pair: Pair, layer: int) -> tuple[tf.Tensor, tf.Tensor]:
    number = teacher_layer(layer, pair.student.num_layers, pair.teacher.num_layers)
    return pair.teacher.scores[number - 1], pair.student.scores[layer - 1]


def _mean(parts: list[tf.Tensor], pair: Pair) -> tf.Tensor:
    """Returns the mean of the layers; 0 for a student of one layer, which has none to compare."""
    return tf.add_n(parts) / len(parts) if parts else tf.zeros_like(pair.mask[:, 0], tf.float32)

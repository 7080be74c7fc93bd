"""The terms of a distillation's loss: which outputs of which layers a loss compares, and when."""

import functools
from collections.abc import Callable, Iterable
from typing import NamedTuple

import tensorflow as tf

from bert_tf.compression import losses
from bert_tf.compression.outputs import ATTENTION, HIDDEN, Outputs

# Shares of the steps of a run.
Span = tuple[float, float]
ALWAYS = (0.0, 1.0)

# Besides attention scores and hidden states, terms compare predictions, and hidden states that are
# projected to the teacher's width.
LOGITS, PROJECTED = "logits", "projected"

# The layers of the student to compare. The last two divide a span among the layers, from the lowest
# to the highest: a STACKED layer stays active once it has begun, PROGRESSIVE layers take turns.
EMBEDDINGS, LAST, BELOW_LAST, EVERY = "embeddings", "last", "below last", "every"
STACKED, PROGRESSIVE = "stacked", "progressive"


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
    """A term of the loss: the sum over its layers or, for `BELOW_LAST`, their mean.

    Attributes:
        name: its name in the metrics of the run.
        compare: one of `losses`.
        weight: the factor in the loss.
        values: what it compares.
        layers: the layers that it compares.
        during: the part of the run in which it counts.
    """

    name: str
    compare: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
    weight: float = 1.0
    values: str = LOGITS
    layers: str = EVERY
    during: Span = ALWAYS

    @property
    def predicts(self) -> bool:
        """Whether it compares predictions."""
        return self.values == LOGITS

    @property
    def reads(self) -> tuple[str, ...]:
        """What it needs besides the logits; see `outputs.compute`."""
        if self.predicts:
            return ()
        return (HIDDEN, ATTENTION) if self.values == ATTENTION else (HIDDEN,)

    def loss(self, pair: Pair) -> tf.Tensor:
        """Returns losses, one per row [B]; for predictions, one per distribution."""
        if self.predicts:
            return self.compare(pair.teacher.logits, pair.student.logits, pair.mask)
        parts = [
            self.compare(*self._compared(pair, layer), pair.mask) * factor
            for layer, factor in self._factors(pair)
        ]
        # A student with one layer has no layers below the last.
        total = tf.add_n(parts) if parts else tf.zeros_like(pair.mask[:, 0], tf.float32)
        return total / max(1, len(parts)) if self.layers == BELOW_LAST else total

    def _factors(self, pair: Pair) -> Iterable[tuple[int, tf.Tensor | float]]:
        """Yields the layers of the student, and whether they are active."""
        count, (start, end) = pair.student.num_layers, self.during
        if self.layers not in (STACKED, PROGRESSIVE):
            first = {EMBEDDINGS: 0, LAST: count}.get(self.layers, 1)
            last = {EMBEDDINGS: 0, BELOW_LAST: count - 1}.get(self.layers, count)
            yield from ((layer, 1.0) for layer in range(first, last + 1))
            return
        share = (end - start) / count
        for layer in range(1, count + 1):
            begins = start + (layer - 1) * share
            until = end if self.layers == STACKED or layer == count else begins + share
            yield layer, active(pair.progress, (begins, until))

    def _compared(self, pair: Pair, layer: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the values of the teacher and of a layer of the student, counted from 1."""
        teacher, student = pair.teacher, pair.student
        number = teacher_layer(layer, student.num_layers, teacher.num_layers)
        if self.values == ATTENTION:
            return teacher.scores[number - 1], student.scores[layer - 1]
        ours = student.hidden[layer]
        if self.values == PROJECTED:
            ours = pair.project(ours, layer == 0)
        return teacher.hidden[number], ours


def soft_labels(weight: float, temperature: float, during: Span = ALWAYS) -> Term:
    """Compares probabilities, or the numbers that a model predicts."""
    compare = functools.partial(losses.soft_labels, temperature=temperature)
    return Term("soft_labels", compare, weight, during=during)


def active(progress: tf.Tensor, during: Span) -> tf.Tensor:
    """Returns 1 during a span and 0 otherwise, float32 []."""
    start, end = during
    # The last step is before 1, and an evaluation at 1.
    return tf.cast((progress >= start) & ((progress < end) | (end == 1.0)), tf.float32)


def teacher_layer(layer: int, num_student: int, num_teacher: int) -> int:
    """Returns the teacher's layer for a student's layer; both count from 1, and 0 maps to 0."""
    return round(layer * num_teacher / num_student)

"""The losses of distillation, each as its paper states it, what they compare, and their terms.

Every loss returns a value per example, float32 [B], or per distribution, [...]. `teacher` and
`student` are what the two models computed, as float32 tensors of one shape: logits [..., C], hidden
states [B, S, H], or attention scores before the softmax [B, N, S, S]. Each loss is 0 where they are
equal. `mask` is the `input_mask`, int [B, S]: padding has no influence. An example without tokens,
which fills a batch, has a loss of 0. Where a paper adds up those of the layers, `term_loss` does.
"""

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bert_tf.compression import recipes
from bert_tf.compression.recipes import Span, Term, teacher_layer
from bert_tf.finetuning.objectives import MultiLabelObjective, RegressionObjective, SpanObjective
from bert_tf.layers.bert import attention_bias
from bert_tf.models.task_model import BertTaskModel
from bert_tf.training.trainer import Objective


class ModelOutputs(NamedTuple):
    """What a model computed for a batch, in float32, with a row for every choice.

    `hidden` are the embeddings and the output of every layer, [B, S, H], and `scores` the attention
    scores of every layer before the softmax, [B, N, S, S]. Both are empty if not asked for.
    """

    output: Any  # what it returns
    logits: tf.Tensor | None  # of a task model, or [B, P, V] of a pre-trainer; None for an encoder
    hidden: list[tf.Tensor]
    scores: list[tf.Tensor]

    @property
    def num_layers(self) -> int:
        return len(self.hidden) - 1


def compute(
    model: keras.Model, batch: Mapping[str, tf.Tensor], reads: Collection[str], training: bool
) -> ModelOutputs:
    """Calls a task model, pre-trainer or encoder; returns the logits and what `reads` names."""
    encoder, rows = getattr(model, "encoder", model), encoder_inputs(model, batch)
    if isinstance(model, BertTaskModel) and not reads:
        output = logits = model(batch, training=training)
    elif isinstance(model, BertTaskModel):
        seeds = encoder.dropout_seeds(rows, training)
        outputs = encoder(rows, seeds=seeds, training=training)
        output = logits = model.logits(outputs, batch, seeds, training)
    else:
        output = outputs = model(batch, training=training)
        logits = tf.cast(outputs["mlm_logits"], tf.float32) if "mlm_logits" in outputs else None
    if not reads:
        return ModelOutputs(output, logits, [], [])
    hidden = [outputs["embeddings"], *outputs["encoder_outputs"]]
    scores = encoder.attention_scores(outputs) if recipes.ATTENTION in reads else []
    return ModelOutputs(output, logits, [tf.cast(x, tf.float32) for x in hidden], scores)


def encoder_inputs(model: keras.Model, batch: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
    """Returns what the encoder of a model reads, with a row for every choice."""
    return model.rows(batch) if isinstance(model, BertTaskModel) else batch


def distributions(objective: Objective, logits: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Returns logits whose softmax over the last axis is what the model predicts; or its numbers.

    | objective             | returns                                                 |
    |-----------------------|---------------------------------------------------------|
    | `MultiLabelObjective` | [B, C, 2]: for every class, whether it applies          |
    | `SpanObjective`       | [B, 2, S]: the start and the end, never at padding      |
    | `RegressionObjective` | [B]: numbers, in standard deviations                    |
    | others                | `logits`                                                |
    """
    if isinstance(objective, MultiLabelObjective):
        return tf.stack([logits, tf.zeros_like(logits)], axis=-1)
    if isinstance(objective, SpanObjective):
        padding = tf.cast(mask == 0, tf.float32)[:, :, tf.newaxis]
        return tf.transpose(logits - 1e9 * padding, [0, 2, 1])
    if isinstance(objective, RegressionObjective):
        return logits / objective.deviation
    return logits


def soft_labels(
    teacher: tf.Tensor, student: tf.Tensor, mask: tf.Tensor | None = None, temperature: float = 1.0
) -> tf.Tensor:
    """The divergence of the student's probabilities from the teacher's, softened.

        T^2 sum_c p_c log(p_c / q_c),  p = softmax(teacher / T),  q = softmax(student / T)

    The papers state the cross-entropy, -T^2 sum_c p_c log q_c: it differs by the entropy of p,
    which the student does not influence, so the gradient is the same. Of numbers [B], the squared
    error.

    Source: Distilling the Knowledge in a Neural Network (arXiv:1503.02531) section 2.
    """
    if len(student.shape) == 1:
        return squared_error(teacher, student, mask)
    log_p = tf.nn.log_softmax(teacher / temperature)
    log_q = tf.nn.log_softmax(student / temperature)
    return temperature**2 * tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), axis=-1)


def squared_error(teacher: tf.Tensor, student: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """The squared error of logits, ||teacher - student||^2, or of numbers [B].

    Source: Distilling Task-Specific Knowledge from BERT (arXiv:1903.12136) equation 3.
    """
    errors = tf.square(teacher - student)
    return errors if errors.shape.rank == 1 else tf.reduce_sum(errors, axis=-1)


def token_cosine(teacher: tf.Tensor, student: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """One minus the cosine between the two models' states of a token, the mean over the tokens.

        mean_i (1 - cos(teacher_i, student_i))

    Source: DistilBERT (arXiv:1910.01108) section 2.
    """
    return _mean(1.0 - _cosine(teacher, student), mask)


def first_token_cosine(teacher: tf.Tensor, student: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """One minus the cosine between the two models' states of [CLS].

        1 - cos(teacher_0, student_0)

    Source: Knowledge Distillation from Internal Representations (arXiv:1910.03723), the loss of
    the [CLS] activation.
    """
    return 1.0 - _cosine(teacher[:, 0], student[:, 0])


def patience(teacher: tf.Tensor, student: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """The squared error of the normalized states of [CLS], the mean over the width.

        1/H || teacher_0 / ||teacher_0|| - student_0 / ||student_0|| ||^2

    The paper's formula has no 1/H. The authors' code has it, and the published factors of this loss
    are those of the code.

    Source: Patient Knowledge Distillation (arXiv:1908.09355) section 3.2.
    """
    teacher, student = (tf.math.l2_normalize(x[:, 0], axis=-1) for x in (teacher, student))
    return tf.reduce_mean(tf.square(teacher - student), axis=-1)


def hidden_error(teacher: tf.Tensor, student: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """The mean squared error of the states or embeddings of all tokens.

        mean_{i,d} (teacher_id - student_id)^2

    Source: TinyBERT (arXiv:1909.10351) equations 8 and 9; MobileBERT (arXiv:2004.02984), feature
    map transfer.
    """
    return _mean(tf.reduce_mean(tf.square(teacher - student), axis=-1), mask)


def attention_error(teacher: tf.Tensor, student: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """The mean squared error of the attention scores before the softmax.

        1/N sum_n mean_{i,j} (teacher_nij - student_nij)^2,  i and j over the tokens

    Source: TinyBERT (arXiv:1909.10351) equation 7.
    """
    errors = tf.reduce_mean(tf.square(teacher - student), axis=1)
    return _mean(errors, mask[:, :, tf.newaxis] * mask[:, tf.newaxis])


def attention_divergence(teacher: tf.Tensor, student: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """The divergence of the student's attention probabilities from the teacher's.

        1/N sum_n mean_i sum_j p_nij log(p_nij / q_nij)

    p and q are the softmax of the scores over the tokens j.

    Source: Knowledge Distillation from Internal Representations (arXiv:1910.03723), the loss of
    the self-attention probabilities; MobileBERT (arXiv:2004.02984), attention transfer.
    """
    bias = attention_bias(tf.cast(mask, tf.bool)[:, tf.newaxis, tf.newaxis])
    divergences = soft_labels(teacher + bias, student + bias)
    return _mean(tf.reduce_mean(divergences, axis=1), mask)


def _cosine(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    a, b = (tf.math.l2_normalize(x, axis=-1) for x in (a, b))
    return tf.reduce_sum(a * b, axis=-1)


def _mean(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Returns the means [B] of values [B, ...] where a mask of their shape is 1."""
    mask, axes = tf.cast(mask, tf.float32), range(1, len(values.shape))
    return tf.math.divide_no_nan(tf.reduce_sum(values * mask, axes), tf.reduce_sum(mask, axes))


class Pair(NamedTuple):
    """What teacher and student computed for a batch."""

    teacher: ModelOutputs
    student: ModelOutputs
    mask: tf.Tensor  # the `input_mask`, int [B, S], with a row for every choice
    progress: tf.Tensor  # the share of the steps taken before this one, float32 []
    # Maps the student's hidden states, or embeddings if the second is true, to the teacher's width.
    project: Callable[[tf.Tensor, bool], tf.Tensor]


_LOSSES = {
    loss.__name__: loss
    for loss in (
        *(soft_labels, squared_error, token_cosine, first_token_cosine, patience, hidden_error),
        *(attention_error, attention_divergence),
    )
}


def term_loss(term: Term, pair: Pair) -> tf.Tensor:
    """Returns the losses of a term, one per row [B]; for predictions, one per distribution."""
    compare = _LOSSES[term.compare]
    if term.temperature:
        compare = functools.partial(compare, temperature=term.temperature)
    if term.predicts:
        return compare(pair.teacher.logits, pair.student.logits, pair.mask)
    parts = [
        compare(*_compared(term, pair, layer), pair.mask) * factor
        for layer, factor in _factors(term, pair)
    ]
    # A student with one layer has no layers below the last.
    total = tf.add_n(parts) if parts else tf.zeros_like(pair.mask[:, 0], tf.float32)
    return total / max(1, len(parts)) if term.layers == recipes.BELOW_LAST else total


def _factors(term: Term, pair: Pair) -> Iterable[tuple[int, tf.Tensor | float]]:
    """Yields the layers of the student, and whether they are active."""
    count, (start, end) = pair.student.num_layers, term.during
    if term.layers not in (recipes.STACKED, recipes.PROGRESSIVE):
        first = {recipes.EMBEDDED: 0, recipes.LAST: count}.get(term.layers, 1)
        last = {recipes.EMBEDDED: 0, recipes.BELOW_LAST: count - 1}.get(term.layers, count)
        yield from ((layer, 1.0) for layer in range(first, last + 1))
        return
    share = (end - start) / count
    for layer in range(1, count + 1):
        begins = start + (layer - 1) * share
        until = end if term.layers == recipes.STACKED or layer == count else begins + share
        yield layer, active(pair.progress, (begins, until))


def _compared(term: Term, pair: Pair, layer: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the values of the teacher and of a layer of the student, counted from 1."""
    teacher, student = pair.teacher, pair.student
    number = teacher_layer(layer, student.num_layers, teacher.num_layers)
    if term.values == recipes.ATTENTION:
        return teacher.scores[number - 1], student.scores[layer - 1]
    ours = student.hidden[layer]
    if term.values == recipes.PROJECTED:
        ours = pair.project(ours, layer == 0)
    return teacher.hidden[number], ours


def active(progress: tf.Tensor, during: Span) -> tf.Tensor:
    """Returns 1 during a span and 0 otherwise, float32 []."""
    start, end = during
    # The last step is before 1, and an evaluation at 1.
    return tf.cast((progress >= start) & ((progress < end) | (end == 1.0)), tf.float32)

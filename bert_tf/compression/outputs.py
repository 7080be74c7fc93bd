"""A student, and what distillation compares: logits, hidden states and attention scores."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bert_tf.compression.recipes import ATTENTION
from bert_tf.finetuning.objectives import MultiLabelObjective, RegressionObjective, SpanObjective
from bert_tf.models.task_model import BertTaskModel
from bert_tf.training.trainer import Objective


class ModelOutputs(NamedTuple):
    """What a model computed for a batch, in float32.

    Attributes:
        output: what the model returns.
        logits: its predictions: the output of a task model, or the `mlm_logits` [B, P, V] of a
            pre-trainer; None for an encoder.
        hidden: the embeddings and the output of every layer, [B, S, H], with a row for every
            choice; hidden[l] is the output of layer l, counted from 1. Empty if not asked for.
        scores: the attention scores of every layer before the softmax, [B, N, S, S]. Empty if not
            asked for.
    """

    output: Any
    logits: tf.Tensor | None
    hidden: list[tf.Tensor]
    scores: list[tf.Tensor]

    @property
    def num_layers(self) -> int:
        return len(self.hidden) - 1


class StudentModel(keras.Model):
    """A student and what its training adds. The weights of the student keep their paths.

    Call: the inputs of the student -> its output.
    """

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


def compute(
    model: keras.Model, batch: Mapping[str, tf.Tensor], reads: Collection[str], training: bool
) -> ModelOutputs:
    """Calls a task model, a pre-trainer or an encoder; returns what `reads` names, and the logits.

    Attention scores are computed from the input of each layer, because the attention itself does
    not keep them.
    """
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
    # With the seeds of the call above, so that the same elements are dropped.
    embeddings = encoder.embeddings(
        rows["input_word_ids"],
        rows["input_type_ids"],
        seeds=encoder.dropout_seeds(rows, training),
        training=training,
    )
    hidden = [embeddings, *outputs["encoder_outputs"]]
    scores = []
    if ATTENTION in reads:
        scores = [encoder.block(i).attention.scores(x) for i, x in enumerate(hidden[:-1])]
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

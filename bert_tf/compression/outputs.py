"""What distillation compares: logits, hidden states and attention scores of two models."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bert_tf.models.task_model import BertTaskModel

HIDDEN, ATTENTION = "hidden", "attention"


class Outputs(NamedTuple):
    """What a model computed for a batch, in float32.

    Attributes:
        output: what the model returns.
        logits: its predictions: of a task model, its output; of a pre-trainer, the `mlm_logits`
            [B, P, V]; None for an encoder.
        hidden: the embeddings and the output of every layer, [B, S, H]; hidden[l] is that of the
            layer number l, counted from 1. Empty if not asked for.
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


def compute(
    model: keras.Model, batch: Mapping[str, tf.Tensor], reads: Collection[str], training: bool
) -> Outputs:
    """Calls a model and returns what `reads` names beside the logits.

    Attention scores are computed from the input of each layer, because the attention itself does
    not keep them.

    Args:
        model: a task model of single sequences, a pre-trainer or an encoder.
        batch: its inputs.
        reads: HIDDEN, or HIDDEN and ATTENTION.
    """
    encoder = getattr(model, "encoder", model)
    if isinstance(model, BertTaskModel):
        seeds = encoder.dropout_seeds(batch, training)
        outputs = encoder(batch, seeds=seeds, training=training)
        output = logits = model.logits(outputs, seeds, training)
    else:
        output = outputs = model(batch, training=training)
        logits = tf.cast(outputs["mlm_logits"], tf.float32) if "mlm_logits" in outputs else None
    if not reads:
        return Outputs(output, logits, [], [])
    # With the seeds of the call above, so that the same elements are dropped.
    embeddings = encoder.embeddings(
        batch["input_word_ids"],
        batch["input_type_ids"],
        seeds=encoder.dropout_seeds(batch, training),
        training=training,
    )
    hidden = [embeddings, *outputs["encoder_outputs"]]
    scores = []
    if ATTENTION in reads:
        scores = [encoder.block(i).attention.scores(x) for i, x in enumerate(hidden[:-1])]
    return Outputs(output, logits, [tf.cast(x, tf.float32) for x in hidden], scores)

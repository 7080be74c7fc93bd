"""Modules of the teacher that are replaced by layers of the student at random."""

from collections.abc import Mapping

import tensorflow as tf

from bert_tf.compression.losses import teacher_layer
from bert_tf.models.task_model import BertTaskModel

# The paper leaves both to a search.
_FIRST_RATE = 0.3
REPLACED_AFTER = 2 / 3
"""The share of the steps after which the student trains alone."""


def replacing_rate(progress: tf.Tensor) -> tf.Tensor:
    """Returns the probability that a module is replaced: min(1, k t + b), t being the progress.

    It rises from b = 0.3 at the start to 1 after two thirds of the steps; from then on, the student
    trains alone.

    Source: BERT-of-Theseus (arXiv:2002.02925) equation 6.
    """
    slope = (1.0 - _FIRST_RATE) / REPLACED_AFTER
    return tf.minimum(1.0, _FIRST_RATE + slope * progress)


def mixed_logits(
    student: BertTaskModel,
    teacher: BertTaskModel,
    batch: Mapping[str, tf.Tensor],
    rate: tf.Tensor | float,
) -> tf.Tensor:
    """Computes the student's output in training, with some of its layers replaced by the teacher's.

    Each layer of the student stands for a module of the teacher: consecutive layers, whose weights
    do not train. Which modules are replaced depends on the batch's `dropout_seed`, so that a
    resumed run replaces the same ones. Unlike in the paper, embeddings and head, which are the
    student's, train from the start.
    `rate` is the probability that the student's layer is used.

    Source: BERT-of-Theseus (arXiv:2002.02925) section 3.2.
    """
    encoder, seed, rows = student.encoder, batch["dropout_seed"], student.rows(batch)
    mask = encoder.attention_mask(rows["input_mask"])
    seeds = encoder.dropout_seeds(batch, True)
    count, total = encoder.config.num_hidden_layers, teacher.config.num_hidden_layers
    replaced = tf.random.stateless_uniform([count], seed) < rate
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

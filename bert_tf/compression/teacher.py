"""The teacher: its model, and what it predicts."""

import numpy as np
import tensorflow as tf

from bert_tf.config import ModelSpec
from bert_tf.finetuning.batches import eval_batches
from bert_tf.finetuning.features import Features
from bert_tf.finetuning.task import Task
from bert_tf.finetuning.trained_head import load_task_model
from bert_tf.training.iteration import with_progress
from bert_tf.training.trainer import Trainer
from bert_tf.weights.checkpoint import Checkpoint
from tfrecords.progress import counted, say
from tfrecords.vocabulary import Vocabulary

_BATCH_SIZE = 32


def known_spec(teacher: Checkpoint, vocab: Vocabulary, lower_case: bool) -> ModelSpec:
    """Returns configuration, vocabulary and casing of a teacher.

    Args:
        vocab, lower_case: those of the student, for what is not known of the teacher.
    """
    spec = teacher.spec
    casing = lower_case if spec.lower_case is None else spec.lower_case
    return ModelSpec(spec.config, spec.vocab or vocab, casing)


def predict(task: Task, teacher: Checkpoint, features: Features) -> np.ndarray:
    """Returns what a teacher predicts for every example: logits [N, C] or numbers [N].

    It computes on the first GPU, if there is one, or else on the CPU.
    """
    say(f"The teacher predicts {counted(len(features), 'training example')}.")
    gpus = tf.config.list_logical_devices("GPU")
    strategy = tf.distribute.OneDeviceStrategy(gpus[0].name if gpus else "/cpu:0")
    with strategy.scope():
        model = load_task_model(task, teacher)
    trainer = Trainer(strategy, model, task.objective)
    batches = eval_batches(features, _BATCH_SIZE)
    batches = with_progress(batches, "Predicting", total=len(batches))
    (predictions,) = trainer.predict(batches).values()
    return predictions

"""Trains a task's model: what it minimizes, on which batches, and when it is evaluated."""

import dataclasses
import math
from collections.abc import Callable, Mapping

import keras
import tensorflow as tf

from bert_tf.config import ModelSpec
from bert_tf.finetuning.batches import batch_sizes, train_batches
from bert_tf.finetuning.objectives import ClassificationObjective
from bert_tf.finetuning.task import Task
from bert_tf.finetuning.tasks.classification import class_weights, describe_weights
from bert_tf.finetuning.tokenizing import Features
from bert_tf.sessions.learner import Learner, Training
from bert_tf.sessions.session import Session
from bert_tf.training.driver import Phase, Plan
from bert_tf.training.optimizers import Factors, make_schedule
from bert_tf.training.trainer import Objective
from bert_tf.weights.names import num_layers

# As in the original. Each epoch ends with a checkpoint, too.
_SAVE_CHECKPOINTS_STEPS = 1000


def rate_factors(num_layers: int, decay: float) -> Factors:
    """Returns the factors on the learning rates of a model with a `BertEncoder` named "encoder".

    The factor is 1 for the head, decay^1 for the pooler, decay^2 for the last layer, and so on down
    to decay^(num_layers + 2) for the embeddings. Only layers with weights of their own count.

    Source: ELECTRA (arXiv:2003.10555) appendix B; google-research/electra model/optimization.py
    `_get_layer_lrs`.
    """
    parts = ["embeddings", *(f"layer_{index}" for index in range(num_layers)), "pooler"]
    powers = range(len(parts), 0, -1)
    return [(f"(^|/)encoder/{part}/", decay**x) for part, x in zip(parts, powers, strict=True)]


class TaskLearner(Learner):
    """Trains the model of a task."""

    def __init__(self, task: Task):
        self.task = task

    def build_model(self, session: Session, spec: ModelSpec) -> keras.Model:
        return self.task.build_model(spec.config)

    def objective(self, spec: ModelSpec, num_train_steps: int) -> Objective:
        return self.task.objective

    def initial_weights(self, model: keras.Model) -> list[keras.Variable]:
        return self.task.initial_weights(model)


def make_training(
    session: Session, learner: TaskLearner, spec: ModelSpec, examples: Features
) -> Training:
    """Puts together what trains a task on its examples; writes nothing.

    The dev set is evaluated after every epoch. The best weights are those with the best
    `task.metric`, and among equals the earliest; `best` in the run folder keeps them.
    """
    task, options, config = learner.task, session.options, spec.config
    steps = options.num_train_steps(len(examples))
    if options.layer_decay != 1 and not config.has_layers:
        raise ValueError("--layer_decay has no effect on a BiLSTM: omit it")
    sizes = options.train_batch_size, session.strategy.num_replicas_in_sync, config
    if note := task.check_steps(examples, *sizes):
        session.say(f"WARNING: {note}")
    if note := examples.advice(config.longest_input):
        session.say(note)
    steps_per_epoch = math.ceil(steps / max(1, round(options.num_train_epochs)))
    objective = learner.objective(spec, steps)
    if options.class_weights:
        objective = _with_class_weights(session, task, examples)
    warmup = int(steps * options.warmup_proportion)
    return Training(
        session,
        learner,
        spec,
        objective,
        make_schedule(options.learning_rate, steps, warmup),
        Plan(
            save_checkpoints_steps=_SAVE_CHECKPOINTS_STEPS,
            evaluation_steps=steps_per_epoch,
            epoch_steps=steps_per_epoch,
            # A curve even of a run of a few steps.
            log_steps=min(100, math.ceil(steps / 10)),
            keep_checkpoints=1,
            best_metric=f"eval_{task.metric}",
            first_best_step=learner.first_best_step(steps),
            patience=options.early_stopping,
        ),
        num_first_steps=min(steps_per_epoch, math.ceil(steps / 2)),
        freezes_encoder=options.freeze_encoder,
        bias_correction=options.bias_correction,
        rates=rate_factors(num_layers(config), options.layer_decay),
    )


def _with_class_weights(session: Session, task: Task, examples: Features) -> Objective:
    """Returns the objective of a task with the weights of --class_weights."""
    options = session.options
    classifies = task.head and task.head.kind == "classifier"
    if not (classifies and isinstance(task.objective, ClassificationObjective)):
        kind = f" --label_type={options.label_type}" if "label_type" in options.given else ""
        raise ValueError(
            f"--class_weights has no effect with --task={task.name}{kind}, which does not choose "
            "one of several classes: omit it"
        )
    labels, targets = task.head.labels, examples.targets["labels"]
    weights = class_weights(options.class_weights, labels, targets)
    session.say(describe_weights(weights, labels, targets))
    return dataclasses.replace(task.objective, class_weights=weights)


def training_phase(
    training: Training, examples: Features, evaluate: Callable[[], Mapping[str, float]]
) -> Phase:
    """Returns the one phase of a run, which takes all its steps; `evaluate` follows each epoch."""
    session = training.session
    options, device, strategy = session.options, session.device, session.strategy
    steps = options.num_train_steps(len(examples))

    def batches(first_step: int) -> tf.distribute.DistributedDataset:
        taken, seed = range(first_step, steps), options.random_seed
        arguments = examples, options.train_batch_size, taken, seed
        return strategy.distribute_datasets_from_function(
            lambda context: train_batches(*arguments, device=device, context=context)
        )

    return Phase(
        until_step=steps,
        batch_size=options.train_batch_size,
        batches=batches,
        evaluate=evaluate,
        shortcut=session.shortcut(
            training.model, *batch_sizes(examples, device), options.train_batch_size
        ),
    )

"""Trains a task's model, evaluates it and keeps the best weights."""

import dataclasses
import math
from collections.abc import Mapping

import keras
import tensorflow as tf

from bert_tf.base.progress import with_progress
from bert_tf.config import ModelSpec
from bert_tf.devices.session import Learner, Session, Training
from bert_tf.finetuning.batches import batch_sizes, eval_batches, train_batches
from bert_tf.finetuning.objectives import ClassificationObjective
from bert_tf.finetuning.task import TRAIN, Outputs, Task
from bert_tf.finetuning.tasks.classification import class_weights, describe_weights
from bert_tf.finetuning.tokenizing import Features
from bert_tf.training.driver import Phase, Plan
from bert_tf.training.optimizers import Factors, make_schedule
from bert_tf.training.strategy import chief_say, device_type, is_chief
from bert_tf.training.trainer import Objective, Trainer
from bert_tf.weights.names import num_layers

# As in the original. Each epoch ends with a checkpoint, too.
_SAVE_CHECKPOINTS_STEPS = 1000
# The end of a warning about predictions, in training.
_ADVICE = (
    "Try another --learning_rate (3e-4 for an encoder as small as tiny, 2e-5 for base), more steps "
    "(a smaller --train_batch_size or more epochs), or an --init_checkpoint that was trained for "
    "longer."
)


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


class Evaluator:
    """Computes the metrics of the current weights of a task's model, and writes its predictions.

    `batch_size` is the number of examples per step, over all replicas.
    """

    def __init__(
        self, task: Task, trainer: Trainer, splits: Mapping[str, Features], batch_size: int
    ):
        self._task, self._trainer, self._splits = task, trainer, splits
        self._batch_size = batch_size
        # By split and step: the predictions and their metrics.
        self._kept: dict[tuple[str, int], tuple[Outputs, dict[str, float]]] = {}

    def evaluate(self, split: str, best_step: int | None = None) -> dict[str, float]:
        """Returns the metrics of a split as `eval_<metric>`, `test_<metric>` and the like.

        Keeps the predictions for `report`, beside those of the best step so far.
        """
        self._kept = {key: x for key, x in self._kept.items() if key == (split, best_step)}
        self._kept[split, self._step] = found = self._evaluated(split)
        return found[1]

    def report(self, split: str, folder: str) -> tuple[dict[str, float], list[str]]:
        """Writes the predictions of a split; returns its metrics and the names of the files.

        The metrics are those of `evaluate`; {} without targets.
        """
        outputs, results = self._kept.get((split, self._step)) or self._evaluated(split)
        features = self._splits[split]
        if not is_chief(self._trainer.strategy):
            return results, []
        if not features.targets and tf.io.gfile.exists(f"{folder}/confusion_{split}.png"):
            # It shows an earlier file, which had targets.
            tf.io.gfile.remove(f"{folder}/confusion_{split}.png")
        return results, self._task.write_predictions(folder, split, outputs, features)

    @property
    def _step(self) -> int:
        return int(self._trainer.step.numpy())

    def _evaluated(self, split: str) -> tuple[Outputs, dict[str, float]]:
        """Returns the predictions of a split, and their metrics or {} without targets."""
        outputs, features = self._predict(split), self._splits[split]
        if not features.targets:
            return outputs, {}
        metrics = self._task.score(outputs, features)
        if problem := self._task.problem(outputs, features):
            trained = f"step {self._step:,}, {split}: {problem}. {_ADVICE}"
            warning = trained if self._step else f"{split}: {problem}."
            chief_say(self._trainer.strategy)(f"WARNING: {warning}")
        # Curves show the first few metrics.
        names = sorted(metrics, key=lambda name: name != self._task.metric)
        return outputs, {self._task.in_results(name, split): metrics[name] for name in names}

    def _predict(self, split: str) -> Outputs:
        strategy, features = self._trainer.strategy, self._splits[split]
        device, inputs = device_type(strategy), self._task.inputs(features)

        def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
            return eval_batches(inputs, self._batch_size, device=device, context=context)

        batches = with_progress(
            strategy.distribute_datasets_from_function(dataset),
            f"Predicting {split}",
            total=-(-len(inputs) // self._batch_size),
            disable=not is_chief(strategy),
        )
        outputs = self._trainer.predict(batches, self._task.token_outputs)
        return self._task.decode(outputs, features)


class FineTuner:
    """Trains on "train", evaluates a dev split after every epoch and keeps the best weights.

    The best weights are those with the best `task.metric`, and among equals the earliest. `best` in
    the run folder keeps them. Nothing is written before `train`. `splits` are "train" and those
    that are evaluated.
    """

    def __init__(
        self, session: Session, learner: TaskLearner, spec: ModelSpec, splits: dict[str, Features]
    ):
        self._session, self._learner, self._examples = session, learner, splits[TRAIN]
        task, options, config = learner.task, session.options, spec.config
        self.num_train_steps = steps = options.num_train_steps(len(self._examples))
        if options.layer_decay != 1 and not config.has_layers:
            raise ValueError("--layer_decay has no effect on a BiLSTM: omit it")
        sizes = options.train_batch_size, session.strategy.num_replicas_in_sync, config
        if note := task.check_steps(self._examples, *sizes):
            session.say(f"WARNING: {note}")
        if note := self._examples.advice(config.longest_input):
            session.say(note)
        steps_per_epoch = math.ceil(steps / max(1, round(options.num_train_epochs)))
        warmup = int(steps * options.warmup_proportion)
        self.training = Training(
            session,
            learner,
            spec,
            self._objective(spec),
            make_schedule("linear", options.learning_rate, steps, warmup),
            Plan(
                save_checkpoints_steps=_SAVE_CHECKPOINTS_STEPS,
                evaluation_steps=steps_per_epoch,
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
        trainer = self.training.trainer
        self.evaluator = Evaluator(task, trainer, splits, options.eval_batch_size)

    def _objective(self, spec: ModelSpec) -> Objective:
        """Returns the learner's objective, or the task's with the weights of --class_weights."""
        options, task = self._session.options, self._learner.task
        if not (value := options.class_weights):
            return self._learner.objective(spec, self.num_train_steps)
        kind = f" --label_type={options.label_type}" if "label_type" in options.given else ""
        classifies = task.head and task.head.kind == "classifier"
        if not (classifies and isinstance(task.objective, ClassificationObjective)):
            raise ValueError(
                f"--class_weights has no effect with --task={task.name}{kind}, which does not "
                "choose one of several classes: omit it"
            )
        labels, targets = task.head.labels, self._examples.targets["labels"]
        weights = class_weights(value, labels, targets)
        self._session.say(describe_weights(weights, labels, targets))
        return dataclasses.replace(task.objective, class_weights=weights)

    def train(self) -> dict[str, float]:
        """Takes the remaining steps and restores the best weights; returns their results."""
        dev, driver = self._learner.task.dev_splits[0], self.training.driver
        session, batch_size = self._session, self._session.options.train_batch_size
        device = session.device
        phase = Phase(
            until_step=self.num_train_steps,
            batch_size=batch_size,
            batches=self._batches,
            evaluate=lambda: self.evaluator.evaluate(dev, driver.best_results.get("global_step")),
            shortcut=session.shortcut(
                self.training.model, lambda: batch_sizes(self._examples, device), batch_size
            ),
        )
        return self.training.run([phase])

    def _batches(self, first_step: int) -> tf.distribute.DistributedDataset:
        strategy, options = self._session.strategy, self._session.options

        def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
            return train_batches(
                self._examples,
                options.train_batch_size,
                range(first_step, self.num_train_steps),
                options.random_seed,
                device=self._session.device,
                context=context,
            )

        return strategy.distribute_datasets_from_function(dataset)

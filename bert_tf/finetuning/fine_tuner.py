"""Trains a task's model, evaluates it and keeps the best weights."""

import contextlib
import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence, Sized
from contextlib import AbstractContextManager
from typing import Any

import keras
import tensorflow as tf

from bert_tf.base.progress import with_progress
from bert_tf.config import BertConfig
from bert_tf.finetuning.batches import batch_sizes, eval_batches, train_batches
from bert_tf.finetuning.class_weights import class_weights, describe
from bert_tf.finetuning.features import Features
from bert_tf.finetuning.objectives import ClassificationObjective
from bert_tf.finetuning.task import TRAIN, DataFiles, Outputs, TrainableTask
from bert_tf.session import Session
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.driver import Driver, Phase, Plan
from bert_tf.training.optimizers import AdamW, Factors, make_schedule
from bert_tf.training.strategy import chief_say, device_type, is_chief
from bert_tf.training.trainer import Objective, Trainer
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


class Training:
    """Trains a task: its examples, its model and its objective."""

    def __init__(self, task: TrainableTask):
        self.task = task

    def read_splits(self, names: Collection[str], files: DataFiles, seed: int) -> dict[str, Sized]:
        """See `Task.read_splits`."""
        return self.task.read_splits(names, files, seed)

    def featurize(
        self, examples: Sized, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> Features:
        """See `Task.featurize`."""
        return self.task.featurize(examples, tokenizer, max_seq_length)

    def build_model(self, config: BertConfig) -> keras.Model:
        """Returns the model to train or to evaluate, with random weights."""
        return self.task.build_model(config)

    def objective(self, num_train_steps: int) -> Objective:
        """Returns the objective of the run."""
        return self.task.objective

    def initial_weights(self, model: keras.Model) -> list[keras.Variable]:
        """Returns the weights of the model that are set from the initial checkpoint."""
        return self.task.initial_weights(model)

    def preset_weights(self, model: keras.Model) -> list[keras.Variable]:
        """Returns the weights to which `build_model` gave their initial values."""
        return []

    def make_optimizer(
        self, weights: Sequence[keras.Variable], num_first_steps: int, **arguments: Any
    ) -> AdamW:
        """Returns the optimizer; `arguments` are those of `AdamW`.

        `num_first_steps` is the number of steps before the first evaluation, at most half of all.
        """
        return AdamW(weights, **arguments)

    def first_best_step(self, num_train_steps: int) -> int:
        """Returns the first step whose weights may be kept as the best."""
        return 0

    def evaluated_weights(self, model: keras.Model) -> AbstractContextManager:
        """Makes a context in which the model has the weights to evaluate and to keep as the best.

        By default, they are the ones that train.
        """
        return contextlib.nullcontext()

    def finish(self, session: Session, driver: Driver, model: keras.Model) -> None:
        """Makes the best weights those of the model, after the last step."""
        driver.restore_best()


class Evaluator:
    """Computes the metrics of the current weights of a task's model, and writes its predictions.

    `batch_size` is the number of examples per step, over all replicas.
    """

    def __init__(
        self, task: TrainableTask, trainer: Trainer, splits: Mapping[str, Features], batch_size: int
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
            where = f"step {self._step:,}, {split}" if self._step else split
            chief_say(self._trainer.strategy)(f"WARNING: {where}: {problem}")
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
        self, session: Session, training: Training, config: BertConfig, splits: dict[str, Features]
    ):
        self._session, self._training, self._examples = session, training, splits[TRAIN]
        task = training.task
        options = session.options
        self.num_train_steps = options.num_train_steps(len(self._examples))
        steps = options.train_batch_size, session.strategy.num_replicas_in_sync, config
        if note := task.check_steps(self._examples, *steps):
            session.say(f"WARNING: {note}")
        epochs = max(1, round(options.num_train_epochs))
        steps_per_epoch = math.ceil(self.num_train_steps / epochs)

        def build_model() -> keras.Model:
            model = training.build_model(config)
            if options.freeze_encoder:
                model.encoder.trainable = False
            return model

        def make_optimizer(model: keras.Model) -> AdamW:
            return training.make_optimizer(
                model.trainable_weights,
                min(steps_per_epoch, math.ceil(self.num_train_steps / 2)),
                bias_correction=options.bias_correction,
                rates=rate_factors(num_layers(config), options.layer_decay),
            )

        warmup = int(self.num_train_steps * options.warmup_proportion)
        schedule = make_schedule("linear", options.learning_rate, self.num_train_steps, warmup)
        objective = self._objective()
        self.trainer = session.make_trainer(build_model, make_optimizer, objective, schedule)
        self.model = self.trainer.model
        self.evaluator = Evaluator(task, self.trainer, splits, options.eval_batch_size)
        plan = Plan(
            save_checkpoints_steps=_SAVE_CHECKPOINTS_STEPS,
            evaluation_steps=steps_per_epoch,
            # A curve even of a run of a few steps.
            log_steps=min(100, math.ceil(self.num_train_steps / 10)),
            keep_checkpoints=1,
            best_metric=f"eval_{task.metric}",
            first_best_step=training.first_best_step(self.num_train_steps),
            patience=options.early_stopping,
        )
        self.driver = Driver(
            options.output_dir,
            self.trainer,
            plan,
            evaluated_weights=lambda: training.evaluated_weights(self.model),
        )

    def _objective(self) -> Objective:
        """Returns the task's objective with the weights of --class_weights."""
        options, task = self._session.options, self._training.task
        if not (value := options.class_weights):
            return self._training.objective(self.num_train_steps)
        kind = f" --label_type={options.label_type}" if "label_type" in task.flags else ""
        classifies = task.head and task.head.kind == "classifier"
        if not (classifies and isinstance(task.objective, ClassificationObjective)):
            raise ValueError(
                f"--class_weights has no effect with --task={task.name}{kind}, which does not "
                "choose one of several classes: omit it"
            )
        labels, targets = task.head.labels, self._examples.targets["labels"]
        weights = class_weights(value, labels, targets)
        self._session.say(describe(weights, labels, targets))
        return dataclasses.replace(task.objective, class_weights=weights)

    def set_weights(self) -> None:
        """Resumes, or sets the `initial_weights`; see `Session.set_weights`."""
        session, model, training = self._session, self.model, self._training
        preset = [weight.path for weight in training.preset_weights(model)]
        session.set_weights(self.driver, model, training.initial_weights(model), preset)

    def train(self) -> dict[str, float]:
        """Takes the remaining steps and restores the best weights; returns their results."""
        dev = self._training.task.dev_splits[0]
        session, batch_size = self._session, self._session.options.train_batch_size
        device = device_type(session.strategy)
        phase = Phase(
            until_step=self.num_train_steps,
            batch_size=batch_size,
            batches=self._batches,
            evaluate=lambda: self.evaluator.evaluate(
                dev, self.driver.best_results.get("global_step")
            ),
            shortcut=session.shortcut(
                self.model, lambda: batch_sizes(self._examples, device), batch_size
            ),
        )
        results = self.driver.train([phase])
        self._training.finish(session, self.driver, self.model)
        return results

    def _batches(self, first_step: int) -> tf.distribute.DistributedDataset:
        strategy, options = self._session.strategy, self._session.options

        def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
            return train_batches(
                self._examples,
                options.train_batch_size,
                range(first_step, self.num_train_steps),
                options.random_seed,
                device=device_type(strategy),
                context=context,
            )

        return strategy.distribute_datasets_from_function(dataset)

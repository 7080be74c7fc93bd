"""Evaluates a task's model: metrics, predictions and files."""

from collections.abc import Mapping

import tensorflow as tf

from bert_tf.finetuning.batches import eval_batches
from bert_tf.finetuning.features import Features
from bert_tf.finetuning.task import Outputs, Task
from bert_tf.training.iteration import with_progress
from bert_tf.training.strategy import chief_say, is_chief
from bert_tf.training.trainer import Trainer


class Evaluator:
    """Computes the metrics of the current weights of a task's model, and writes its predictions.

    `batch_size` is the number of examples per step, over all replicas.
    """

    def __init__(
        self, task: Task, trainer: Trainer, splits: Mapping[str, Features], batch_size: int
    ):
        self._task, self._trainer, self._splits = task, trainer, splits
        self._batch_size = batch_size
        self._warned: set[str] = set()

    def evaluate(self, split: str) -> dict[str, float]:
        """Returns the metrics of a split as `eval_<metric>`, `test_<metric>` and the like."""
        return self._score(split, self._predict(split))

    def report(self, split: str, folder: str) -> tuple[dict[str, float], list[str]]:
        """Writes the predictions of a split; returns its metrics and the names of the files.

        The metrics are those of `evaluate`; {} without targets.
        """
        outputs, features = self._predict(split), self._splits[split]
        results = self._score(split, outputs) if features.targets else {}
        if not is_chief(self._trainer.strategy):
            return results, []
        if not features.targets and tf.io.gfile.exists(f"{folder}/confusion_{split}.png"):
            # It shows an earlier file, which had targets.
            tf.io.gfile.remove(f"{folder}/confusion_{split}.png")
        return results, self._task.write_predictions(folder, split, outputs, features)

    def _score(self, split: str, outputs: Outputs) -> dict[str, float]:
        features = self._splits[split]
        metrics = self._task.score(outputs, features)
        if problem := self._task.problem(outputs, features):
            step = int(self._trainer.step.numpy())
            where = f"step {step:,}, {split}" if step else split
            # Once: the best weights are evaluated in training and at its end.
            if where not in self._warned:
                chief_say(self._trainer.strategy)(f"WARNING: {where}: {problem}")
            self._warned.add(where)
        # Curves show the first few metrics.
        names = sorted(metrics, key=lambda name: name != self._task.metric)
        return {self._task.in_results(name, split): metrics[name] for name in names}

    def _predict(self, split: str) -> Outputs:
        strategy, features = self._trainer.strategy, self._splits[split]
        static = isinstance(strategy, tf.distribute.TPUStrategy)

        def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
            return eval_batches(features, self._batch_size, static_length=static, context=context)

        batches = with_progress(
            strategy.distribute_datasets_from_function(dataset),
            f"Predicting {split}",
            total=-(-len(features) // self._batch_size),
            disable=not is_chief(strategy),
        )
        outputs = self._trainer.predict(batches, self._task.token_outputs)
        return self._task.decode(outputs, features)

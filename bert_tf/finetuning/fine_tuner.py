"""Trains a task's model, keeps the best weights and evaluates them."""

import math
from collections.abc import Callable, Mapping

import keras
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.finetuning.batches import eval_batches, train_batches
from bert_tf.finetuning.features import Features
from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.finetuning.task import Task
from bert_tf.training import optimizers, schedules
from bert_tf.training.driver import Driver, Phase
from bert_tf.training.reports import EVAL_RESULTS, write_results
from bert_tf.training.strategy import is_chief
from bert_tf.training.trainer import Trainer
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.growing import VocabularyMapping
from bert_tf.weights.starting import set_initial_weights
from tfrecords.progress import say


class FineTuner:
    """Trains on "train", evaluates "dev" after every epoch and keeps the best weights.

    The best weights are those with the highest `task.metric`, the first among equals; they are kept
    in `best` in the run folder. Nothing is written before `train`.

    Args:
        splits: "train", "dev" and possibly "test".

    Raises:
        ValueError: there are too few examples for one step.
    """

    def __init__(
        self,
        options: FineTuningOptions,
        task: Task,
        config: BertConfig,
        splits: Mapping[str, Features],
        strategy: tf.distribute.Strategy,
    ):
        self._options, self._task, self._splits = options, task, splits
        self.num_train_steps = options.num_train_steps(len(splits["train"]))
        epochs = max(1, round(options.num_train_epochs))
        keras.utils.set_random_seed(options.random_seed)
        with strategy.scope():
            self.model = task.build_model(config)
            optimizer = optimizers.AdamW(self.model.trainable_weights)
        schedule = schedules.linear_warmup_and_decay(
            options.learning_rate,
            self.num_train_steps,
            int(self.num_train_steps * options.warmup_proportion),
        )
        self.trainer = Trainer(
            strategy, self.model, task.objective, optimizer, schedule, seed=options.random_seed
        )
        self.driver = Driver(
            options.output_dir,
            self.trainer,
            save_checkpoints_steps=math.ceil(self.num_train_steps / epochs),
            keep_checkpoints=1,
            best_metric=f"eval_{task.metric}",
        )

    def set_initial_weights(
        self, init: Checkpoint | None, mapping: VocabularyMapping | None, say: Callable[[str], None]
    ) -> None:
        """Resumes, or sets the encoder's weights; see `weights.starting`.

        Args:
            init: the initial checkpoint.
            mapping: grows the word embeddings of the checkpoint.
            say: prints a line that tells the user where the weights come from.
        """
        set_initial_weights(
            self.driver,
            self.model,
            self.model.encoder.weights,
            init,
            mapping,
            say,
        )

    def train(self) -> dict[str, float]:
        """Takes the remaining steps, then evaluates the best weights on "test" if there is one.

        Returns:
            for every metric of the task, `eval_<metric>` of the best weights on "dev" and
            `test_<metric>` on "test", and their `global_step`; also written to `eval_results.txt`.

        Raises:
            NonFiniteLoss: names the step.
            Interrupted: a signal stopped training, after a checkpoint was saved.
        """
        batch_size = self._options.train_batch_size
        phase = Phase(
            until_step=self.num_train_steps,
            batch_size=batch_size,
            batches=lambda step: self._batches("train", skip=step * batch_size),
            evaluate=lambda: self._evaluate("dev", "eval"),
        )
        results = self.driver.train([phase])
        if "test" in self._splits:
            self.driver.restore_best()
            results |= self._evaluate("test", "test")
        if is_chief(self.trainer.strategy):
            write_results(f"{self._options.output_dir}/{EVAL_RESULTS}", results)
        return results

    def _evaluate(self, split: str, prefix: str) -> dict[str, float]:
        outputs = self.trainer.predict(self._batches(split), self._task.token_outputs)
        features = self._splits[split]
        metrics = self._task.score(outputs, features)
        problem = self._task.problem(outputs, features)
        if problem and is_chief(self.trainer.strategy):
            say(f"WARNING: step {self.driver.step:,}, {split}: {problem}")
        return {f"{prefix}_{name}": value for name, value in metrics.items()}

    def _batches(self, split: str, skip: int = 0) -> tf.distribute.DistributedDataset:
        strategy, options = self.trainer.strategy, self._options
        features = self._splits[split]
        static = isinstance(strategy, tf.distribute.TPUStrategy)

        def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
            if split != "train":
                return eval_batches(
                    features, options.eval_batch_size, static_length=static, context=context
                )
            return train_batches(
                features,
                options.train_batch_size,
                options.random_seed,
                skip=skip,
                static_length=static,
                context=context,
            )

        return strategy.distribute_datasets_from_function(dataset)

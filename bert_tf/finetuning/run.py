"""Trains a task's model, keeps the best weights, evaluates."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import keras
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.finetuning.batches import EncodedExamples, eval_batches, train_batches
from bert_tf.models.task_model import BertTaskModel, ClassificationObjective
from bert_tf.training import checkpoints, loop, optimizers, schedules
from bert_tf.training.reports import EVAL_RESULTS, Reports, write_results
from bert_tf.training.trainer import Trainer
from bert_tf.weights.growing import VocabularyMapping
from bert_tf.weights.loading import load_weights

BEST = "best"


@dataclass(frozen=True)
class Settings:
    """How to train; the names are those of the flags of google-research/bert's run_classifier."""

    train_batch_size: int = 32
    eval_batch_size: int = 32
    learning_rate: float = 5e-5
    num_train_epochs: float = 3.0
    warmup_proportion: float = 0.1
    seed: int = 12345

    def num_train_steps(self, num_examples: int) -> int:
        """Raises a ValueError where there is not one step."""
        steps = int(num_examples * self.num_train_epochs / self.train_batch_size)
        if steps < 1:
            raise ValueError(
                f"{num_examples} examples and --num_train_epochs={self.num_train_epochs} make no "
                f"step of --train_batch_size={self.train_batch_size}"
            )
        return steps


class FineTuner:
    """Trains on "train", evaluates "dev" after every epoch, and keeps the best weights.

    Best are those of the highest accuracy, the first of equals; they are saved in `folder/best`.
    `start`, then `train`. Until `train` nothing is written.

    Args:
        folder: for checkpoints and results; an interrupted run there is taken up.
        splits: "train", "dev" and perhaps "test".

    Raises:
        ValueError: there are too few examples for one step.
    """

    def __init__(
        self,
        folder: str,
        config: BertConfig,
        num_classes: int,
        splits: Mapping[str, EncodedExamples],
        settings: Settings,
        strategy: tf.distribute.Strategy,
    ):
        self.folder, self.splits, self.settings = folder, splits, settings
        self.num_train_steps = total = settings.num_train_steps(len(splits["train"]))
        keras.utils.set_random_seed(settings.seed)
        with strategy.scope():
            self.model = BertTaskModel(config, num_classes)
            optimizer = optimizers.AdamW(self.model.trainable_weights)
        schedule = schedules.linear_warmup_and_decay(
            settings.learning_rate, total, int(total * settings.warmup_proportion)
        )
        self.trainer = Trainer(
            strategy,
            self.model,
            ClassificationObjective(),
            optimizer,
            schedule,
            seed=settings.seed,
        )
        self.checkpointer = checkpoints.Checkpointer(
            folder, self.model, self.trainer.state, max_to_keep=1
        )
        weights_only = {"step": self.trainer.step}
        self.best = checkpoints.Checkpointer(
            f"{folder}/{BEST}", self.model, weights_only, max_to_keep=1
        )
        self.best_results = f"{folder}/{BEST}/{EVAL_RESULTS}"

    def start(
        self, init_checkpoint: str | None = None, mapping: VocabularyMapping | None = None
    ) -> None:
        """Sets the weights: the interrupted run's, else the encoder's of a checkpoint, else random.

        Args:
            mapping: lets the word embeddings of the checkpoint grow with an extended vocabulary.

        Raises:
            ValueError: `init_checkpoint` is of another model.
        """
        if path := self.checkpointer.restore():
            print(f"Going on from {path}, step {self.trainer.step.numpy():,}.")
        elif init_checkpoint:
            _load_encoder(self.model, checkpoints.latest_checkpoint(init_checkpoint), mapping)
        else:
            print("All weights start from random numbers.")

    def train(self) -> dict[str, float]:
        """Trains what is left to train, then evaluates the best weights on "test", if there is one.

        Returns:
            `eval_accuracy`, `eval_loss` on "dev" of the best weights, `global_step`, their step,
            and `test_accuracy`, `test_loss`; `folder/eval_results.txt` holds the same.

        Raises:
            ValueError: the loss is not finite.
        """
        settings, step = self.settings, int(self.trainer.step.numpy())
        epochs = max(1, round(settings.num_train_epochs))
        epoch_steps = math.ceil(self.num_train_steps / epochs)
        with Reports(self.folder, step, self.num_train_steps) as self.reports:
            # A run may have been killed between saving and evaluating.
            finished = step % epoch_steps == 0 or step == self.num_train_steps
            if step and finished and self.reports.last_evaluation.get("global_step") != step:
                self.after_epoch(step)
            self.reports.begin_phase(settings.train_batch_size)
            loop.fit(
                self.trainer,
                iter(self.batches("train", skip=step * settings.train_batch_size)),
                self.num_train_steps,
                self.checkpointer,
                self.reports,
                epoch_steps,
                on_checkpoint=self.after_epoch,
            )
        return self.finish()

    def batches(self, split: str, skip: int = 0):
        strategy, settings = self.trainer.strategy, self.settings
        static = isinstance(strategy, tf.distribute.TPUStrategy)
        examples = self.splits[split]

        def dataset(context):
            if split == "train":
                size = settings.train_batch_size
                return train_batches(examples, size, settings.seed, skip, static, context)
            return eval_batches(examples, settings.eval_batch_size, static, context)

        return strategy.distribute_datasets_from_function(dataset)

    def evaluate(self, split: str, prefix: str) -> dict[str, float]:
        means = self.trainer.evaluate(self.batches(split))
        return {f"{prefix}_{name}": value for name, value in means.items()}

    def after_epoch(self, step: int) -> None:
        results = self.evaluate("dev", "eval")
        so_far = read_results(self.best_results).get("eval_accuracy", -1.0)
        if results["eval_accuracy"] > so_far:
            self.best.save()
            write_results(self.best_results, results | {"global_step": step})
        self.reports.evaluation(step, results)

    def finish(self) -> dict[str, float]:
        results = read_results(self.best_results)
        if "test" in self.splits:
            path = checkpoints.latest_checkpoint(f"{self.folder}/{BEST}")
            load_weights(path, self.model.weights)
            results |= self.evaluate("test", "test")
        write_results(f"{self.folder}/{EVAL_RESULTS}", results)
        return results


def read_results(path: str) -> dict[str, float]:
    """The `key = value` lines of a file; {} where there is none."""
    if not tf.io.gfile.exists(path):
        return {}
    with tf.io.gfile.GFile(path) as file:
        pairs = (line.split(" = ") for line in file.read().splitlines())
        values = {key: float(value) for key, value in pairs}
    return values | {"global_step": int(values["global_step"])}


def _load_encoder(model: BertTaskModel, checkpoint: str, mapping: VocabularyMapping | None) -> None:
    load_weights(checkpoint, model.encoder.weights, mapping)
    taken = {weight.path for weight in model.encoder.weights}
    fresh = [weight.path for weight in model.weights if weight.path not in taken]
    unused = sorted(checkpoints.saved_shapes(checkpoint).keys() - taken)
    print(f"From {checkpoint}: the encoder, {len(taken)} arrays.")
    if mapping:
        print(mapping.describe())
    print(f"Start from random numbers: {', '.join(fresh)}.")
    if unused:
        print(f"Not used of the checkpoint: {', '.join(unused)}.")

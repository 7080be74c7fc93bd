"""Trains a task's model, keeps the best weights, evaluates."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import keras
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.models.task_model import BertTaskModel, ClassificationObjective
from bert_tf.tasks.batches import EncodedExamples, eval_batches, train_batches
from bert_tf.training import checkpoints, loop, optimizers, schedules
from bert_tf.training.results import write_results
from tfrecords.writer import atomic_write

RESULTS = "eval_results.txt"
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


def fine_tune(
    folder: str,
    config: BertConfig,
    num_classes: int,
    splits: Mapping[str, EncodedExamples],
    settings: Settings,
    strategy: tf.distribute.Strategy,
    init_checkpoint: str | None = None,
) -> dict[str, float]:
    """Trains on "train", from where an interrupted run in `folder` stopped.

    After every epoch "dev" is evaluated, and the weights with the best accuracy so far, the first
    of equals, are saved in `folder/best`. These are at last evaluated on "test", if there is one.

    Args:
        init_checkpoint: where the encoder's weights come from; without it they are random.

    Returns:
        `eval_accuracy`, `eval_loss` on "dev" of the best weights, `global_step`, their step, and
        `test_accuracy`, `test_loss`; `folder/eval_results.txt` holds the same.

    Raises:
        ValueError: `init_checkpoint` is of another model, or the loss is not finite.
    """
    run = _Run(folder, config, num_classes, splits, settings, strategy)
    step = run.start(init_checkpoint)
    total = settings.num_train_steps(len(splits["train"]))
    loop.fit(
        run.trainer,
        iter(run.batches("train", step * settings.train_batch_size)),
        total,
        settings.train_batch_size,
        run.checkpointer,
        math.ceil(total / max(1, round(settings.num_train_epochs))),
        log_dir=f"{folder}/train",
        on_checkpoint=run.after_epoch,
    )
    return run.finish()


class _Run:
    def __init__(self, folder, config, num_classes, splits, settings, strategy):
        self.folder, self.splits, self.settings = folder, splits, settings
        keras.utils.set_random_seed(settings.seed)
        with strategy.scope():
            self.model = BertTaskModel(config, num_classes)
            optimizer = optimizers.AdamW(self.model.trainable_weights)
        total = settings.num_train_steps(len(splits["train"]))
        schedule = schedules.linear_warmup_and_decay(
            settings.learning_rate, total, int(total * settings.warmup_proportion)
        )
        objective = ClassificationObjective()
        self.trainer = loop.Trainer(strategy, self.model, objective, optimizer, schedule)
        step = self.trainer.step
        self.checkpointer = checkpoints.Checkpointer(
            folder, self.model, optimizer, step, max_to_keep=1
        )
        # Weights only: without variables to train, the optimizer has no moments.
        self.best = checkpoints.Checkpointer(
            f"{folder}/{BEST}", self.model, optimizers.AdamW([]), step, max_to_keep=1
        )
        self.best_results = f"{folder}/{BEST}/{RESULTS}"
        self.writer = tf.summary.create_file_writer(f"{folder}/eval")

    def start(self, init_checkpoint: str | None) -> int:
        """Restores what there is to restore; returns the number of steps already taken."""
        if path := self.checkpointer.restore():
            step = int(self.trainer.step.numpy())
            print(f"Going on from {path}, step {step:,}.")
            # It may have stopped between saving and evaluating.
            if read_results(f"{self.folder}/{RESULTS}").get("global_step") != step:
                self.after_epoch(step)
            return step
        if init_checkpoint:
            _load_encoder(self.model, checkpoints.latest_checkpoint(init_checkpoint))
        else:
            print("All weights start from random numbers.")
        return 0

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
        results = self.evaluate("dev", "eval") | {"global_step": step}
        so_far = read_results(self.best_results).get("eval_accuracy", -1.0)
        if results["eval_accuracy"] > so_far:
            self.best.save()
            lines = [f"{name} = {value}\n" for name, value in sorted(results.items())]
            atomic_write(self.best_results, "".join(lines))
        write_results(f"{self.folder}/{RESULTS}", results, self.writer)

    def finish(self) -> dict[str, float]:
        results = read_results(self.best_results)
        if "test" in self.splits:
            path = checkpoints.latest_checkpoint(f"{self.folder}/{BEST}")
            checkpoints.load_weights(path, self.model.weights)
            results |= self.evaluate("test", "test")
        write_results(f"{self.folder}/{RESULTS}", results, self.writer)
        return results


def read_results(path: str) -> dict[str, float]:
    """The `key = value` lines of a file; {} where there is none."""
    if not tf.io.gfile.exists(path):
        return {}
    with tf.io.gfile.GFile(path) as file:
        pairs = (line.split(" = ") for line in file.read().splitlines())
        values = {key: float(value) for key, value in pairs}
    return values | {"global_step": int(values["global_step"])}


def _load_encoder(model: BertTaskModel, checkpoint: str) -> None:
    checkpoints.load_weights(checkpoint, model.encoder.weights)
    taken = {weight.path for weight in model.encoder.weights}
    fresh = [weight.path for weight in model.weights if weight.path not in taken]
    unused = sorted(checkpoints.saved_shapes(checkpoint).keys() - taken)
    print(f"From {checkpoint}: the encoder, {len(taken)} arrays.")
    print(f"Start from random numbers: {', '.join(fresh)}.")
    if unused:
        print(f"Not used of the checkpoint: {', '.join(unused)}.")

"""The training and evaluation loop for any Keras model under any `tf.distribute` strategy."""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import keras
import numpy as np
import tensorflow as tf
from tqdm import tqdm

from bert_tf.training.checkpoints import Checkpointer
from bert_tf.training.optimizers import AdamW
from bert_tf.training.schedules import Schedule
from bert_tf.training.strategy import compiles

Batch = dict[str, tf.Tensor]
Means = dict[str, float]
_REPORT_SECONDS = 5.0


class Objective(Protocol):
    """What to minimize and measure, as sums and counts that add up over replicas and batches.

    The mean of a measure is its sum over its count; the loss is the total of the means of the
    measures named in `losses`.
    """

    measures: tuple[str, ...]
    losses: tuple[str, ...]

    def counts(self, batch: Batch) -> dict[str, tf.Tensor]: ...

    def sums(self, model: keras.Model, batch: Batch, training: bool) -> dict[str, tf.Tensor]: ...


class Trainer:
    """Runs optimizer steps and evaluations.

    Gradients are those of the loss over the global batch: counts are summed over the replicas
    before they divide, gradients are summed and only then clipped. One replica and many therefore
    give the same losses for the same global batch.

    Args:
        strategy: its scope must have made `model` and `optimizer`.
        objective: what to minimize and measure.
        optimizer, schedule: without them the trainer only evaluates.
        clip_norm: limit of the gradient's global norm.
        jit_compile: whether XLA compiles the step; by default where it pays.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        model: keras.Model,
        objective: Objective,
        optimizer: AdamW | None = None,
        schedule: Schedule | None = None,
        clip_norm: float = 1.0,
        jit_compile: bool | None = None,
    ):
        self.strategy = strategy
        self.model = model
        self.objective = objective
        self.optimizer = optimizer
        self.schedule = schedule
        self.clip_norm = clip_norm
        with strategy.scope():
            self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        jit = compiles(strategy) if jit_compile is None else jit_compile
        self._train = tf.function(self._train)
        # Batches may differ in length: the eager loop would trace each length anew.
        self._evaluate = tf.function(self._evaluate, reduce_retracing=True)
        # Only what needs no other replica can be compiled: not the all-reduce.
        self._gradients = tf.function(self._gradients, jit_compile=jit or None)
        self._sums = tf.function(self._sums, jit_compile=jit or None)

    def train(self, iterator: Iterator[Batch], steps: int) -> np.ndarray:
        """Takes `steps` optimizer steps; returns the totals [2, measures] of sums and counts."""
        return self._train(iterator, tf.constant(steps)).numpy().astype(np.float64)

    def evaluate(self, dataset: Iterable[Batch], max_steps: int | None = None) -> Means:
        """The mean of every measure, and the loss, over the first `max_steps` batches, or all."""
        totals = np.zeros([2, len(self.objective.measures)])
        for batch in itertools.islice(dataset, max_steps):
            totals += self._evaluate(batch).numpy()
        return self.means(totals)

    def means(self, totals: np.ndarray) -> Means:
        """The mean of every measure, and the loss, from totals [2, measures]."""
        sums, counts = totals
        values = (sums / np.maximum(counts, 1e-12)).tolist()
        means = dict(zip(self.objective.measures, values, strict=True))
        return {"loss": sum(means[name] for name in self.objective.losses)} | means

    def _train(self, iterator, steps):
        totals = tf.zeros([2, len(self.objective.measures)])
        for _ in tf.range(steps):
            totals += self._reduced(self._train_replica, next(iterator))
        return totals

    def _evaluate(self, batch):
        return self._reduced(self._evaluate_replica, batch)

    def _reduced(self, function, batch):
        return self.strategy.reduce("SUM", self.strategy.run(function, (batch,)), axis=None)

    def _train_replica(self, batch):
        replica = tf.distribute.get_replica_context()
        counts = self.objective.counts(batch)
        global_counts = replica.all_reduce("SUM", {n: counts[n] for n in self.objective.losses})
        gradients, sums = self._gradients(batch, global_counts)
        gradients = replica.all_reduce("SUM", gradients)
        gradients, _ = tf.clip_by_global_norm(gradients, self.clip_norm)
        self.optimizer.apply(gradients, self.schedule(self.step))
        replica.merge_call(lambda strategy: self.step.assign_add(1))
        return self._stacked(sums, counts)

    def _evaluate_replica(self, batch):
        return self._stacked(self._sums(batch), self.objective.counts(batch))

    def _gradients(self, batch, global_counts):
        with tf.GradientTape() as tape:
            sums = self.objective.sums(self.model, batch, training=True)
            loss = tf.add_n(
                [tf.math.divide_no_nan(sums[n], global_counts[n]) for n in self.objective.losses]
            )
        gradients = tape.gradient(
            loss,
            [weight.value for weight in self.model.trainable_weights],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        # The gradient of a look-up is sparse and may name a row twice: its norm would be wrong.
        return [tf.convert_to_tensor(gradient) for gradient in gradients], sums

    def _sums(self, batch):
        return self.objective.sums(self.model, batch, training=False)

    def _stacked(self, sums, counts):
        names = self.objective.measures
        return tf.stack([[sums[n] for n in names], [counts[n] for n in names]])


def fit(
    trainer: Trainer,
    iterator: Iterator[Batch],
    num_train_steps: int,
    batch_size: int,
    checkpointer: Checkpointer,
    save_checkpoints_steps: int,
    iterations_per_loop: int = 1000,
    log_dir: str | None = None,
    on_checkpoint: Callable[[int], None] | None = None,
) -> None:
    """Trains up to `num_train_steps`, from where the trainer's step stands.

    Shows a progress bar, writes TensorBoard scalars to `log_dir`, and saves a checkpoint every
    `save_checkpoints_steps` and at the end, each followed by a call of `on_checkpoint` with the
    step. Control returns from the device after at most `iterations_per_loop` steps, and about
    every `_REPORT_SECONDS`, so that slow steps are shown one by one and fast ones cost nothing.

    Raises:
        ValueError: where the loss is not finite; the checkpoint before it is kept.
    """
    writer = tf.summary.create_file_writer(log_dir) if log_dir else tf.summary.create_noop_writer()
    step, steps = int(trainer.step.numpy()), 1
    with tqdm(total=num_train_steps, initial=step, unit="step", dynamic_ncols=True) as bar:
        while step < num_train_steps:
            until_save = save_checkpoints_steps - step % save_checkpoints_steps
            steps = min(steps, iterations_per_loop, until_save, num_train_steps - step)
            started = time.perf_counter()
            means = trainer.means(trainer.train(iterator, steps))
            seconds = time.perf_counter() - started
            step += steps
            if not np.isfinite(means["loss"]):
                raise ValueError(
                    f"the loss is {means['loss']} in the steps {step - steps + 1} to {step}; the "
                    "checkpoint before them is kept: try a lower learning rate or longer warm-up"
                )
            means["learning_rate"] = float(trainer.schedule(step))
            means["sequences_per_second"] = steps * batch_size / seconds
            with writer.as_default(step):
                for name, value in means.items():
                    tf.summary.scalar(name, value)
            bar.update(steps)
            bar.set_postfix_str(", ".join(f"{name} {value:.4g}" for name, value in means.items()))
            if step % save_checkpoints_steps == 0 or step == num_train_steps:
                checkpointer.save()
                if on_checkpoint:
                    on_checkpoint(step)
            steps = max(1, round(_REPORT_SECONDS * steps / seconds))
    writer.close()

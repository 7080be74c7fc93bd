"""Training steps, evaluation and prediction for any Keras model under any strategy."""

import contextlib
import functools
import itertools
import threading
from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.finite import check_computed
from bert_tf.base.progress import counted
from bert_tf.base.tensorflow_ops import compiling_for_gpu, for_gpu
from bert_tf.training.optimizers import AdamW, DynamicLossScale, Schedule
from bert_tf.training.strategy import chief_say, compiles

Batch = dict[str, tf.Tensor]
Means = dict[str, float]
_PATIENCE = 0.5  # seconds; to free an iterator usually takes less


class Objective(Protocol):
    """What to minimize, measure and predict.

    Measures are sums and counts that add up over replicas and batches. The mean of a measure is
    its sum divided by its count; the loss is the total of the means of the measures in `losses`.
    AutoGraph does not rewrite these methods: where a condition is a tensor, use `tf.where` or
    `tf.cond`.

    `measures` are the names of all measures, and `losses` of those to minimize.
    """

    measures: tuple[str, ...]
    losses: tuple[str, ...]

    def counts(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Returns the count of each measure, float32 [], without calling the model."""

    def sums(self, model: keras.Model, batch: Batch, training: bool) -> dict[str, tf.Tensor]:
        """Calls the model and returns the sum of each measure, float32 []."""

    def outputs(self, model: keras.Model, batch: Batch) -> dict[str, tf.Tensor]:
        """Calls the model and returns tensors [B, ...] for `Trainer.predict`, its only caller."""


class Shortcut(Protocol):
    """A form of most batches that takes less work and has the same gradients."""

    def applies(self, batch: Batch) -> tf.Tensor:
        """Returns whether a batch has that form, bool []."""

    def shorten(self, batch: Batch) -> Batch:
        """Returns that form."""


@contextlib.contextmanager
def open_batches(dataset: Iterable[Batch]) -> Iterator[list[Iterator[Batch]]]:
    """Yields a list with an iterator over a dataset, and frees it at the end, if need be later.

    The threads of `tf.data` sometimes take 20 seconds to end. The list holds the only reference.
    """
    held = [iter(dataset)]
    try:
        yield held
    finally:
        # Not a daemon: if Python ended amid TensorFlow's code, the process would abort.
        release = threading.Thread(target=held.clear)
        release.start()
        release.join(_PATIENCE)


class Trainer:
    """Runs optimizer steps, evaluations and predictions.

    Gradients are those of the loss over the global batch: counts are summed over the replicas
    before the division, and gradients are summed before clipping. The losses of a global batch
    therefore do not depend on the number of replicas or of accumulation steps, unless the objective
    compares the examples of a batch, as ranking does, which sees those of one part.

    In training, batches include `step`, the number of finished steps, int64 [], and `dropout_seed`,
    int32 [2]. The seed is a function of the run's seed, the step, the replica and the accumulation
    step, so that a resumed run drops what an uninterrupted one would have dropped.

    A step whose gradients are not finite changes no weight. If the model computes in float16, the
    loss is scaled; see `DynamicLossScale`.

    `train` takes a shortcut with every part of a batch to which it applies.

    Args:
        strategy: the strategy in whose scope `model` and `optimizer` were created.
        optimizer, schedule: may be omitted if the trainer does not train.
        accumulation_steps: number of parts in which a replica processes its batch, to save memory.
        seed: the seed of dropout.
    """

    # The limit of the gradient's global norm, as in the original.
    clip_norm = 1.0
    # A run ends after this many steps in a row whose gradients are not finite.
    max_skipped = 3

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        model: keras.Model,
        objective: Objective,
        optimizer: AdamW | None = None,
        schedule: Schedule | None = None,
        *,
        accumulation_steps: int = 1,
        seed: int = 0,
    ):
        self.strategy = strategy
        self.model = model
        self.objective = objective
        self.optimizer = optimizer
        self.schedule = schedule
        self.accumulation_steps = accumulation_steps
        self.seed = seed
        with strategy.scope():
            self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
            # The sum of each measure's means over the steps since `restart_means`, and the number
            # of these steps.
            self.totals = tf.Variable(tf.zeros([len(objective.measures) + 1]), trainable=False)
            half = model.dtype_policy.compute_dtype == "float16"
            self.loss_scale = DynamicLossScale() if half else None
            # Steps whose gradients were not finite, in a row and in all, without those that only
            # lower the scale of the loss.
            self._skipped = tf.Variable([0, 0], dtype=tf.int64, trainable=False)
        jit = compiles(strategy) or None
        self._compiling = compiling_for_gpu if jit else contextlib.nullcontext
        self._train = tf.function(self._train)
        # Batches differ in length: without this, the eager loop would retrace for each length.
        self._evaluate = tf.function(self._evaluate, autograph=False, reduce_retracing=True)
        self._predict = tf.function(self._predict, autograph=False, reduce_retracing=True)
        # XLA can compile only what one replica does alone, which excludes the all-reduce.
        self._part_gradients = tf.function(self._part_gradients, autograph=False, jit_compile=jit)
        self._norm = tf.function(self._norm, autograph=False, jit_compile=jit)
        self._sums = tf.function(self._sums, autograph=False, jit_compile=jit)
        self._outputs = tf.function(self._outputs, autograph=False, jit_compile=jit)

    @property
    def state(self) -> dict[str, tf.Variable]:
        """What a checkpoint must hold in addition to the model to resume training exactly."""
        state = {"step": self.step, "totals": self.totals} | self.optimizer.slots
        return state | (self.loss_scale.state if self.loss_scale else {})

    def train(
        self, iterator: Iterator[Batch], steps: int, shortcut: Shortcut | None = None
    ) -> int | None:
        """Takes `steps` optimizer steps.

        Returns the number of the first step, counted from 1, whose loss was not finite, or which
        began `max_skipped` steps without finite gradients, or None.
        """
        before = self._skipped.numpy()[1]
        bad_step = int(self._train(iterator, tf.constant(steps), shortcut)) or None
        if (skipped := self._skipped.numpy()[1] - before) and not bad_step:
            chief_say(self.strategy)(
                f"WARNING: up to step {self.step.numpy():,}, {counted(skipped, 'step')} changed no "
                "weights, because the gradients were not finite."
            )
        return bad_step

    def _train(self, iterator, steps, shortcut):
        bad_step = tf.constant(0, tf.int64)
        # Not an argument of `run`, which on TPUs takes tensors only.
        step = functools.partial(self.replica_step, shortcut=shortcut)
        for _ in tf.range(steps):
            results = self.strategy.run(step, (next(iterator),))
            sums, counts = tf.unstack(self.strategy.reduce("SUM", results, axis=None))
            means = tf.math.divide_no_nan(sums, counts)
            self.totals.assign_add(tf.concat([means, [1.0]], 0))
            good = tf.reduce_all(tf.math.is_finite(means)) & (self._skipped[0] < self.max_skipped)
            if bad_step == 0 and not good:
                bad_step = self.step - tf.maximum(self._skipped[0] - 1, 0)
        return bad_step

    # AutoGraph takes seconds to rewrite Python, and only the loop above needs it.
    @tf.autograph.experimental.do_not_convert
    def replica_step(self, batch: Batch, shortcut: Shortcut | None = None) -> tf.Tensor:
        """Takes one replica's part of an optimizer step, in a replica context.

        `batch` holds this replica's rows. Returns their sums and counts [2, measures].
        """
        replica = tf.distribute.get_replica_context()
        with self._compiling():
            counts = self.objective.counts(batch)
            global_counts = replica.all_reduce("SUM", {n: counts[n] for n in self.objective.losses})
            gradients, sums = self._gradients(batch, global_counts, replica, shortcut)
            gradients = replica.all_reduce("SUM", gradients)
            if self.loss_scale:
                gradients = [gradient / self.loss_scale.scale for gradient in gradients]
            norm = self._norm(gradients)
            # Only the factor: the optimizer applies it in its own pass over the gradients. It is
            # NaN if the norm is not finite.
            (scale,), _ = tf.clip_by_global_norm([tf.constant(1.0)], self.clip_norm, use_norm=norm)
            self.optimizer.apply(gradients, self.schedule(self.step), scale)
            replica.merge_call(self._count_step, args=(tf.math.is_finite(norm),))
            return self._stacked(sums, counts)

    def _gradients(self, batch, global_counts, replica, shortcut):
        """Returns the gradients and the sums of a replica's batch, over all of its parts."""
        step, parts = tf.identity(self.step), self.accumulation_steps
        seed = tf.random.fold_in(list(divmod(self.seed, 2**31)), self.step)
        seed = tf.random.fold_in(seed, replica.replica_id_in_sync_group)

        def compute(rows, seed):
            rows = rows | {"step": step, "dropout_seed": seed}
            if not shortcut:
                return self._part_gradients(rows, global_counts)
            # Not in `_part_gradients`, so that XLA compiles the long way only when it is needed.
            return tf.cond(
                shortcut.applies(rows),
                lambda: self._part_gradients(rows, global_counts, shortcut),
                lambda: self._part_gradients(rows, global_counts),
            )

        def add_part(part, *total):
            rows = {name: values[part] for name, values in divided.items()}
            more = compute(rows, tf.random.fold_in(seed, part))
            return part + 1, *tf.nest.map_structure(tf.add, total, more)

        if parts == 1:
            return compute(batch, seed)
        divided = {
            name: tf.reshape(values, [parts, -1, *values.shape[1:]])
            for name, values in batch.items()
        }
        gradients = [tf.zeros(weight.shape) for weight in self.model.trainable_weights]
        sums = {name: tf.constant(0.0) for name in self.objective.measures}
        start = tf.constant(0), gradients, sums
        _, gradients, sums = tf.while_loop(
            lambda part, *_: part < parts, add_part, start, maximum_iterations=parts
        )
        return gradients, sums

    def _part_gradients(self, batch, global_counts, shortcut=None):
        if shortcut:
            batch = shortcut.shorten(batch)
        with tf.GradientTape() as tape:
            sums = self.objective.sums(self.model, batch, training=True)
            loss = tf.add_n(
                [tf.math.divide_no_nan(sums[n], global_counts[n]) for n in self.objective.losses]
            )
            if self.loss_scale:
                loss *= self.loss_scale.scale
        gradients = tape.gradient(
            loss,
            [weight.value for weight in self.model.trainable_weights],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        # The gradient of an embedding lookup is sparse and may repeat rows, which would make its
        # norm wrong.
        return [tf.convert_to_tensor(gradient) for gradient in gradients], sums

    def _norm(self, gradients):
        if not for_gpu():
            return tf.linalg.global_norm(gradients)
        # Gradients of one shape are summed in one kernel.
        squares: dict[tuple[int, ...], list[tf.Tensor]] = {}
        for gradient in gradients:
            squares.setdefault(tuple(gradient.shape), []).append(tf.square(gradient))
        return tf.sqrt(tf.add_n([tf.reduce_sum(tf.add_n(same)) for same in squares.values()]))

    def _count_step(self, strategy, finite):
        accepted = finite = strategy.experimental_local_results(finite)[0]
        if self.loss_scale:
            accepted |= self.loss_scale.scale > 1.0
            self.loss_scale.update(finite)
        self._skipped.assign(tf.where(accepted, [0, 1] * self._skipped, self._skipped + 1))
        self.step.assign_add(1)

    def training_means(self) -> Means:
        """Returns the means of the loss and every measure over the steps since `restart_means`."""
        *sums, steps = self.totals.numpy().astype(np.float64)
        return self._named(np.array(sums) / max(steps, 1.0))

    def restart_means(self) -> None:
        """Starts new means with the next step."""
        self.totals.assign(tf.zeros_like(self.totals))

    def evaluate(self, dataset: Iterable[Batch], max_steps: int | None = None) -> Means:
        """Returns the loss and every measure over the first `max_steps` batches, or all.

        Sums and counts are added up before the division.
        """
        sums, counts = np.zeros([2, len(self.objective.measures)])
        with open_batches(dataset) as held:
            for batch in itertools.islice(held[0], max_steps):
                batch_sums, batch_counts = self._evaluate(batch).numpy()
                sums, counts = sums + batch_sums, counts + batch_counts
        return self._named(sums / np.maximum(counts, 1e-12))

    def predict(
        self, dataset: Iterable[Batch], token_outputs: Collection[str] = ()
    ) -> dict[str, np.ndarray | list[np.ndarray]]:
        """Returns the objective's outputs for every example, in the order of the examples.

        Args:
            dataset: distributed batches with `example_index`, int32 [B]: the number of each row's
                example, or -1 for a row that only fills its batch. All replicas of a step must
                have batches of one length.
            token_outputs: names of outputs [B, S, ...] with an entry per token. They are cut to
                the length of each example, the sum of its `input_mask`.

        Returns:
            an array [examples, ...] for each output, and a list of arrays [length, ...] for each
            of `token_outputs`.
        """
        with open_batches(dataset) as held:
            parts = [
                {name: values.numpy() for name, values in self._predict(batch).items()}
                for batch in held[0]
            ]
        indices = np.concatenate([part["example_index"] for part in parts])
        # Rows that only fill a batch come first.
        order = np.argsort(indices, kind="stable")[np.count_nonzero(indices < 0) :]
        predictions: dict[str, np.ndarray | list[np.ndarray]] = {}
        for name in parts[0].keys() - {"example_index", "example_length"}:
            if name not in token_outputs:
                predictions[name] = np.concatenate([part[name] for part in parts])[order]
                continue
            rows = [
                row[:length]
                for part in parts
                for row, length in zip(part[name], part["example_length"], strict=True)
            ]
            predictions[name] = [rows[index] for index in order]
        check_computed(predictions)
        return predictions

    def _evaluate(self, batch):
        def evaluate(rows):
            return self._stacked(self._sums(rows), self.objective.counts(rows))

        results = self.strategy.run(evaluate, (batch,))
        return self.strategy.reduce("SUM", results, axis=None)

    def _predict(self, batch):
        outputs = self.strategy.run(self._outputs, (batch,))
        return {name: self.strategy.gather(values, axis=0) for name, values in outputs.items()}

    def _sums(self, batch):
        return self.objective.sums(self.model, batch, training=False)

    def _outputs(self, batch):
        outputs = self.objective.outputs(self.model, batch)
        return outputs | {
            "example_index": batch["example_index"],
            "example_length": tf.reduce_sum(batch["input_mask"], axis=1),
        }

    def _stacked(self, sums, counts):
        names = self.objective.measures
        return tf.stack([[sums[n] for n in names], [counts[n] for n in names]])

    def _named(self, values: np.ndarray) -> Means:
        means = dict(zip(self.objective.measures, values.tolist(), strict=True))
        return {"loss": sum(means[name] for name in self.objective.losses)} | means

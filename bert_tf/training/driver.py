"""Trains in phases: steps, reports, checkpoints, evaluations, the best weights, resuming."""

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import tensorflow as tf

from bert_tf.base.finite import NonFinite
from bert_tf.base.output_files import make_folder
from bert_tf.base.progress import say
from bert_tf.training.checkpoints import BEST, Checkpointer
from bert_tf.training.interruption import Interrupted, StopRequest
from bert_tf.training.reports import EVAL_RESULTS, Reports, rank, read_results, write_results
from bert_tf.training.strategy import compiles, has_several_workers, is_chief, values_of_workers
from bert_tf.training.trainer import Batch, Shortcut, Trainer, open_batches

# How often steps return to the host, to show progress and to notice a signal.
_REPORT_SECONDS = 2.0

Metrics = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Consecutive training steps on one dataset.

    Attributes:
        until_step: number of its last step; the first step of a run is number 1.
        batch_size: examples per step, over all replicas.
        batches: maps a number of finished steps to an iterable of distributed batches that begins
            with the batch of the next step.
        evaluate: returns the metrics of the current weights; None for no evaluation.
        flops_per_sequence: floating-point operations to train on one sequence; 0 if unknown.
        shortcut: a form of the batches that takes less work; None for none.
        describe_batch: maps a step number to a sentence that names its records, for the message of
            `NonFinite`.
    """

    until_step: int
    batch_size: int
    batches: Callable[[int], Iterable[Batch]]
    evaluate: Callable[[], Metrics] | None = None
    flops_per_sequence: int = 0
    shortcut: Shortcut | None = None
    describe_batch: Callable[[int], str] | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """When a run saves, evaluates and reports, and which weights it keeps.

    Attributes:
        save_checkpoints_steps, evaluation_steps: number of steps between checkpoints, and between
            evaluations, each of which follows a checkpoint.
        log_steps: number of steps between lines of `metrics.jsonl`.
        iterations_per_loop: the most steps that run on the device without returning to the host.
        keep_checkpoints: number of checkpoints to keep; older ones are deleted.
        epoch_steps: number of steps in an epoch, to show evaluations by; None to show their steps.
        best_metric: metric of the evaluations; see `reports.rank`. `folder/best` keeps the weights
            and results of the best evaluation, and among equals of the earliest.
        first_best_step: weights of earlier steps are not kept as the best.
        patience: with `best_metric`, end training after this many evaluations in a row that were
            no better; None for never.
    """

    save_checkpoints_steps: int
    evaluation_steps: int
    log_steps: int = 100
    iterations_per_loop: int = 1000
    keep_checkpoints: int = 5
    epoch_steps: int | None = None
    best_metric: str | None = None
    first_best_step: int = 0
    patience: int | None = None

    def pause(self, step: int, until_step: int) -> int:
        """Returns the next step after `step` with a log line, a checkpoint or the end."""
        intervals = self.log_steps, self.save_checkpoints_steps, self.evaluation_steps
        return min(until_step, *(step - step % interval + interval for interval in intervals))


class Driver:
    """Trains a model in phases and keeps the run's folder up to date.

    It saves, evaluates and reports as the plan says, and saves and evaluates at the end of each
    phase. Training that was interrupted at any moment resumes with the same results as if it had
    not been. Under several workers only the chief writes files and shows progress.

    Args:
        folder: the run folder; nothing is written before `train` or `evaluate`.
        trainer: checkpoints hold its model, optimizer and step.
        peak_flops: peak floating-point operations per second of all devices, to report their
            utilization.
        evaluated_weights: makes a context in which the model has the weights to evaluate and to
            keep as the best, if these are not the ones that train.

    Attributes:
        best_results: the best evaluation so far with its `global_step`; {} without one.

    Example:
        driver = Driver("run", trainer, Plan(save_checkpoints_steps=1000, evaluation_steps=1000))
        driver.restore()
        driver.train([Phase(until_step=5000, batch_size=32, batches=batches)])
    """

    def __init__(
        self,
        folder: str,
        trainer: Trainer,
        plan: Plan,
        peak_flops: float = 0.0,
        evaluated_weights: Callable[[], AbstractContextManager] = contextlib.nullcontext,
    ):
        self._folder, self._trainer, self.plan = folder, trainer, plan
        self._peak_flops, self._evaluated_weights = peak_flops, evaluated_weights
        self._writes = is_chief(trainer.strategy)
        self._restored = False
        self._best_folder = f"{folder}/{BEST}"
        self._kept_folder = self._best_folder if plan.best_metric else folder
        model, state, keep = trainer.model, trainer.state, plan.keep_checkpoints
        self._checkpointer = Checkpointer(folder, model, state, keep, self._writes)
        step = {"step": trainer.step}
        self._best = Checkpointer(self._best_folder, model, step, 1, self._writes)
        self.best_results: Metrics = {}
        if plan.best_metric:
            self.best_results = read_results(f"{self._best_folder}/{EVAL_RESULTS}")

    @property
    def step(self) -> int:
        """The number of finished steps."""
        return int(self._trainer.step.numpy())

    def restore(self) -> str | None:
        """Resumes from the newest checkpoint that can be read; see `Checkpointer.restore`."""
        path = self._checkpointer.restore()
        self._restored = path is not None
        steps = values_of_workers(self._trainer.strategy, [self.step])
        if steps.min() != steps.max():
            raise ValueError(
                f"the workers start from different checkpoints, this one from step {self.step}: "
                "--output_dir must be a folder that all of them can read"
            )
        return path

    def restore_best(self) -> None:
        """Sets the weights and the step to those of the best evaluation."""
        # The chief may still be writing them.
        values_of_workers(self._trainer.strategy, [0])
        self._best.restore_from(f"{self._best_folder}/ckpt-{self.best_results['global_step']}")

    def train(self, phases: Sequence[Phase]) -> Metrics:
        """Takes the remaining steps of all phases.

        Evaluates first if the run was stopped between a checkpoint and its evaluation, or if no
        step is left. A run without any steps has a checkpoint, too.

        Returns:
            the last evaluation, or with `best_metric` the best one, with its `global_step`; {} if
            there was none.

        Raises:
            NonFinite: names the step whose loss, or whose gradients, are infinite or NaN.
            Interrupted: SIGTERM or Ctrl-C stopped training; a checkpoint was saved.
            OSError: the folder was removed; it does not appear again with a part of the run.
        """
        self._checkpointer.tidy()
        if self._writes:
            make_folder(self._kept_folder)
        with self._reports(phases[-1].until_step) as reports:
            stop = StopRequest(reports.stopping)
            if self.step >= phases[-1].until_step and not self._restored:
                self._save()
            phase = next((p for p in phases if self.step <= p.until_step), phases[-1])
            if phase.evaluate and self._evaluation_is_due(phases, reports):
                self._evaluate(phase.evaluate, reports)
            try:
                with stop.listen():
                    for phase in phases:
                        if self.step >= phase.until_step:
                            continue
                        reports.begin_phase(phase.batch_size, phase.flops_per_sequence)
                        with open_batches(phase.batches(self.step)) as batches:
                            self._train_phase(batches, phase, reports, stop)
            except Interrupted:
                reports.stopped(self.step)
                raise
        return self.best_results or reports.last_evaluation

    def evaluate(self, evaluate: Callable[[], Metrics]) -> Metrics:
        """Evaluates the current weights without training, even while another process trains.

        Returns the metrics with `global_step`.
        """
        with self._reports(self.step) as reports:
            self._evaluate(evaluate, reports, alone=True)
        return reports.last_evaluation

    def _save(self) -> None:
        self._check_folder()
        self._checkpointer.save()

    def _check_folder(self) -> None:
        if self._writes and not tf.io.gfile.isdir(self._kept_folder):
            raise OSError(f"{self._kept_folder} was removed while the run trained: start it again")

    def _reports(self, num_train_steps: int) -> Reports:
        of_run = self._peak_flops, self._writes, self.plan.epoch_steps
        return Reports(self._folder, self.step, num_train_steps, *of_run)

    def _evaluation_is_due(self, phases: Sequence[Phase], reports: Reports) -> bool:
        """Returns whether the weights at the start of training have to be evaluated."""
        step, ends = self.step, [phase.until_step for phase in phases]
        if step >= ends[-1]:
            return True
        stopped = step > 0 and (step % self.plan.evaluation_steps == 0 or step in ends)
        return stopped and reports.last_evaluation.get("global_step") != step

    def _evaluate(
        self,
        evaluate: Callable[[], Metrics],
        reports: Reports,
        stop: StopRequest | None = None,
        alone: bool = False,
    ) -> None:
        """Evaluates. A signal that `stop` receives ends it at once: resuming makes up for it."""
        # Of several workers, the others would wait for the one that received the signal.
        interruptible = stop and not has_several_workers(self._trainer.strategy)
        with self._evaluated_weights():
            with stop.raising() if interruptible else contextlib.nullcontext():
                results = evaluate()
            if not alone:
                self._check_folder()
            for name, value in results.items():
                if name.endswith("loss") and not math.isfinite(value):
                    raise NonFinite(
                        f"{name} is {value}: the weights of step {self.step:,} are damaged"
                    )
            is_best = self.plan.best_metric is not None and self._is_best(results)
            if is_best:
                self.best_results = results | {"global_step": self.step}
                self._best.save()
                if self._writes:
                    write_results(f"{self._best_folder}/{EVAL_RESULTS}", self.best_results)
        reports.evaluation(self.step, results, self.plan.best_metric, is_best, alone)

    def _is_best(self, results: Metrics) -> bool:
        if self.step < self.plan.first_best_step:
            return False
        if not self.best_results:
            return True
        # A correlation, for example, may be NaN at first.
        name = self.plan.best_metric
        return rank(name, results[name]) > rank(name, self.best_results[name])

    def _is_out_of_patience(self) -> bool:
        """Returns whether training ends early; a resumed run ends at the same step."""
        if not (self.plan.patience and self.best_results):
            return False
        best_step = self.best_results["global_step"]
        if (self.step - best_step) // self.plan.evaluation_steps < self.plan.patience:
            return False
        if self._writes:
            name = self.plan.best_metric
            say(
                f"Stopping early after step {self.step:,}: {name} was best at step "
                f"{best_step:,}, {self.best_results[name]:.4f}."
            )
        return True

    def _train_phase(
        self, batches: list[Iterator[Batch]], phase: Phase, reports: Reports, stop: StopRequest
    ) -> None:
        trainer, plan, step, steps = self._trainer, self.plan, self.step, 1
        if self._writes and compiles(trainer.strategy):
            say("XLA compiles the first step of each length, which may take a minute or two.")
        while step < phase.until_step and not self._is_out_of_patience():
            pause = plan.pause(step, phase.until_step)
            planned = min(steps, plan.iterations_per_loop, pause - step)
            started = time.perf_counter()
            if bad_step := trainer.train(batches[0], planned, phase.shortcut):
                records = f". {phase.describe_batch(bad_step)}" if phase.describe_batch else ""
                raise NonFinite(
                    f"the loss or the gradient of step {bad_step:,} is not finite (earlier "
                    f"checkpoints are kept): try a lower learning rate or a longer warm-up{records}"
                )
            seconds = time.perf_counter() - started
            steps, step = self.step - step, self.step
            reports.steps_done(steps, seconds, trainer.training_means())
            at_end = step == phase.until_step
            if step % plan.log_steps == 0 or at_end:
                reports.log(step, float(trainer.schedule(step - 1)))
                trainer.restart_means()
            # All workers stop, and return to their loops, at the same steps.
            noticed = [bool(stop.signal), math.ceil(seconds * 1e6)]
            stopped, microseconds = values_of_workers(trainer.strategy, noticed).max(axis=0)
            evaluate = step % plan.evaluation_steps == 0 or at_end
            if step % plan.save_checkpoints_steps == 0 or evaluate or stopped:
                self._save()
            if stopped:
                raise Interrupted(stop.signal or signal.SIGTERM)
            if evaluate and phase.evaluate:
                self._evaluate(phase.evaluate, reports, stop)
            # Reports slow steps one by one; takes many fast ones before returning to the host.
            steps = max(1, round(_REPORT_SECONDS * 1e6 * steps / microseconds))

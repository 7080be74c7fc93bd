"""What a run tells while it goes: to people, to scripts and to TensorBoard."""

import time
from collections.abc import Mapping
from typing import Self

import tensorflow as tf
from tqdm import tqdm

from bert_tf.training.curves import draw_curves
from bert_tf.training.metrics import MetricsLog, read_metrics
from tfrecords.writer import atomic_write

EVAL_RESULTS = "eval_results.txt"
METRICS = "metrics.jsonl"
EVAL_METRICS = "eval_metrics.jsonl"
CURVES = "curves.png"
# Drawing takes about a second: at this distance it is no cost.
_SECONDS_BETWEEN_DRAWINGS = 120.0


class Reports:
    """The progress bar of a run and, in its folder, the files that say how it went.

    `metrics.jsonl` has an object for every logged step, `eval_metrics.jsonl` one for every
    evaluation, `curves.png` shows both, `train` and `eval` are for TensorBoard, and
    `eval_results.txt` holds the last evaluation. Where a run goes on, what the files say of later
    steps is dropped: the steps are taken again.

    Use it as a context, once the trainer's step stands where training begins.

    Args:
        folder: of the run.
        step: finished steps.
        num_train_steps: of the whole run.
        peak_flops: floating-point operations a second that the devices could do together.
        writes: False where another worker shows and writes everything.

    Attributes:
        last_evaluation: the results of the last one up to `step`, with `global_step`; {} without.
    """

    def __init__(
        self,
        folder: str,
        step: int,
        num_train_steps: int,
        peak_flops: float = 0.0,
        writes: bool = True,
    ):
        self._folder = folder
        self._writes = writes
        self._peak_flops = peak_flops
        self._batch_size, self._flops = 1, 0
        self._speed: dict[str, float] = {}
        self._steps, self._seconds, self._means = 0, 0.0, {}
        self._drawn = time.monotonic()
        self._bar = tqdm(
            total=num_train_steps, initial=step, unit="step", dynamic_ncols=True, disable=not writes
        )
        self.last_evaluation = _last_evaluation(f"{folder}/{EVAL_METRICS}", step)
        if writes:
            self._metrics = MetricsLog(f"{folder}/{METRICS}")
            self._eval_metrics = MetricsLog(f"{folder}/{EVAL_METRICS}")
            for log in (self._metrics, self._eval_metrics):
                log.start(step)
            self._train_writer = tf.summary.create_file_writer(f"{folder}/train")
            self._eval_writer = tf.summary.create_file_writer(f"{folder}/eval")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self._bar.close()
        if self._writes:
            self._draw()
            self._train_writer.close()
            self._eval_writer.close()

    def begin_phase(self, batch_size: int, flops_per_sequence: int = 0) -> None:
        """Says of what size the batches and their sequences are from now on.

        Args:
            batch_size: over all replicas.
            flops_per_sequence: floating-point operations to train on one; 0 if not known.
        """
        self._batch_size, self._flops = batch_size, flops_per_sequence

    def steps_done(self, step: int, steps: int, seconds: float, means: Mapping[str, float]) -> None:
        """Shows that the last `steps`, up to `step`, took so long.

        Args:
            means: the loss and measures in the mean of the steps since the last `log`.
        """
        self._steps, self._seconds = self._steps + steps, self._seconds + seconds
        self._means = dict(means)
        rate = self._steps * self._batch_size / self._seconds
        self._speed = {"sequences_per_second": rate}
        if self._flops and self._peak_flops:
            self._speed["model_flop_utilisation"] = rate * self._flops / self._peak_flops
        shown = ", ".join(f"{name} {value:.4g}" for name, value in (means | self._speed).items())
        self._bar.set_postfix_str(shown, refresh=False)
        self._bar.update(steps)

    def log(self, step: int, learning_rate: float) -> None:
        """Writes what was shown last; the rate is that of the step."""
        values = self._means | {"learning_rate": learning_rate} | self._speed
        self._steps, self._seconds = 0, 0.0
        if self._writes:
            self._metrics.write({"step": step} | values)
            _summarize(self._train_writer, step, values)
            if time.monotonic() - self._drawn > _SECONDS_BETWEEN_DRAWINGS:
                self._draw()

    def evaluation(self, step: int, results: Mapping[str, float]) -> None:
        """Writes an evaluation, `eval_results.txt` as google-research/bert does, and shows it."""
        if not self._writes:
            return
        self._eval_metrics.start(step - 1)  # in place of an earlier one of this step
        self._eval_metrics.write({"step": step} | results)
        _summarize(self._eval_writer, step, results)
        results = dict(sorted(results.items())) | {"global_step": step}
        write_results(f"{self._folder}/{EVAL_RESULTS}", results)
        # Above the progress bar.
        tqdm.write("evaluation: " + ", ".join(f"{k} {v:.6g}" for k, v in results.items()))

    def stopped(self, step: int) -> None:
        """Says that a signal has ended the run after a step, which is saved."""
        if self._writes:
            tqdm.write(f"Stopped after step {step:,}, which is saved: the same command goes on.")

    def _draw(self) -> None:
        metrics, evaluations = (
            read_metrics(f"{self._folder}/{name}") for name in (METRICS, EVAL_METRICS)
        )
        if metrics:
            draw_curves(metrics, evaluations, f"{self._folder}/{CURVES}")
        self._drawn = time.monotonic()


def _last_evaluation(path: str, step: int) -> dict[str, float]:
    for results in reversed(read_metrics(path)):
        if results["step"] <= step:
            return {"global_step": results.pop("step")} | results
    return {}


def write_results(path: str, results: Mapping[str, float]) -> None:
    """Writes `key = value` lines, sorted, whole or not at all."""
    atomic_write(path, "".join(f"{name} = {value}\n" for name, value in sorted(results.items())))


def _summarize(writer: tf.summary.SummaryWriter, step: int, values: Mapping[str, float]) -> None:
    with writer.as_default(step):
        for name, value in values.items():
            tf.summary.scalar(name, value)
    writer.flush()

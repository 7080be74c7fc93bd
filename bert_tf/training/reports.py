"""Reports progress to people, scripts and TensorBoard."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Self

import tensorflow as tf

from bert_tf.base.files import current_entries, named_errors, read_file, reading
from bert_tf.base.output_files import atomic_write, locked
from bert_tf.base.progress import duration, progress_bar, say
from bert_tf.training.interruption import Interrupted

EVAL_RESULTS = "eval_results.txt"
METRICS = "metrics.jsonl"
EVAL_METRICS = "eval_metrics.jsonl"
CURVES = "curves.png"
_Metrics = Sequence[Mapping[str, float]]
# For all other metrics, higher values are better.
_LOWER_IS_BETTER = ("loss", "mean_squared_error")
# What the progress bar shows, so that its line fits 100 columns.
_SHORT = {
    "loss": "loss {:.4g}",
    "masked_lm_loss": "mlm {:.3g}",
    "next_sentence_loss": "nsp {:.3g}",
    "accuracy": "accuracy {:.3g}",
    "sequences_per_second": "{:,.4g} seq/s",
    "model_flop_utilisation": "{:.0%} MFU",
}
# Drawing takes about a second, which is negligible at this interval.
_SECONDS_BETWEEN_DRAWINGS = 120.0


def rank(metric: str, value: float) -> float:
    """Returns a number that is higher for a better value of a metric, and lowest for NaN."""
    if math.isnan(value):
        return -math.inf
    return -value if metric.removeprefix("eval_") in _LOWER_IS_BETTER else value


class Reports:
    """The progress bar of a run and the files in its folder that record its progress.

    `metrics.jsonl` has one object per logged step and `eval_metrics.jsonl` one per evaluation;
    `curves.png` shows both; `train` and `eval` are for TensorBoard; `eval_results.txt` holds the
    last evaluation, as does `last_evaluation`, with its `global_step`. Use it as a context manager,
    after the checkpoint has been restored, given the number of finished steps. `peak_flops` are
    those of all devices together. Without `writes`, another worker writes and shows progress. With
    `epoch_steps`, evaluations are shown by the number of their epoch.
    """

    def __init__(
        self,
        folder: str,
        step: int,
        num_train_steps: int,
        peak_flops: float = 0.0,
        writes: bool = True,
        epoch_steps: int | None = None,
    ):
        self._folder, self._writes, self._epoch_steps = folder, writes, epoch_steps
        self._peak_flops = peak_flops
        self._batch_size, self._flops = 1, 0
        self._speed: dict[str, float] = {}
        self._steps, self._seconds, self._means = 0, 0.0, {}
        self._drawn = self._evaluated = time.monotonic()
        self._bar = progress_bar(
            total=num_train_steps, initial=step, show_rate=False, disable=not writes
        )
        past = [x for x in read_metrics(f"{folder}/{EVAL_METRICS}") if x["step"] <= step]
        self.last_evaluation = {"global_step": past[-1].pop("step")} | past[-1] if past else {}
        if writes:
            with named_errors(f"cannot write to {folder}/train and {folder}/eval"):
                self._train_writer = tf.summary.create_file_writer(f"{folder}/train")
                self._eval_writer = tf.summary.create_file_writer(f"{folder}/eval")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_) -> None:
        self._bar.close()
        # After another error, such as a full disk, writing may fail again, and the second error
        # would hide the first one, which says what to do.
        if self._writes and error in (None, Interrupted):
            self._draw()
            self._train_writer.close()
            self._eval_writer.close()

    def begin_phase(self, batch_size: int, flops_per_sequence: int = 0) -> None:
        """Sets the sizes of the following batches and sequences; see `driver.Phase`."""
        self._batch_size, self._flops = batch_size, flops_per_sequence
        self._bar.set_description_str("Compiling the first step")

    def steps_done(self, steps: int, seconds: float, means: Mapping[str, float]) -> None:
        """Shows the progress of the last `steps`, which took `seconds`; `means` are since `log`."""
        self._steps, self._seconds = self._steps + steps, self._seconds + seconds
        self._means = dict(means)
        rate = self._steps * self._batch_size / self._seconds
        self._speed = {"sequences_per_second": rate}
        if self._flops and self._peak_flops:
            reached = rate * self._flops
            # A peak that was measured beside other work is too low.
            self._peak_flops = max(self._peak_flops, reached)
            self._speed["model_flop_utilisation"] = reached / self._peak_flops
        shown = (self._means | self._speed).items()
        short = [_SHORT[name].format(value) for name, value in shown if name in _SHORT]
        self._bar.set_description_str("", refresh=False)
        self._bar.set_postfix_str(", ".join(short), refresh=False)
        self._bar.update(steps)

    def log(self, step: int, learning_rate: float) -> None:
        """Writes the latest means with the learning rate of the step."""
        values = self._means | {"learning_rate": learning_rate} | self._speed
        self._steps, self._seconds = 0, 0.0
        if self._writes:
            append_metrics(f"{self._folder}/{METRICS}", {"step": step} | values)
            _summarize(self._train_writer, step, values)
            if time.monotonic() - self._drawn > _SECONDS_BETWEEN_DRAWINGS:
                self._draw()

    def evaluation(
        self,
        step: int,
        results: Mapping[str, float],
        best_metric: str | None = None,
        is_best: bool = False,
        alone: bool = False,
    ) -> None:
        """Writes an evaluation; `eval_results.txt` is as in google-research/bert.

        Shows its loss, `best_metric` or else all accuracies, and the time since the one before. An
        evaluation `alone` replaces none of later steps: another process may train meanwhile.
        """
        self.last_evaluation = dict(sorted(results.items())) | {"global_step": step}
        if not self._writes:
            return
        with locked(f"{self._folder}/eval"):
            path = f"{self._folder}/{EVAL_METRICS}"
            later = [line for line in read_metrics(path) if alone and line["step"] > step]
            append_metrics(path, {"step": step} | results, *later)
            if not later:
                write_results(f"{self._folder}/{EVAL_RESULTS}", self.last_evaluation)
        _summarize(self._eval_writer, step, results)
        losses = [name for name in results if name in ("loss", "eval_loss")]
        chosen = [best_metric] if best_metric else [x for x in results if x.endswith("accuracy")]
        shown = [
            f"{name.removeprefix('eval_')} {results[name]:.4f}"
            for name in dict.fromkeys([*losses, *chosen])
        ]
        now = time.monotonic()
        best, seconds, self._evaluated = " (best)" * is_best, now - self._evaluated, now
        say(f"{self._place(step)}: {', '.join(shown)}{best}, {duration(seconds)}")

    def _place(self, step: int) -> str:
        total, size = self._bar.total, self._epoch_steps
        if size:
            return f"epoch {math.ceil(step / size)}/{math.ceil(total / size)}"
        return f"step {step:,}/{total:,}"

    def stopping(self) -> None:
        """Shows that a signal arrived. Works in any thread."""
        if self._writes:
            say("Saving a checkpoint; press Ctrl-C again to stop without saving.")

    def stopped(self, step: int) -> None:
        """Shows that a signal stopped the run after this step, whose checkpoint is saved."""
        if self._writes:
            self._bar.clear()
            print(
                f"Stopped after step {step:,} and saved a checkpoint: start it again to resume.",
                flush=True,
            )

    def _draw(self) -> None:
        metrics, evaluations = (
            read_metrics(f"{self._folder}/{name}") for name in (METRICS, EVAL_METRICS)
        )
        if metrics:
            draw_curves(metrics, evaluations, f"{self._folder}/{CURVES}")
        self._drawn = time.monotonic()


def draw_curves(metrics: _Metrics, evaluations: _Metrics, path: str) -> None:
    """Draws the learning curves of a run into a PNG file, written atomically."""
    # matplotlib is slow to import.
    from bert_tf.plots.curves import learning_curves

    atomic_write(path, learning_curves(metrics, evaluations).png())


def write_results(path: str, results: Mapping[str, float]) -> None:
    """Writes sorted `key = value` lines atomically."""
    atomic_write(path, "".join(f"{name} = {value}\n" for name, value in sorted(results.items())))


def read_results(path: str) -> dict[str, float]:
    """Reads a file written by `write_results`; returns {} if there is none."""
    if not tf.io.gfile.exists(path):
        return {}
    try:
        # The name of a class may contain almost any character.
        lines = read_file(path).decode().removesuffix("\n").split("\n")
        values = {key: float(value) for key, value in (line.rsplit(" = ", 1) for line in lines)}
        return values | {"global_step": int(values["global_step"])}
    except (ValueError, KeyError):
        raise ValueError(f"{path} is damaged: restore it, or move it away") from None


def _summarize(writer: tf.summary.SummaryWriter, step: int, values: Mapping[str, float]) -> None:
    with writer.as_default(step):
        for name, value in values.items():
            tf.summary.scalar(name, value)
    writer.flush()


def append_metrics(path: str, *lines: Mapping[str, float]) -> None:
    """Appends objects with a `step` to a `metrics.jsonl`; removes a last line that a kill cut."""
    if tf.io.gfile.exists(path):
        with reading(path) as file:
            file.seek(max(0, file.size() - 1))
            is_cut = file.read() not in (b"", b"\n")
        if is_cut:
            atomic_write(path, _whole_lines(read_file(path)))
    # Converts NumPy scalars to Python's.
    text = [json.dumps(dict(x), default=lambda number: number.item()) + "\n" for x in lines]
    with named_errors(f"cannot write {path}"), tf.io.gfile.GFile(path, "a") as file:
        file.write("".join(text))


def read_metrics(path: str) -> list[dict[str, float]]:
    """Reads a `metrics.jsonl` as `current` entries, but for a last line that a kill cut; or []."""
    if not tf.io.gfile.exists(path):
        return []
    entries = []
    for number, line in enumerate(_whole_lines(read_file(path)).splitlines(), start=1):
        try:
            entries.append(json.loads(line))
            int(entries[-1]["step"])
        except (ValueError, TypeError, KeyError):
            message = f"{path}: line {number} is damaged: remove the line or the file"
            raise ValueError(message) from None
    return current_entries(entries)


def _whole_lines(text: bytes) -> bytes:
    return text[: text.rfind(b"\n") + 1]

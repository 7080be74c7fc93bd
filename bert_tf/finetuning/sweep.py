"""Several runs in one command, seeds and the grid of the paper; the scores of runs, in tables."""

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
import tensorflow as tf
from tensorboard.plugins.hparams import api

from bert_tf.base.files import names_in
from bert_tf.base.finite import NonFinite
from bert_tf.base.output_files import atomic_write, check_free, write_json
from bert_tf.base.progress import say
from bert_tf.finetuning.fine_tune import after_fine_tuning, fine_tune
from bert_tf.finetuning.finetuning_options import EVAL_RESULTS_JSON, FineTuningOptions
from bert_tf.finetuning.predictions import aligned
from bert_tf.finetuning.registry import make_task
from bert_tf.finetuning.run_process import run_apart
from bert_tf.finetuning.task import Task
from bert_tf.runs.run import SWEEP_RESULTS, Run
from bert_tf.training.reports import rank


class Score(NamedTuple):
    """The mean of some runs, and its standard deviation (n - 1) if there are several."""

    mean: float
    deviation: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Returns the score of runs with these values."""
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return cls(float(np.mean(values)), deviation)

    def text(self, factor: float = 1.0, form: str = ".4f") -> str:
        """Returns the score times `factor`, as in "0.8234 ± 0.0102"."""
        return " ± ".join(format(factor * x, form) for x in self if x is not None)

    def to_dict(self) -> dict[str, float]:
        """Returns the values that are known, by name."""
        return {name: x for name, x in self._asdict().items() if x is not None}


class ScoreTable(NamedTuple):
    """A table: title, names of columns, rows of names and scores, and how scores become text."""

    title: str
    header: list[str]
    rows: list[list[str | Score | None]]
    factor: float = 1.0
    form: str = ".4f"

    def cells(self) -> list[list[str]]:
        """Returns header and rows as text."""

        def text(cell: str | Score | None) -> str:
            if isinstance(cell, Score):
                return cell.text(self.factor, self.form)
            return "-" if cell is None else cell

        return [self.header, *(list(map(text, row)) for row in self.rows)]

    def text(self) -> str:
        """Returns the title, and lines of aligned cells."""
        return f"{self.title}\n{aligned(self.cells())}"

    def markdown(self) -> str:
        """Returns the table in Markdown."""
        first, *others = (
            "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
            for row in self.cells()
        )
        return "\n".join([f"**{self.title}**\n", first, "|" + "---|" * len(self.header), *others])


RESULTS_TEXT = "results.txt"
_HPARAMS = ".hparams"
# Source: BERT (arXiv:1810.04805) appendix A.3.
GRID = {
    "train_batch_size": (16, 32),
    "learning_rate": (5e-5, 3e-5, 2e-5),
    "num_train_epochs": (2.0, 3.0, 4.0),
}
_NAME = "batch-{train_batch_size}-rate-{learning_rate:g}-epochs-{num_train_epochs:g}"
# Comparisons of the runs, as Markdown and as a picture, may lie beside them.
_OURS = re.compile(r"(seed-\d+|batch-.*|results\.(json|txt)|.*\.(md|png)|events\..*)")

Results = Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Setting:
    """The runs of one setting of the flags, by folder; they differ in their seeds.

    `name` is its folder in --output_dir, "" without --grid; `flags` are those that --grid sets.
    """

    name: str
    flags: Mapping[str, float]
    runs: Mapping[str, FineTuningOptions]


def fine_tune_all(options: FineTuningOptions) -> Results:
    """Makes the run or the runs that the flags ask for; returns the results of the best one."""
    return sweep(options) if options.is_sweep else fine_tune(options)


def sweep(
    options: FineTuningOptions, run: str = "bert_tf.finetuning.fine_tune:fine_tune"
) -> Results:
    """Trains with several seeds or settings, each in a folder of its own, and compares the runs.

    Finished runs are not repeated, and an interrupted one resumes. The best setting is the one with
    the best mean of the task's metric on the dev set, and the best run is the best of that
    setting. The comparison goes to `results.json` and `results.txt`. A run whose loss is not finite
    counts as diverged, and the others go on.

    Each run has a process of its own, which imports the main module: protect the code of a script
    with `if __name__ == "__main__"`. `run` names the function that makes a run; see `run_apart`.

    Returns the results of the best run.
    """
    task = make_task(options)
    options = options.changed(task=task.name)
    settings = list_settings(options)
    path = options.output_dir
    if others := sorted(name for name in names_in(path) if not _OURS.fullmatch(name)):
        raise ValueError(
            f"{path} holds {others[0]}, which --num_seeds and --grid do not write: "
            "choose another --output_dir"
        )
    _check_results(path)
    runs = {folder: flags for setting in settings for folder, flags in setting.runs.items()}
    finished = {folder: _finished_results(flags) for folder, flags in runs.items()}
    if folder := next(filter(finished.get, runs), None):
        # All runs have the same files.
        run_apart("bert_tf.finetuning.preparing:check_data_of", runs[folder])
    results: dict[str, Results] = {}
    for number, (folder, flags) in enumerate(runs.items(), start=1):
        note = " is finished." if finished[folder] else ""
        say(f"\nRun {number} of {len(runs)}: {flags.output_dir}{note}")
        try:
            results[folder] = finished[folder] or run_apart(run, flags)
        except NonFinite as error:
            print(f"WARNING: {flags.output_dir} diverged: {error}")
    if not results:
        raise NonFinite("all runs diverged: try a lower --learning_rate")
    return results[_report(options, task, settings, results)]


def list_settings(options: FineTuningOptions) -> list[Setting]:
    """Returns the settings to try."""
    combinations = [{}]
    if options.grid:
        products = itertools.product(*GRID.values())
        combinations = [dict(zip(GRID, values, strict=True)) for values in products]
    folder = options.output_dir.rstrip("/")
    settings = []
    for flags in combinations:
        name = _NAME.format(**flags) if flags else ""
        runs = {}
        for seed in range(options.random_seed, options.random_seed + options.num_seeds):
            run = f"{name}/seed-{seed}".lstrip("/")
            changes = flags | dict(random_seed=seed, output_dir=f"{folder}/{run}")
            runs[run] = options.changed(**changes, num_seeds=1, grid=False)
        settings.append(Setting(name, flags, runs))
    return settings


def _check_results(folder: str) -> None:
    """Raises a FileExistsError if the folder has a comparison that no sweep wrote."""
    if not Run(folder).read_json(SWEEP_RESULTS).keys() >= {"best", "settings"}:
        files = (f"{folder}/{name}" for name in (SWEEP_RESULTS, RESULTS_TEXT))
        check_free(*files, advice="move it away, or choose another --output_dir")


def _finished_results(options: FineTuningOptions) -> Results | None:
    """Returns the results of a run that has nothing left to do."""
    run = Run(options.output_dir)
    flags = options.with_saved(run.flags, "training", "evaluation").values("place")
    flags |= {name: getattr(options, name) for name in ("do_eval", "do_predict")}
    if not run.finished or run.changed_flags(flags):
        return None
    files = {name: run.read_json(name) for name in options.result_files}
    return files[EVAL_RESULTS_JSON] if all(files.values()) else None


def summarize(results: Sequence[Results]) -> dict[str, Score]:
    """Returns the score of each metric that all runs have; taggers may have others, too."""
    names = [name for name in results[0] if name != "global_step"] if results else []
    shared = [name for name in names if all(name in run for run in results)]
    return {name: Score.of([run[name] for run in results]) for name in shared}


def _report(
    options: FineTuningOptions,
    task: Task,
    settings: Sequence[Setting],
    results: Mapping[str, Results],
) -> str:
    """Writes and prints the comparison; returns the folder of the best run."""
    metric, folder = f"eval_{task.metric}", options.output_dir
    ranks = {run: rank(metric, results[run][metric]) for run in results}
    finished = {x.name: [run for run in x.runs if run in results] for x in settings}
    summaries = {x: summarize([results[run] for run in finished[x]]) for x in finished}
    means = {x: np.mean([ranks[run] for run in finished[x]]) for x in finished if finished[x]}
    best_setting = max(means, key=means.get)
    best = max(finished[best_setting], key=ranks.get)
    values = {
        "task": task.name,
        "metric": metric,
        "best": best,
        "settings": [
            {
                "flags": dict(setting.flags),
                "runs": {run: results.get(run) for run in setting.runs},
                "summary": {x: y.to_dict() for x, y in summaries[setting.name].items()},
            }
            for setting in settings
        ],
    }
    rows = summaries
    if not options.grid:
        runs = {run: [results[run]] if run in results else [] for run in settings[0].runs}
        rows = {run: summarize(runs[run]) for run in runs} | {"mean": summaries[best_setting]}
    names = [name for name in task.reported_metrics if name in summaries[best_setting]]
    table = [["", *names, ""]]
    for name, summary in rows.items():
        scores = [summary[x].text() if summary else "diverged" for x in names]
        table.append([name, *scores, "best" if name in (best, best_setting) else ""])
    score, count = summaries[best_setting][metric], len(finished[best_setting])
    line = f"{task.metric[0].upper()}{task.metric[1:]} {score.mean:.4f} on {task.dev_set}: "
    if count == 1:
        line += f"{best}."
    else:
        setting = " at the best setting" if options.grid else ""
        line += (
            f"mean of {count} seeds{setting}, standard deviation {score.deviation:.4f}; the best "
            f"run, {best}, has {results[best][metric]:.4f}."
        )
    text = f"{aligned(table)}\n\n{line}\n"
    _check_results(folder)
    write_json(f"{folder}/{SWEEP_RESULTS}", values)
    atomic_write(f"{folder}/{RESULTS_TEXT}", text)
    if options.grid:
        _write_hparams(folder, metric, settings, results)
    print(f"\n{text}Wrote {folder}: {SWEEP_RESULTS}, {RESULTS_TEXT}.")
    say(after_fine_tuning(task, f"{folder.rstrip('/')}/{best}"))
    return best


def _write_hparams(
    folder: str, metric: str, settings: Sequence[Setting], results: Mapping[str, Results]
) -> None:
    """Writes the runs for the HParams page of TensorBoard, in place of an earlier call's."""
    with _hparams_writer(folder).as_default():
        flags = [api.HParam(name, api.Discrete(tried)) for name, tried in GRID.items()]
        api.hparams_config(flags, [api.Metric(metric)])
    for setting in settings:
        for run in filter(results.get, setting.runs):
            step = int(results[run]["global_step"])
            with _hparams_writer(f"{folder}/{run}").as_default(step):
                api.hparams(dict(setting.flags))
                tf.summary.scalar(metric, results[run][metric])


def _hparams_writer(folder: str) -> tf.summary.SummaryWriter:
    for name in tf.io.gfile.listdir(folder):
        if name.startswith("events.") and name.endswith(_HPARAMS):
            tf.io.gfile.remove(f"{folder}/{name}")
    return tf.summary.create_file_writer(folder, filename_suffix=_HPARAMS)

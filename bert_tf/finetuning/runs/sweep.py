"""Several runs in one command: seeds, and the grid of the paper."""

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorboard.plugins.hparams import api

from bert_tf.finetuning.fine_tune import fine_tune, next_step
from bert_tf.finetuning.finetuning_options import EVAL_RESULTS_JSON, FineTuningOptions
from bert_tf.finetuning.registry import make_task, task_name
from bert_tf.finetuning.runs.run_process import Diverged, run_apart
from bert_tf.finetuning.runs.tables import aligned
from bert_tf.finetuning.saved_run import with_values_of
from bert_tf.finetuning.task import TrainableTask
from bert_tf.runs.run import SWEEP_RESULTS, Run
from bert_tf.training.reports import rank
from tfrecords.progress import say
from tfrecords.writer import atomic_write

RESULTS_TEXT = "results.txt"
_HPARAMS = ".hparams"
# Source: BERT (arXiv:1810.04805) appendix A.3.
GRID = {
    "train_batch_size": (16, 32),
    "learning_rate": (5e-5, 3e-5, 2e-5),
    "num_train_epochs": (2.0, 3.0, 4.0),
}
_NAME = "batch-{train_batch_size}-rate-{learning_rate:g}-epochs-{num_train_epochs:g}"
_OURS = re.compile(r"(seed-\d+|batch-.*|results\.(json|txt)|compression\.(md|png)|events\..*)/?$")

Results = Mapping[str, float]
# Metric -> its mean and, of several runs, its deviation.
Summary = Mapping[str, Mapping[str, float]]


@dataclasses.dataclass(frozen=True)
class Setting:
    """The runs of one setting of the flags, which differ in their seeds.

    `name` is its folder in --output_dir, "" without --grid; `flags` are those that --grid sets.
    `runs` has the options of each run, by its folder in --output_dir.
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
    options = dataclasses.replace(options, task=task_name(options.task))
    settings = list_settings(options)
    path = options.output_dir
    names = tf.io.gfile.listdir(path) if tf.io.gfile.isdir(path) else []
    if others := sorted(name for name in names if not _OURS.match(name)):
        raise ValueError(
            f"{path} holds {others[0]}, which --num_seeds and --grid do not write: "
            "choose another --output_dir"
        )
    task = make_task(options)
    runs = {folder: flags for setting in settings for folder, flags in setting.runs.items()}
    finished = {folder: _finished_results(flags) for folder, flags in runs.items()}
    if folder := next(filter(finished.get, runs), None):
        # All runs have the same files.
        run_apart("bert_tf.finetuning.fine_tune:check_data_of", runs[folder])
    results: dict[str, Results] = {}
    for number, (folder, flags) in enumerate(runs.items(), start=1):
        note = " is finished." if finished[folder] else ""
        say(f"\nRun {number} of {len(runs)}: {flags.output_dir}{note}")
        try:
            results[folder] = finished[folder] or run_apart(run, flags)
        except Diverged as error:
            print(f"WARNING: {flags.output_dir} diverged: {error}")
    if not results:
        raise Diverged("all runs diverged: try a lower --learning_rate")
    best = _best_run(settings, results, f"eval_{task.metric}")
    _report(options, task, settings, results, best)
    return results[best]


def list_settings(options: FineTuningOptions) -> list[Setting]:
    """Returns the settings to try."""
    combinations = [{}]
    if options.grid:
        defaults = {field.name: field.default for field in dataclasses.fields(options)}
        for name in GRID:
            if getattr(options, name) != defaults[name]:
                raise ValueError(f"--grid tries several values of --{name}: omit that flag")
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
            runs[run] = dataclasses.replace(options, **changes, num_seeds=1, grid=False)
        settings.append(Setting(name, flags, runs))
    return settings


def _finished_results(options: FineTuningOptions) -> Results | None:
    """Returns the results of a run that has nothing left to do."""
    run = Run(options.output_dir)
    flags = dataclasses.asdict(with_values_of(options, run.resumed_flags))
    if not run.finished or run.changed_flags(flags):
        return None
    files = {name: run.read_json(name) for name in options.result_files}
    return files[EVAL_RESULTS_JSON] if all(files.values()) else None


def _best_run(settings: Sequence[Setting], results: Mapping[str, Results], metric: str) -> str:
    def value(folder: str) -> float:
        return rank(metric, results[folder][metric])

    finished = [[folder for folder in setting.runs if folder in results] for setting in settings]
    best = max(filter(None, finished), key=lambda runs: np.mean([value(run) for run in runs]))
    return max(best, key=value)


def summarize(results: Sequence[Results]) -> Summary:
    """Returns the mean and, of two or more runs, the standard deviation (n - 1) of each metric.

    A metric counts if all runs have it: a tagger, for example, has one for every type of entity
    that it predicts.
    """
    summary = {}
    for name in results[0] if results else ():
        if name == "global_step" or not all(name in run for run in results):
            continue
        values = [run[name] for run in results]
        summary[name] = {"mean": float(np.mean(values))}
        if len(values) > 1:
            summary[name]["deviation"] = float(np.std(values, ddof=1))
    return summary


def _report(
    options: FineTuningOptions,
    task: TrainableTask,
    settings: Sequence[Setting],
    results: Mapping[str, Results],
    best: str,
) -> None:
    """Writes and prints the comparison."""
    groups = [list(filter(None, map(results.get, setting.runs))) for setting in settings]
    summaries = [summarize(group) for group in groups]
    metric, folder = f"eval_{task.metric}", options.output_dir
    values = {
        "task": task.name,
        "metric": metric,
        "best": best,
        "settings": [
            {
                "flags": dict(setting.flags),
                "runs": {run: results.get(run) for run in setting.runs},
                "summary": summary,
            }
            for setting, summary in zip(settings, summaries, strict=True)
        ],
    }
    index = next(index for index, setting in enumerate(settings) if best in setting.runs)
    names = [name for name in task.reported_metrics if name in summaries[index]]
    if options.grid:
        rows = [
            _row(setting.name, summary, names)
            for setting, summary in zip(settings, summaries, strict=True)
        ]
    else:
        rows = _rows_of_seeds(settings[0].runs, results, summaries[0], names)
    for row in rows:
        row.append("best" * (row[0] in (best, settings[index].name)))
    text = aligned([["", *names, ""], *rows])
    summary, count = summaries[index][metric], len(groups[index])
    text += f"\n\n{_sentence(task, results[best][metric], summary, count, options, best)}"
    atomic_write(f"{folder}/{SWEEP_RESULTS}", json.dumps(values, indent=2) + "\n")
    atomic_write(f"{folder}/{RESULTS_TEXT}", text + "\n")
    if options.grid:
        _write_hparams(folder, metric, settings, results)
    print(f"\n{text}\nWrote {folder}: {SWEEP_RESULTS}, {RESULTS_TEXT}.")
    say(next_step(task, f"{folder.rstrip('/')}/{best}"))


def _write_hparams(
    folder: str, metric: str, settings: Sequence[Setting], results: Mapping[str, Results]
) -> None:
    """Writes the settings and each run's result for the HParams page of TensorBoard.

    Runs with the same flags are one row there. Replaces what an earlier call wrote.
    """
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
        if name.endswith(_HPARAMS):
            tf.io.gfile.remove(f"{folder}/{name}")
    return tf.summary.create_file_writer(folder, filename_suffix=_HPARAMS)


def _sentence(
    task: TrainableTask,
    value: float,
    summary: Mapping[str, float],
    count: int,
    options: FineTuningOptions,
    best: str,
) -> str:
    """Returns a sentence on the best setting; `count` of its runs did not diverge."""
    name = f"{task.metric[0].upper()}{task.metric[1:]} {summary['mean']:.4f} on {task.dev_set}"
    if not options.is_sweep:
        return f"{name}."
    if options.grid and count == 1:
        return f"{name}: the best of {math.prod(map(len, GRID.values()))} settings, {best}."
    seeds = f"{options.num_seeds} seeds" + " at the best setting" * options.grid
    if count < options.num_seeds:
        seeds = f"{count} of {seeds} (the others diverged)"
    if count == 1:
        return f"{name}: {best}, 1 of {options.num_seeds} seeds; the others diverged."
    return (
        f"{name}: mean of {seeds}, standard deviation {summary['deviation']:.4f}; the best run, "
        f"{best}, has {value:.4f}."
    )


def _rows_of_seeds(
    runs: Iterable[str], results: Mapping[str, Results], summary: Summary, names: list[str]
) -> list[list[str]]:
    """Returns a row for each run, and their mean and deviation."""
    rows = [_row(run, summarize([results[run]] if run in results else []), names) for run in runs]
    for part in summary[names[0]]:
        rows.append([part, *(f"{summary[name][part]:.4f}" for name in names)])
    return rows


def _row(name: str, summary: Summary, names: list[str]) -> list[str]:
    """Returns the cells of a run or a setting; it diverged if it has no summary."""
    if not summary:
        return [name, "diverged", *[""] * (len(names) - 1)]
    return [name, *(" ± ".join(f"{x:.4f}" for x in summary[metric].values()) for metric in names)]

"""Compares the fine-tuning runs in a folder with each other and with published results."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.base.published import read_published
from bert_tf.finetuning.finetuning_options import EVAL_RESULTS_JSON, FineTuningOptions
from bert_tf.finetuning.multi_task import TOGETHER
from bert_tf.finetuning.registry import task_of_run
from bert_tf.finetuning.saved_run import SET
from bert_tf.finetuning.sweep import Score, ScoreTable, summarize
from bert_tf.finetuning.task import TRAIN
from bert_tf.runs.run import COMMAND, FINISHED, FLAGS, Run
from bert_tf.training.reports import rank

Scores = tuple[float | None, ...]


class Column(NamedTuple):
    """A column: its heading; the task, and the metric in `eval_results.json`, of our values."""

    name: str
    task: str
    metric: str


class PublishedTable(NamedTuple):
    """A table of published scores: what was measured, on which split, for which systems.

    A row is a system and its scores in percent, None where there is none; with `average`, the last
    one is the mean of the others. `form` formats the scores of runs.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[tuple[str, Scores]]
    average: bool = False
    form: str = ".1f"


def _read_table(columns: Sequence[Sequence], rows: Sequence[Sequence], **rest) -> PublishedTable:
    scores = [(system, tuple(x or None for x in row)) for system, *row in rows]
    return PublishedTable(columns=[Column(*x) for x in columns], rows=scores, **rest)


TABLES = [_read_table(**table) for table in read_published("scores")["tables"]]

# Flags that name what a run was made from.
_INPUTS = {"init_checkpoint", "init_vocab_mapping", "bert_config_file", "vocab_file", "data_dir"}
_INPUTS |= {"preset", "train_file", "dev_file", "test_file"}
# Flags in which the runs of one group may differ.
_VARYING = {"random_seed", COMMAND, *FineTuningOptions.names("place")} - _INPUTS
# Flags of compress that say where a student comes from.
_STUDENT_SOURCES = ("recipe", "teacher", "student_layers")
# Flags that say where a model comes from, and what of it is trained.
_SOURCES = (
    *("init_checkpoint", "preset", "bert_config_file", "freeze_encoder", "feature_based"),
    *("lora_rank", "label_type", TOGETHER),
    *_STUDENT_SOURCES,
)


@dataclass(frozen=True)
class Group:
    """Finished runs that differ in their seeds only.

    The folder is their common one, relative to that of all runs, and `scores` are their metrics, by
    their names in `eval_results.json`. `metrics` are the names of the scores by the metric that
    chooses the best weights, the dev set's first; all names if the task is not registered.
    """

    folder: str
    flags: Mapping[str, Any]
    paths: Sequence[str]
    scores: Mapping[str, Score]
    metrics: Sequence[str]

    @property
    def task(self) -> str:
        return self.flags["task"]

    @property
    def size(self) -> int:
        return len(self.paths)


def print_tables(tables: Sequence[ScoreTable], unfinished: Sequence[str]) -> None:
    """Prints tables, and the folders of unfinished runs."""
    print(*(table.text() for table in tables), sep="\n\n")
    if unfinished:
        print(f"\nLeft out, because they are unfinished: {', '.join(unfinished)}.")


def read_groups(folder: str) -> tuple[list[Group], list[str]]:
    """Returns the groups of finished runs in a folder at any depth, and the unfinished runs."""
    groups: dict[str, dict[Run, dict[str, float]]] = {}
    unfinished = []
    for run in sorted(_runs(folder), key=lambda run: run.path):
        results = run.read_json(EVAL_RESULTS_JSON, dict[str, float]) if run.finished else {}
        if results:
            key = {name: x for name, x in run.flags.items() if name not in _VARYING}
            made_from = run.made_from.sets
            if run.flags.get("num_train_examples"):
                made_from.pop(SET.format(TRAIN), None)  # every seed draws others
            described = json.dumps([key, made_from], sort_keys=True)
            groups.setdefault(described, {})[run] = results
        else:
            unfinished.append(run.path)
    if not groups:
        found = f", only unfinished ones, such as {unfinished[0]}" if unfinished else ""
        raise ValueError(f"{folder} holds no finished runs of run_finetuning{found}")
    return [_group(folder, results) for results in groups.values()], unfinished


def _runs(folder: str) -> Iterator[Run]:
    """Yields every run once, under its own name rather than that of a link."""
    seen: set[str] = set()
    for path, folders, files in tf.io.gfile.walk(folder):
        run, place = Run(path), os.path.realpath(path)
        folders.sort(key=lambda name: os.path.islink(os.path.join(path, name)))
        if place in seen:
            folders.clear()
        elif FLAGS in files and {FINISHED, "task"} <= run.flags.keys():
            if "," not in run.flags["task"]:
                folders.clear()
                yield run
        seen.add(place)


def _group(folder: str, results: Mapping[Run, Mapping[str, float]]) -> Group:
    scores = summarize([*results.values()])
    first, paths = next(iter(results)), [run.path for run in results]
    common = os.path.commonpath([os.path.relpath(path, folder) for path in paths]) or "."
    try:
        metrics = [name for name in task_of_run(first).reported_metrics if name in scores]
    except ValueError:
        metrics = list(scores)
    return Group(common, first.flags, paths, scores, metrics)


def task_tables(groups: Sequence[Group]) -> list[ScoreTable]:
    """Returns a table for each task: groups, the best first, their metrics and differing flags."""
    tables = []
    for task in dict.fromkeys(group.task for group in groups):
        own = [group for group in groups if group.task == task]
        metrics = list(dict.fromkeys(name for group in own for name in group.metrics))
        flags = _differing_flags(own)
        if metrics:
            own.sort(key=lambda group: -_rank(group, metrics[0]))
        rows = [
            [g.folder, *(str(g.flags.get(name)) for name in flags), str(g.size)]
            + [g.scores.get(name) for name in metrics]
            for g in own
        ]
        tables.append(ScoreTable(task, ["folder", *flags, "runs", *metrics], rows))
    return tables


def _differing_flags(groups: Sequence[Group]) -> list[str]:
    def values(name: str) -> set[str]:
        # A missing flag does not differ, except in _STUDENT_SOURCES: runs of run_finetuning lack
        # the flags of compress, and runs of old versions lack newer flags.
        known = [g for g in groups if name in g.flags or name in _STUDENT_SOURCES]
        return {str(group.flags.get(name)) for group in known}

    names = dict.fromkeys(name for group in groups for name in group.flags)
    return [name for name in names if name not in _VARYING and len(values(name)) > 1]


def _rank(group: Group, metric: str) -> float:
    return rank(metric, group.scores[metric].mean) if metric in group.scores else -np.inf


def published_tables(groups: Sequence[Group]) -> list[ScoreTable]:
    """Returns the published tables in percent, with a row for each model, its best on dev sets."""
    tasks = {group.task for group in groups}
    models: dict[tuple, list[Group]] = {}
    for group in groups:
        source = tuple(group.flags.get(name) for name in _SOURCES)
        models.setdefault(source, []).append(group)
    tables = []
    for published in TABLES:
        if tasks & {column.task for column in published.columns}:
            header = ["system", *(column.name for column in published.columns)]
            rows = [
                [system, *(None if x is None else str(x) for x in scores)]
                for system, scores in published.rows
            ]
            rows += [_model_row(published, own) for own in models.values()]
            if published.average:
                header.append("average")
            shown = [row for row in rows if any(row[1:])]
            tables.append(ScoreTable(published.title, header, shown, 100, published.form))
    return tables


def _model_row(published: PublishedTable, groups: Sequence[Group]) -> list[str | Score | None]:
    """Returns the row of a model; of the groups of a task, the best on the dev set counts."""
    columns, chosen = published.columns, {}
    for task in {column.task for column in columns}:
        names = [x.metric for x in columns if x.task == task and x.metric.startswith("eval_")]

        def value(group: Group, names: Sequence[str] = names) -> float:
            ranks = [_rank(group, name) for name in names if name in group.scores]
            return sum(ranks) if ranks else -np.inf

        own = [group for group in groups if group.task == task]
        chosen[task] = max(own, key=value).scores if own else {}
    row = [chosen[column.task].get(column.metric) for column in columns]
    if published.average:
        row.append(Score(float(np.mean([score.mean for score in row]))) if all(row) else None)
    flags = groups[0].flags
    if recipe := flags.get("recipe"):
        return [f"{recipe} of {flags['teacher']}", *row]
    name = flags.get("init_checkpoint")
    if not name:
        name = f"{flags.get('preset') or flags.get('bert_config_file')}, from scratch"
    if features := flags.get("feature_based"):
        name += f", {features} as features"
    elif flags.get("freeze_encoder"):
        name += ", frozen"
    elif tasks := flags.get(TOGETHER):
        name += f", {tasks} at once"
    elif rank := flags.get("lora_rank"):
        name += f", LoRA of rank {rank}"
    if flags.get("label_type") == "similarity":
        name += ", cosines of vectors"
    return [name, *row]

"""Compares the fine-tuning runs in a folder with each other and with published results.

The published scores are in percent, with the digits of their papers. Source: BERT
(arXiv:1810.04805v2) tables 1, 2, 3, 4 and 7, with the systems it names. It rounds the test scores
of three taggers, which are from their own papers: ELMo (arXiv:1802.05365), CVT (arXiv:1809.08370,
multi-task) and Flair (Contextual String Embeddings for Sequence Labeling, COLING 2018). That of
TagLM is from arXiv:1705.00108.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.finetuning_options import EVAL_RESULTS_JSON, FineTuningOptions
from bert_tf.finetuning.multi_task import TOGETHER
from bert_tf.finetuning.registry import task_of_run
from bert_tf.finetuning.saved_run import DATA_CHECKSUMS, INIT_CHECKSUM
from bert_tf.finetuning.sweep import Score, ScoreTable, summarize
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

    A row is a system and its scores, None where there is none; with `average`, the last one is the
    mean of the others. `form` formats the scores of runs.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, Scores], ...]
    average: bool = False
    form: str = ".1f"


GLUE = PublishedTable(
    "GLUE. Published: test set, from GLUE's server. Runs: dev set",
    (
        Column("MNLI-m", "mnli", "eval_accuracy"),
        Column("MNLI-mm", "mnli", "eval_mismatched_accuracy"),
        Column("QQP F1", "qqp", "eval_f1"),
        Column("QNLI", "qnli", "eval_accuracy"),
        Column("SST-2", "sst2", "eval_accuracy"),
        Column("CoLA Matthews", "cola", "eval_matthews"),
        Column("STS-B Spearman", "stsb", "eval_spearman"),
        Column("MRPC F1", "mrpc", "eval_f1"),
        Column("RTE", "rte", "eval_accuracy"),
    ),
    (
        ("Pre-OpenAI SOTA", (80.6, 80.1, 66.1, 82.3, 93.2, 35.0, 81.0, 86.0, 61.7, 74.0)),
        ("BiLSTM+ELMo+Attn", (76.4, 76.1, 64.8, 79.8, 90.4, 36.0, 73.3, 84.9, 56.8, 71.0)),
        ("OpenAI GPT", (82.1, 81.4, 70.3, 87.4, 91.3, 45.4, 80.0, 82.3, 56.0, 75.1)),
        ("BERT-base", (84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4, 79.6)),
        ("BERT-large", (86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1, 82.1)),
    ),
    average=True,
)

SQUAD_1 = PublishedTable(
    "SQuAD 1.1. Leaderboard of December 10th, 2018. BERT's ensembles join 7 systems",
    (
        Column("dev EM", "squad", "eval_exact_match"),
        Column("dev F1", "squad", "eval_f1"),
        Column("test EM", "squad", "test_exact_match"),
        Column("test F1", "squad", "test_f1"),
    ),
    (
        ("human", (None, None, 82.3, 91.2)),
        ("nlnet, ensemble, first of the leaderboard", (None, None, 86.0, 91.7)),
        ("QANet, ensemble, second of the leaderboard", (None, None, 84.5, 90.5)),
        ("BiDAF+ELMo, single", (None, 85.6, None, 85.8)),
        ("R.M. Reader, ensemble", (81.2, 87.9, 82.3, 88.5)),
        ("BERT-base, single", (80.8, 88.5, None, None)),
        ("BERT-large, single", (84.1, 90.9, None, None)),
        ("BERT-large, ensemble", (85.8, 91.8, None, None)),
        ("BERT-large, single, with TriviaQA", (84.2, 91.1, 85.1, 91.8)),
        ("BERT-large, ensemble, with TriviaQA", (86.2, 92.2, 87.4, 93.2)),
    ),
)

SQUAD_2 = PublishedTable(
    "SQuAD 2.0, at the best threshold on the dev set. Leaderboard of December 10th, 2018",
    (
        Column("dev EM", "squad2", "eval_best_exact"),
        Column("dev F1", "squad2", "eval_best_f1"),
        Column("test EM", "squad2", "test_best_exact"),
        Column("test F1", "squad2", "test_best_f1"),
    ),
    (
        ("human", (86.3, 89.0, 86.9, 89.5)),
        ("MIR-MRC (F-Net), single, first of the leaderboard", (None, None, 74.8, 78.0)),
        ("nlnet, single, second of the leaderboard", (None, None, 74.2, 77.1)),
        ("unet, ensemble", (None, None, 71.4, 74.9)),
        ("SLQA+, single", (None, None, 71.4, 74.4)),
        ("BERT-large, single", (78.7, 81.9, 80.0, 83.1)),
    ),
)

SWAG = PublishedTable(
    "SWAG, accuracy",
    (Column("dev", "swag", "eval_accuracy"), Column("test", "swag", "test_accuracy")),
    (
        ("ESIM+GloVe", (51.9, 52.7)),
        ("ESIM+ELMo", (59.1, 59.2)),
        ("OpenAI GPT", (None, 78.0)),
        ("BERT-base", (81.6, None)),
        ("BERT-large", (86.6, 86.3)),
        ("human, expert", (None, 85.0)),
        ("human, 5 annotations", (None, 88.0)),
    ),
)

NER = PublishedTable(
    "CoNLL-2003 named entities, F1",
    (Column("dev", "ner", "eval_f1"), Column("test", "ner", "test_f1")),
    (
        ("TagLM", (None, 91.93)),
        ("ELMo", (95.7, 92.22)),
        ("CVT", (None, 92.61)),
        ("Flair", (None, 93.09)),
        ("BERT-large, fine-tuned", (96.6, 92.8)),
        ("BERT-base, fine-tuned", (96.4, 92.4)),
        ("BERT-base, embeddings as features", (91.0, None)),
        ("BERT-base, second-to-last layer as features", (95.6, None)),
        ("BERT-base, last layer as features", (94.9, None)),
        ("BERT-base, weighted sum of the last four layers", (95.9, None)),
        ("BERT-base, concatenation of the last four layers", (96.1, None)),
        ("BERT-base, weighted sum of all layers", (95.5, None)),
    ),
    form=".2f",
)

TABLES = (GLUE, SQUAD_1, SQUAD_2, SWAG, NER)


# Flags that name what a run was made from, and the checksums of their contents.
_INPUTS = {"init_checkpoint", "init_vocab_mapping", "bert_config_file", "vocab_file", "data_dir"}
_INPUTS |= {"preset", "train_file", "dev_file", "test_file"}
_CHECKSUMS = {DATA_CHECKSUMS, INIT_CHECKSUM}
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
    groups: dict[tuple, dict[Run, dict[str, float]]] = {}
    unfinished = []
    for run in sorted(_runs(folder), key=lambda run: run.path):
        results = run.read_json(EVAL_RESULTS_JSON, dict[str, float]) if run.finished else {}
        if results:
            key = sorted((name, str(x)) for name, x in run.flags.items() if name not in _VARYING)
            groups.setdefault(tuple(key), {})[run] = results
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
    hidden = _VARYING | _CHECKSUMS
    return [name for name in names if name not in hidden and len(values(name)) > 1]


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

"""Compares students with their teachers: size, quality and speed, beside published figures."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.checkpoint import open_checkpoint
from bert_tf.comparison.runs import Group, Score, Table, as_markdown, print_tables, read_groups
from bert_tf.compression.compression_options import COMPRESSION, ReportOptions
from bert_tf.compression.recipes import RECIPES, Published
from bert_tf.finetuning.runs.sweep import summarize
from bert_tf.models.task_model import make_encoder
from bert_tf.plots.compression import Compressed, compressed_models
from bert_tf.runs.run import Run
from bert_tf.training.reports import rank
from bert_tf.weights.checkpoint import load_weights
from tfrecords.progress import progress_bar, say
from tfrecords.writer import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Speed is measured with batches of this size and length, in so many rounds.
_BATCH, _LENGTH, _ROUNDS = 32, 128, 10


@dataclass(frozen=True)
class Student:
    """Students that were trained with the same flags except the seed.

    Attributes:
        name: the recipe, with the folder if several students have the same recipe.
        group: their runs.
        files: the `compression.json` of each.
    """

    name: str
    group: Group
    files: Sequence[Mapping[str, Any]]

    @property
    def recipe(self) -> str:
        return self.files[0]["recipe"]

    @property
    def teacher(self) -> str:
        return self.files[0]["teacher"].rstrip("/")

    @property
    def folder(self) -> str:
        """The run folder of one of the students."""
        return self.group.paths[0]

    @property
    def teacher_bytes(self) -> int:
        """The bytes of the teacher's weights."""
        return 4 * self.files[0]["teacher_parameters"]

    @property
    def bytes(self) -> float:
        """The mean bytes of the students' weights; after gzip if training zeroed weights."""
        return np.mean([file["student_bytes"] for file in self.files])

    @property
    def smaller(self) -> float:
        """How many times smaller the students are than the teacher, counted the same way."""
        return self.files[0].get("teacher_gzip_bytes", self.teacher_bytes) / self.bytes

    @property
    def metric(self) -> str:
        return self.files[0]["metric"].removeprefix("eval_")

    @property
    def values(self) -> tuple[float, Score]:
        """The metric of the teacher and of the students on the dev set."""
        # Not those of the last evaluation, which may have read other data.
        value = summarize([{"value": file["student_value"]} for file in self.files])["value"]
        return self.files[0]["teacher_value"], Score(value["mean"], value.get("deviation"))

    @property
    def kept(self) -> Score | None:
        """The share of the teacher's metric; None unless it is positive and higher is better."""
        before, after = self.values
        if rank(self.metric, before) <= 0:
            return None
        return Score(*(x if x is None else x / before for x in after))


def report(options: ReportOptions) -> None:
    """Prints and draws size, quality and speed of the students in a folder.

    Quality is the mean over the runs that differ in their seeds, with its standard deviation. The
    table goes to `compression.md`, and the picture to `compression.png`.
    """
    folder = options.report
    students, unfinished = read_students(folder)
    speed_ups = measure(students)
    found = tables(students, speed_ups)
    print_tables(found, unfinished)
    table, picture = (os.path.join(folder, f"compression.{end}") for end in ("md", "png"))
    atomic_write(table, as_markdown(found) + "\n")
    atomic_write(picture, _picture(students, speed_ups).png())
    print(f"\nWrote {table} and {picture}.")


def _picture(students: Sequence[Student], speed_ups: Sequence[float | None]) -> "Figure":
    models = [
        Compressed(student.name, student.smaller, *student.kept, faster=speed_up)
        for student, speed_up in zip(students, speed_ups, strict=True)
        if student.kept
    ]
    published = [
        Compressed(row.name, row.compression, row.quality, faster=row.speed_up)
        for recipe in dict.fromkeys(student.recipe for student in students)
        for row in RECIPES[recipe].published
    ]
    return compressed_models(models, published)


def read_students(folder: str) -> tuple[list[Student], list[str]]:
    """Reads the runs of compress in a folder and the folders in it.

    Returns:
        the students, ordered by task and teacher, and the folders of unfinished runs.
    """
    groups, unfinished = read_groups(folder)
    groups = [group for group in groups if "recipe" in group.flags]
    if not groups:
        raise ValueError(f"{folder} holds no finished runs of compress, only of run_finetuning")
    # Runs that were interrupted while the teacher was evaluated.
    lacking = [x for group in groups for x in group.paths if not _facts(x)]
    groups = [replace(x, paths=[y for y in x.paths if y not in lacking]) for x in groups]
    groups = [group for group in groups if group.paths]
    if not groups:
        raise ValueError(
            f"{folder} holds no finished runs of compress ({lacking[0]} lacks {COMPRESSION}): run "
            "the same compress command again"
        )
    unfinished += lacking
    students = [_student(group, groups) for group in groups]
    return sorted(students, key=lambda x: (x.group.task, x.teacher, x.values[0])), unfinished


def _facts(path: str) -> dict[str, Any]:
    return Run(path).read_json(COMPRESSION)


def _student(group: Group, groups: Sequence[Group]) -> Student:
    recipe, key = group.flags["recipe"], ("recipe", "teacher", "task")
    same = [g for g in groups if [g.flags[k] for k in key] == [group.flags[k] for k in key]]
    name = recipe if len(same) == 1 else f"{recipe} ({group.folder})"
    return Student(name, group, [_facts(path) for path in group.paths])


def measure(students: Sequence[Student]) -> list[float | None]:
    """Measures how many times as fast as its teacher each student is.

    Students whose teacher cannot be read get None, and a warning.
    """
    encoders = {}
    for teacher in dict.fromkeys(student.teacher for student in students):
        try:
            encoders[teacher] = _load_encoder(teacher)
        except (ValueError, OSError) as error:
            say(f"WARNING: no speed for students of {teacher}: {error}")
    measured = [student for student in students if student.teacher in encoders]
    encoders |= {student.folder: _load_encoder(student.folder) for student in measured}
    speeds = dict(zip(encoders, sequences_per_second(list(encoders.values())), strict=True))
    return [
        speeds[student.folder] / speeds[student.teacher] if student in measured else None
        for student in students
    ]


def _load_encoder(folder: str) -> keras.Model:
    checkpoint = open_checkpoint(folder, any_encoder=True)
    encoder = make_encoder(checkpoint.spec.config)
    # The values of the pooler do not affect the speed.
    load_weights(checkpoint.path, checkpoint.tensors, encoder.weights, optional_parts=("pooler",))
    return encoder


def sequences_per_second(encoders: Sequence[keras.Model]) -> list[float]:
    """Measures inference with batches of 32 sequences of 128 tokens, without padding.

    Encoders with fewer positions read shorter sequences. The encoders take turns, so that other
    work on the machine slows all of them. The fastest of ten turns counts, as in Python's timeit,
    because other work can only slow a turn down.
    """
    calls = [_call(encoder) for encoder in encoders]
    seconds = np.zeros([_ROUNDS, len(calls)])
    with progress_bar(total=_ROUNDS, desc="Measuring speed", unit="round") as progress:
        for turns in seconds:
            for index, call in enumerate(calls):
                start = time.perf_counter()
                call()
                turns[index] = time.perf_counter() - start
            progress.update()
    return list(_BATCH / np.min(seconds, axis=0))


def _call(encoder: keras.Model) -> Callable[[], np.ndarray]:
    config = encoder.config
    shape = [_BATCH, min(_LENGTH, config.max_position_embeddings)]
    ids = tf.random.stateless_uniform(shape, [0, 0], 0, config.vocab_size, tf.int32)
    inputs = {
        "input_word_ids": ids,
        "input_mask": tf.ones_like(ids),
        "input_type_ids": tf.zeros_like(ids),
    }
    function = tf.function(lambda: encoder(inputs, training=False)["pooled_output"])
    # Without it, TensorFlow would warn that many models are many traces of one function.
    concrete = function.get_concrete_function()
    return lambda: concrete().numpy()


def tables(students: Sequence[Student], speed_ups: Sequence[float | None]) -> list[Table]:
    """Returns a table for each task and teacher."""
    found: dict[str, Table] = {}
    for student, speed_up in zip(students, speed_ups, strict=True):
        title = f"{student.group.task}, students of {student.teacher}"
        header = ["recipe", "runs", "MB", student.metric, "times smaller", "kept", "times faster"]
        header += ["published", "smaller", "kept", "faster"]
        rows = found.setdefault(title, Table(title, header, [])).rows
        megabytes, value = f"{student.teacher_bytes / 1e6:.1f}", f"{student.values[0]:.4f}"
        teacher = ["teacher", "1", megabytes, value, "1.00", "100.0%", "1.00", *4 * ["-"]]
        # One for each dev set that its students were compared on.
        if teacher not in rows:
            rows.append(teacher)
        rows.append(_row(student, speed_up))
    return list(found.values())


def _row(student: Student, speed_up: float | None) -> list[str]:
    recipe, megabytes = RECIPES[student.recipe], f"{student.bytes / 1e6:.1f}"
    cells = [student.name, str(student.group.size), megabytes + " (gzip)" * recipe.zeroes_weights]
    cells += [student.values[1].text(1, 4), f"{student.smaller:.2f}"]
    cells += [f"{student.kept.text(100, 1)}%" if student.kept else "-"]
    cells.append("-" if speed_up is None else f"{speed_up:.2f}")
    rows = [_published(row) for row in recipe.published] or [4 * ["-"]]
    return cells + [" / ".join(column) for column in zip(*rows, strict=True)]


def _published(row: Published) -> list[str]:
    faster = f"{row.speed_up:g}" if row.speed_up else "-"
    return [row.name, f"{row.compression:g}", f"{row.quality:.0%}", faster]

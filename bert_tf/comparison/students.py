"""Compares students with their teachers: size, quality and speed, beside published figures."""

import os
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.output_files import atomic_write, check_output_files
from bert_tf.base.progress import progress_bar, say
from bert_tf.base.published import read_published
from bert_tf.comparison.comparing import Group, print_tables, read_groups
from bert_tf.compression.compression_options import ReportOptions
from bert_tf.compression.run_files import Outcome
from bert_tf.finetuning.sweep import Score, ScoreTable
from bert_tf.inference.models import load_model
from bert_tf.models.task_model import make_encoder
from bert_tf.plots.compression import Compressed, compressed_models
from bert_tf.weights.opening import open_checkpoint

# Speed is measured with batches of this size and length, in so many rounds.
_BATCH, _LENGTH, _ROUNDS = 32, 128, 10


class Published(NamedTuple):
    """A row of the table of compression studies in a survey.

    The model is `compression` times smaller than BERT-base, keeps `quality` of its scores on
    `tasks`, and is `speed_up` times faster, if that is stated. `smaller_than` and `faster_than`
    name another model that a figure is relative to. `layers` is the architecture with the number of
    its layers.
    """

    name: str
    compression: float
    quality: float
    layers: str
    tasks: str
    speed_up: float | None = None
    smaller_than: str = ""
    faster_than: str = ""

    @property
    def cells(self) -> list[str]:
        """The row as text: name, size, quality, speed, layers and tasks."""

        def text(value: float | None, than: str) -> str:
            return "-" if value is None else f"{value:g}" + (f" ({than})" if than else "")

        size = text(self.compression, self.smaller_than)
        speed = text(self.speed_up, self.faster_than)
        return [self.name, size, f"{self.quality:.0%}", speed, self.layers, self.tasks]


PUBLISHED = {
    recipe: [Published(**row) for row in rows]
    for recipe, rows in read_published("compression").items()
}
"""The rows by recipe."""


@dataclass(frozen=True)
class Student:
    """Students that were trained with the same flags except the seed.

    The outcome is that of the first of them, with the mean of their bytes; `value` is their metric
    on the dev set, since the last evaluation may have read other data.
    """

    name: str
    group: Group
    outcome: Outcome
    value: Score

    @property
    def teacher(self) -> str:
        return self.outcome.teacher.rstrip("/")

    @property
    def folder(self) -> str:
        """The run folder of one of the students."""
        return self.group.paths[0]

    @property
    def kept(self) -> Score | None:
        """The share of the teacher's metric; None unless it is positive and higher is better."""
        if not self.outcome.has_share:
            return None
        return Score(*(x if x is None else x / self.outcome.teacher_value for x in self.value))


def report(options: ReportOptions) -> None:
    """Prints and draws size, quality and speed of the students in a folder.

    Quality is the mean over the runs that differ in their seeds, with its standard deviation. The
    table goes to `compression.md`, and the picture to `compression.png`.
    """
    folder = options.report
    table, picture = (os.path.join(folder, f"compression.{end}") for end in ("md", "png"))
    check_output_files([table, picture], [], options.overwrite, "report")
    students, unfinished = read_students(folder)
    speed_ups = measure_speed_ups(students)
    found = tables(students, speed_ups)
    print_tables(found, unfinished)
    models = [
        Compressed(student.name, student.outcome.smaller, *student.kept, faster=speed_up)
        for student, speed_up in zip(students, speed_ups, strict=True)
        if student.kept
    ]
    published = [
        Compressed(row.name, row.compression, row.quality, faster=row.speed_up)
        for recipe in dict.fromkeys(student.outcome.recipe for student in students)
        for row in PUBLISHED.get(recipe, ())
    ]
    drawn = compressed_models(models, published).png()
    atomic_write(table, "\n\n".join(x.markdown() for x in found) + "\n", options.overwrite)
    atomic_write(picture, drawn, options.overwrite)
    print(f"\nWrote {table} and {picture}.")


def read_students(folder: str) -> tuple[list[Student], list[str]]:
    """Returns the students in a folder, by task and teacher, and the folders of unfinished runs."""
    groups, unfinished = read_groups(folder)
    groups = [group for group in groups if "recipe" in group.flags]
    outcomes = {path: Outcome.read(path) for group in groups for path in group.paths}
    # Runs that were interrupted while the teacher was evaluated.
    lacking = [path for path, outcome in outcomes.items() if not outcome]
    groups = [replace(x, paths=[y for y in x.paths if y not in lacking]) for x in groups]
    groups = [group for group in groups if group.paths]
    if not groups:
        unfinished = f", only unfinished ones, such as {lacking[0]}" if lacking else ""
        raise ValueError(f"{folder} holds no finished runs of compress{unfinished}")
    keys = [tuple(group.flags[x] for x in ("recipe", "teacher", "task")) for group in groups]
    students = []
    for group, key in zip(groups, keys, strict=True):
        # With the folder if several students have the same recipe.
        name = key[0] if keys.count(key) == 1 else f"{key[0]} ({group.folder})"
        found = [outcomes[path] for path in group.paths]
        size = float(np.mean([outcome.student_bytes for outcome in found]))
        value = Score.of([outcome.student_value for outcome in found])
        students.append(Student(name, group, replace(found[0], student_bytes=size), value))
    order = sorted(students, key=lambda x: (x.group.task, x.teacher, x.outcome.teacher_value))
    return order, unfinished + lacking


def measure_speed_ups(students: Sequence[Student]) -> list[float | None]:
    """Measures how many times as fast as its teacher, if that can be read, each student is."""
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
    # The values of the pooler do not affect the speed.
    return load_model(open_checkpoint(folder, any_encoder=True), make_encoder, ["encoder"])


def sequences_per_second(encoders: Sequence[keras.Model]) -> list[float]:
    """Measures inference with batches of 32 sequences of 128 tokens, without padding.

    Encoders with fewer positions read shorter sequences. The encoders take turns, so that other
    work on the machine slows all of them. The fastest of ten turns counts, as in Python's timeit,
    because other work can only slow a turn down.
    """

    def make_call(encoder: keras.Model) -> Callable[[], np.ndarray]:
        config = encoder.config
        shape = [_BATCH, min(_LENGTH, config.max_position_embeddings)]
        ids = tf.random.stateless_uniform(shape, [0, 0], 0, config.vocab_size, tf.int32)
        ones, zeros = tf.ones_like(ids), tf.zeros_like(ids)
        inputs = {"input_word_ids": ids, "input_mask": ones, "input_type_ids": zeros}
        function = tf.function(lambda: encoder(inputs, training=False)["pooled_output"])
        # Without it, TensorFlow would warn that many models are many traces of one function.
        concrete = function.get_concrete_function()
        return lambda: concrete().numpy()

    calls = [make_call(encoder) for encoder in encoders]
    seconds = np.zeros([_ROUNDS, len(calls)])
    shown = dict(total=_ROUNDS, desc="Measuring speed", unit="round")
    for turns in progress_bar(iterable=seconds, **shown):
        turns[:] = [timeit.timeit(call, number=1) for call in calls]
    return list(_BATCH / np.min(seconds, axis=0))


def tables(students: Sequence[Student], speed_ups: Sequence[float | None]) -> list[ScoreTable]:
    """Returns a table for each task and teacher."""
    found: dict[str, ScoreTable] = {}
    for student, speed_up in zip(students, speed_ups, strict=True):
        outcome = student.outcome
        metric = outcome.metric.removeprefix("eval_")
        title = f"{student.group.task}, students of {student.teacher}"
        header = ["recipe", "runs", "MB", metric, "times smaller", "kept", "times faster"]
        header += ["published", "smaller", "kept", "faster", "layers", "tasks"]
        rows = found.setdefault(title, ScoreTable(title, header, [])).rows
        size, value = f"{outcome.teacher_bytes / 1e6:.1f}", f"{outcome.teacher_value:.4f}"
        teacher = ["teacher", "1", size, value, "1.00", "100.0%", "1.00", *6 * ["-"]]
        # One for each dev set that its students were compared on.
        if teacher not in rows:
            rows.append(teacher)
        zipped = " (gzip)" if outcome.teacher_gzip_bytes else ""
        published = [row.cells for row in PUBLISHED.get(outcome.recipe, ())] or [6 * ["-"]]
        rows.append(
            [
                student.name,
                str(student.group.size),
                f"{outcome.student_bytes / 1e6:.1f}{zipped}",
                student.value,
                f"{outcome.smaller:.2f}",
                f"{student.kept.text(100, '.1f')}%" if student.kept else None,
                f"{speed_up:.2f}" if speed_up else None,
                *(" / ".join(column) for column in zip(*published, strict=True)),
            ]
        )
    return list(found.values())

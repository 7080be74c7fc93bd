"""The comparison of students in size, quality and speed."""

import dataclasses
from unittest import mock

import numpy as np
import pytest

from bert_tf.comparison import students as reporting
from bert_tf.compression.compression_options import CompressionOptions, ReportOptions
from bert_tf.compression.run_files import Outcome
from bert_tf.config import BertConfig
from bert_tf.models.encoder import BertEncoder
from bert_tf.plots.compression import compressed_models


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def add_student(add_run):
    """A function that writes the files of a run of compress that the comparison reads."""

    def add(folder, value, recipe, student_bytes=500, facts=None, **flags):
        flags = {"init_checkpoint": None, "recipe": recipe, "teacher": "big"} | flags
        # Of another evaluation, which does not count.
        path = add_run(folder, {"eval_accuracy": 0.1}, kind=CompressionOptions, **flags)
        sizes = 500, 125, student_bytes
        outcome = Outcome(recipe, "big/", *sizes, "eval_accuracy", 0.8, value)
        dataclasses.replace(outcome, **facts or {}).write(path)

    return add


def test_the_table(add_student, runs, capsys, monkeypatch):
    """Oracles: 0.7 ± sqrt(2) / 100 of 0.8, and ratios of bytes counted alike, by hand; the survey.

    The picture is a PNG file.
    """
    for seed, value in enumerate((0.69, 0.71)):
        add_student(f"pkd/seed-{seed}", value, "pkd6", 400 + 200 * seed, random_seed=seed)
    add_student("albert", 0.4, "albert", init_checkpoint="lite", student_bytes=1000)
    add_student("zeros", 0.8, "weights", 1000, facts={"teacher_gzip_bytes": 1500})
    speeds = {"albert": 15.0, "pkd/seed-0": 20.0, "zeros": 10.0}
    speeds = {"big": 10.0} | {str(runs / name): speeds[name] for name in speeds}
    monkeypatch.setattr(reporting, "_load_encoder", lambda folder: folder)
    monkeypatch.setattr(reporting, "sequences_per_second", lambda x: [*map(speeds.get, x)])
    drawing = mock.Mock(wraps=compressed_models)
    monkeypatch.setattr(reporting, "compressed_models", drawing)
    for end in ("md", "png"):
        (runs / f"compression.{end}").write_text("mine")
        with pytest.raises(FileExistsError, match=f"compression.{end} exists: .*--overwrite"):
            reporting.report(ReportOptions(report=str(runs)))
        (runs / f"compression.{end}").unlink()
    reporting.report(ReportOptions(report=str(runs), overwrite=True))
    title, _, *rows = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert title == "sst2, students of big"
    assert [row.split() for row in rows] == [
        "teacher 1 0.0 0.8000 1.00 100.0% 1.00 - - - -".split(),
        "albert 1 0.0 0.4000 2.00 50.0% 1.50 ALBERT-base / ALBERT-xxlarge 9 / 0.47 97% / 107% "
        "5.6 / 0.3".split(),
        "pkd6 2 0.0 0.7000 ± 0.0141 4.00 87.5 ± 1.8% 2.00 BERT6-PKD 1.6 97% 1.9".split(),
        "weights 1 0.0 (gzip) 0.8000 1.50 100.0% 1.00 - - - -".split(),
    ]
    ours, published = drawing.call_args.args
    assert ours[0] == ("albert", 2.0, 0.5, None, 1.5)
    assert ours[1] == ("pkd6", 4.0, pytest.approx(0.875), pytest.approx(0.01768, rel=1e-3), 2.0)
    assert [model.name for model in published] == ["ALBERT-base", "ALBERT-xxlarge", "BERT6-PKD"]
    assert published[2] == ("BERT6-PKD", 1.6, 0.97, None, 1.9)
    assert "| pkd6 | 2 | 0.0 |" in (runs / "compression.md").read_text()
    assert (runs / "compression.png").read_bytes().startswith(b"\x89PNG")


def test_students_of_one_recipe_have_the_names_of_their_folders(add_student, runs):
    """Oracle: the folders."""
    add_student("slow", 0.5, "pd", learning_rate=1e-5)
    add_student("fast", 0.5, "pd", learning_rate=1e-4)
    students, unfinished = reporting.read_students(str(runs))
    assert [student.name for student in students] == ["pd (fast)", "pd (slow)"] and not unfinished
    # Of a correlation that is not positive, no share can be kept.
    outcome = dataclasses.replace(students[0].outcome, teacher_value=0.0)
    assert dataclasses.replace(students[0], outcome=outcome).kept is None
    (runs / "fast" / "compression.json").unlink()
    students, unfinished = reporting.read_students(str(runs))
    assert [student.name for student in students] == ["pd"]
    assert unfinished == [f"{runs}/fast"]
    (runs / "slow" / "compression.json").unlink()
    with pytest.raises(ValueError, match="no finished runs of compress, only unfinished .*/fast$"):
        reporting.read_students(str(runs))


def test_other_seeds_of_an_interrupted_run_count(add_student, runs):
    """Oracle: the mean of the two finished runs of three."""
    for seed in range(3):
        add_student(f"pd/seed-{seed}", 0.4 + seed / 10, "pd", random_seed=seed)
    (runs / "pd/seed-2/compression.json").unlink()
    (student,), unfinished = reporting.read_students(str(runs))
    assert (student.group.size, student.value.mean) == (2, pytest.approx(0.45))
    assert unfinished == [f"{runs}/pd/seed-2"]


def test_students_of_one_teacher_on_two_dev_sets(add_student, runs):
    """Oracle: a row of the teacher before the students of each dev set."""
    add_student("a", 0.4, "pd")
    add_student("b", 0.3, "theseus", facts={"teacher_value": 0.6})
    add_student("c", 0.5, "internal")
    students, _ = reporting.read_students(str(runs))
    (table,) = reporting.tables(students, [None] * 3)
    assert [(row[0], row[3], row[5], row[6]) for row in table.cells()[1:]] == [
        ("teacher", "0.6000", "100.0%", "1.00"),
        ("theseus", "0.3000", "50.0%", "-"),
        ("teacher", "0.8000", "100.0%", "1.00"),
        ("pd", "0.4000", "50.0%", "-"),
        ("internal", "0.5000", "62.5%", "-"),
    ]


def test_a_teacher_that_is_gone_has_no_speed(add_student, runs, monkeypatch, capsys):
    """Oracle: the warning, and the students of the other teacher, twice as fast."""

    def load(folder):
        if folder == "big":
            raise FileNotFoundError("big is gone")
        return 3.0 if folder == "other" else 6.0

    monkeypatch.setattr(reporting, "_load_encoder", load)
    monkeypatch.setattr(reporting, "sequences_per_second", list)
    add_student("a", 0.4, "pd")
    add_student("b", 0.3, "pd", facts={"teacher": "other"}, learning_rate=1e-5)
    students, _ = reporting.read_students(str(runs))
    assert reporting.measure_speed_ups(students) == [None, 2.0]
    assert "WARNING: no speed for students of big: big is gone" in capsys.readouterr().out


def test_speeds_are_those_of_the_fastest_turns(monkeypatch):
    """Oracle: the shortest of the durations that a clock made of them gives, by hand."""
    # Two models, ten turns each; the first is slow, because it traces.
    rounds = [[90, 80], [3, 4], [2, 8], [9, 16], [2, 64], [3, 4], *4 * [[5, 5]]]
    times = iter(np.array(rounds).ravel())
    monkeypatch.setattr("timeit.timeit", lambda call, number: call() is not None and next(times))
    monkeypatch.setattr(reporting, "progress_bar", lambda iterable, **_: iterable)
    encoder = BertEncoder(BertConfig(13, 16, 3, 2, 32, max_position_embeddings=16))
    assert reporting.sequences_per_second([encoder, encoder]) == [32 / 2, 32 / 4]

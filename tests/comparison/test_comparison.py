"""Runs and students, compared with each other and with published results."""

import dataclasses
import json
import pathlib
from unittest import mock

import numpy as np
import pytest
from support import one_line

from bert_tf.base.output_files import atomic_write, make_folder
from bert_tf.comparison import students as reporting
from bert_tf.comparison.comparing import TABLES
from bert_tf.comparison.students import PUBLISHED
from bert_tf.compression.compression_options import CompressionOptions, ReportOptions
from bert_tf.compression.run_files import Outcome
from bert_tf.config import BertConfig, Head
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.plots.compression import compressed_models
from bert_tf.results import Options, run
from bert_tf.runs.run import FINISHED, FLAGS, Run

GLUE, SQUAD_1, SQUAD_2, SWAG, NER = TABLES


@pytest.fixture
def add_run(tmp_path):
    def add(folder, results, task="sst2", finished=True, kind=FineTuningOptions, **flags) -> str:
        path = f"{tmp_path}/runs/{folder}"
        flags = {"do_train": True, "init_checkpoint": "small"} | flags
        options = kind(task=task, output_dir=path, **flags)
        make_folder(path)
        Run(path).write_head(Head("classifier", ("a", "b")))
        values = dataclasses.asdict(options) | {FINISHED: finished}
        atomic_write(f"{path}/{FLAGS}", json.dumps(values))
        if results is not None:
            results = {"global_step": 9} | results
            atomic_write(f"{path}/eval_results.json", json.dumps(results))
        return path

    return add


@pytest.fixture
def compare(tmp_path, capsys):
    def compare(folder="runs", **flags) -> str:
        run(Options(folder=str(tmp_path / folder), **flags))
        return capsys.readouterr().out

    return compare


def test_the_published_figures_are_consistent():
    """Oracles: the paper's averages are means, up to rounding (70.94 as 71.0 for ELMo+Attn).

    The differences are those of its abstract and sections 4.4 and 5.3. The docs have the table of
    compressed models, whose figures are relative to BERT-base, with four exceptions.
    """
    for system, (*scores, average) in GLUE.rows:
        assert np.mean(scores) == pytest.approx(average, abs=0.07), system
    first = "first of the leaderboard"
    for table, column, ours, other, gain in (
        (SQUAD_1, 3, "BERT-large, ensemble, with TriviaQA", f"nlnet, ensemble, {first}", 1.5),
        (SQUAD_2, 3, "BERT-large, single", f"MIR-MRC (F-Net), single, {first}", 5.1),
        (SWAG, 1, "BERT-large", "ESIM+ELMo", 27.1),
        (SWAG, 1, "BERT-large", "OpenAI GPT", 8.3),
        (NER, 0, "BERT-base, fine-tuned", "BERT-base, concatenation of the last four layers", 0.3),
    ):
        scores = dict(table.rows)
        assert scores[ours][column] - scores[other][column] == pytest.approx(gain), ours
    page = (pathlib.Path(__file__).parents[2] / "docs/recipes.md").read_text()
    rows = [[f"`{name}`", *row.cells] for name, found in PUBLISHED.items() for row in found]
    assert len(rows) == 16 and all("| " + " | ".join(row) + " |" in page for row in rows)
    assert [row[i] for row in rows for i in (2, 4) if "(" in row[i]] == [
        *("2.5 (BERT-large)", "6 (mBERT)", "27 (mBERT)", "434 (BERT-large)")
    ]
    for table in TABLES:
        width = len(table.columns) + table.average
        assert all(len(scores) == width for _, scores in table.rows), table.title


def test_the_tables(add_run, compare, tmp_path):
    """Oracle: means 0.91 and 0.93 and deviations sqrt(2) / 100 by hand; the files as expected.

    Links add no runs.
    """
    for seed, (slow, fast) in enumerate([(0.9, 0.92), (0.92, 0.94)], start=1):
        results = {"eval_accuracy": slow, "eval_loss": 0.5}
        add_run(f"sst2/slow/seed-{seed}", results, random_seed=seed)
        add_run(f"sst2/fast/{seed}", {"eval_accuracy": fast}, random_seed=seed, learning_rate=1e-3)
    add_run("scratch", {"eval_accuracy": 0.8}, init_checkpoint=None, preset="tiny")
    # The results of an unfinished run are not read.
    add_run("killed", {"eval_accuracy": None}, finished=False)
    add_run("mine", {"eval_x": 0.5}, task="tickets", freeze_encoder=True)
    for name, target in (("best", "scratch"), ("all", "."), ("sst2/a", "slow/seed-1"), ("no", "x")):
        (tmp_path / "runs" / name).symlink_to(target)
    (tmp_path / "results.md").write_text("mine")
    with pytest.raises(FileExistsError, match="results.md exists: .*--overwrite"):
        compare(output_file=f"{tmp_path}/results.md")
    assert (tmp_path / "results.md").read_text() == "mine"
    with pytest.raises(ValueError, match="eval_results.txt is an input file too"):
        compare(output_file=f"{tmp_path}/mine/eval_results.txt", overwrite=True)
    printed = compare(output_file=f"{tmp_path}/results.md", overwrite=True)
    tables = printed.split("\n\n")
    assert [table.splitlines()[0] for table in tables[:2]] == ["tickets", "sst2"]
    rows = [line.split() for line in tables[1].splitlines()[1:]]
    assert rows == [
        ["folder", "init_checkpoint", "preset", "learning_rate", "runs", "eval_accuracy"],
        ["sst2/fast", "small", "None", "0.001", "2", "0.9300", "±", "0.0141"],
        ["sst2/slow", "small", "None", "5e-05", "2", "0.9100", "±", "0.0141"],
        ["scratch", "None", "tiny", "5e-05", "1", "0.8000"],
    ]
    published = tables[2].splitlines()
    assert published[0].startswith("GLUE. Published: test set")
    expected = "BERT-large 86.7 85.9 72.1 92.7 94.9 60.5 86.5 89.3 70.1 82.1"
    assert published[6].split() == expected.split()
    assert published[7].split() == "tiny, from scratch - - - - 80.0 - - - - -".split()
    assert published[8].split() == "small - - - - 93.0 ± 1.4 - - - - -".split()
    assert len(published) == 9
    assert f"unfinished: {tmp_path}/runs/killed.\n" in printed
    lines = (tmp_path / "results.md").read_text().splitlines()
    assert "| sst2/slow | small | None | 5e-05 | 2 | 0.9100 ± 0.0141 |" in lines


@pytest.mark.parametrize("folder", [".", "./", "..//runs/.", "{tmp_path}/runs/", "../link"])
def test_a_folder_has_many_names(add_run, tmp_path, monkeypatch, capsys, folder):
    """Oracle: the table of the folder by its full name."""
    for seed, name in enumerate(["a", "b", "deep/c", "deep/d"]):
        flags = dict(random_seed=seed, learning_rate=1e-3 if "deep" in name else 1e-4)
        add_run(name, {"eval_accuracy": seed / 4}, **flags)
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    monkeypatch.chdir(tmp_path / "runs")
    run(Options(folder=f"{tmp_path}/runs"))
    expected = capsys.readouterr().out
    assert [line.split()[0] for line in expected.splitlines()[2:4]] == ["deep", "."]
    run(Options(folder=folder.format(tmp_path=tmp_path)))
    assert capsys.readouterr().out == expected
    monkeypatch.chdir(tmp_path / "runs" / "deep" / "c")
    run(Options(folder="."))
    assert capsys.readouterr().out.splitlines()[2].split()[:2] == [".", "1"]


def test_seeds_that_draw_their_training_examples_are_one_group(add_run, compare):
    """Oracle: by hand; without --num_train_examples, other training sets are other groups."""
    for count in (None, 9):
        for seed in (1, 2):
            flags = dict(random_seed=seed, num_train_examples=count)
            run = Run(add_run(f"{count}/{seed}", {"eval_accuracy": seed / 4}, **flags))
            run.record_made_from([{"name": "the train set", "crc32": seed}])
    rows = [line.split() for line in compare().splitlines()[2:5]]
    assert [row[0] for row in rows] == ["None/2", "9", "None/1"]
    assert rows[1][1:4] == ["9", "2", "0.3750"]


def test_the_average_of_a_model_with_all_tasks(add_run, compare):
    """Oracle: nine times 50 %; the worse of two settings of one task does not count."""
    for task in dict.fromkeys(column.task for column in GLUE.columns):
        own = [column.metric for column in GLUE.columns if column.task == task]
        add_run(task, dict.fromkeys(own, 0.5), task=task)
        add_run(f"{task}-worse", dict.fromkeys(own, 0.4), task=task, num_train_epochs=1.0)
    row = compare().rstrip().splitlines()[-1]
    assert row.split() == ["small", *["50.0"] * 10]


def test_the_best_setting_is_chosen_by_the_columns_of_the_task(add_run, compare):
    """Oracle: of CoLA, the table has the Matthews correlation alone."""
    for folder, accuracy, matthews, rate in (("a", 0.8, 0.6, 1e-4), ("b", 0.9, 0.55, 1e-3)):
        results = {"eval_accuracy": accuracy, "eval_matthews": matthews}
        add_run(folder, results, task="cola", learning_rate=rate)
    assert "60.0" in compare().rstrip().splitlines()[-1].split()
    # A run without metrics of the dev set is not better than one whose metric is negative.
    for folder, results, rate in (("c", {"eval_matthews": -0.1}, 1e-5), ("d", {}, 1e-6)):
        add_run(f"more/{folder}", results, task="cola", learning_rate=rate)
    assert "-10.0" in compare("runs/more").rstrip().splitlines()[-1].split()


def test_features_of_an_encoder_are_a_model_of_their_own(add_run, compare):
    """Oracle: a row for each of both approaches, as in table 7 of the paper."""
    for folder, f1, flags in (("tuned", 0.9, {}), ("read", 0.7, {"feature_based": "last"})):
        results = {"eval_accuracy": 0.5, "eval_f1": f1, "test_f1": f1}
        add_run(folder, results, task="ner", **flags)
    lines = compare().rstrip().splitlines()
    # Published scores keep their digits.
    assert ["ELMo", "95.7", "92.22"] in [line.split() for line in lines]
    rows = [line.split() for line in lines[-2:]]
    assert rows == ["small, last as features 70.00 70.00".split(), ["small", "90.00", "90.00"]]


def test_students_show_the_flags_in_which_they_differ(add_run, compare):
    """Oracle: the flags; a run of run_finetuning has no --sparsity."""
    for folder, flags in (("a", {"sparsity": 0.2}), ("b", {"sparsity": 0.6})):
        flags |= {"recipe": "weights", "teacher": "c", "init_checkpoint": None}
        add_run(folder, {"eval_accuracy": 0.5}, kind=CompressionOptions, **flags)
    add_run("c", {"eval_accuracy": 0.7}, init_checkpoint=None)
    lines = [line.split() for line in compare().splitlines()]
    header = next(line for line in lines if line[:1] == ["folder"])
    assert header == "folder recipe teacher sparsity runs eval_accuracy".split()
    row = dict(zip(header, lines[lines.index(header) + 2], strict=True))
    assert (row["folder"], row["recipe"], row["sparsity"]) == ("a", "weights", "0.2")


def test_bad_folders_are_one_clear_line(add_run, compare, tmp_path):
    """Oracle: the message."""
    with pytest.raises(ValueError, match="results.doc: end it with .md or .txt"):
        Options(folder="runs", output_file="results.doc")
    with pytest.raises(ValueError, match="nowhere holds no finished runs of run_finetuning$"):
        compare("nowhere")
    # The results of an unfinished run are not read.
    add_run("killed", {"eval_accuracy": None}, finished=False)
    with pytest.raises(ValueError, match="only unfinished ones, such as .*/runs/killed"):
        compare()
    (tmp_path / "runs/edited").mkdir()
    atomic_write(f"{tmp_path}/runs/edited/{FLAGS}", '{"finished": true}')
    with pytest.raises(ValueError, match="only unfinished ones, such as .*/runs/killed"):
        compare()


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def add_student(add_run):
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
        "teacher 1 0.0 0.8000 1.00 100.0% 1.00 - - - - - -".split(),
        "albert 1 0.0 0.4000 2.00 50.0% 1.50 ALBERT-base / ALBERT-xxlarge 9 / 0.47 97% / 107% "
        "5.6 / 0.3 BERT12 / BERT12 MNLI, SST-2 / MNLI, SST-2".split(),
        "pkd6 2 0.0 0.7000 ± 0.0141 4.00 87.5 ± 1.8% 2.00 BERT6-PKD 1.6 97% 1.9 BERT6 GLUE "
        "without WNLI, CoLA, STS-B".split(),
        "weights 1 0.0 (gzip) 0.8000 1.50 100.0% 1.00 - - - - - -".split(),
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


def test_a_damaged_record_is_named(add_student, runs):
    """Oracle: the file, and the value of another type."""
    add_student("a", 0.4, "pd")
    path = runs / "a" / "compression.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"student_bytes": "1"}))
    with one_line(f"{path}.*student_bytes is '1'"):
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

"""The comparison of runs with each other and with published results."""

import numpy as np
import pytest
from support import edit_json

from bert_tf.base.output_files import atomic_write
from bert_tf.comparison.results import GLUE, TABLES
from bert_tf.compression.compression_options import CompressionOptions
from bert_tf.results import Options, run
from bert_tf.runs.run import FLAGS


@pytest.fixture
def compare(tmp_path, capsys):
    """A function that compares the runs in a folder; returns what it prints."""

    def compare(folder="runs", **flags) -> str:
        run(Options(folder=str(tmp_path / folder), **flags))
        return capsys.readouterr().out

    return compare


def test_the_published_figures_are_consistent():
    """Oracle: the paper's averages are the means of the other figures, up to rounding.

    Those of BiLSTM+ELMo+Attn have a mean of 70.94, which the paper rounds to 71.0.
    """
    for system, (*scores, average) in GLUE.rows:
        assert np.mean(scores) == pytest.approx(average, abs=0.07), system
    for table in TABLES:
        width = len(table.columns) + table.average
        assert all(len(scores) == width for _, scores in table.rows), table.title


def test_the_tables(add_run, compare, tmp_path):
    """Oracle: means 0.91 and 0.93 and deviations sqrt(2) / 100 by hand; the files as expected."""
    for seed, (slow, fast) in enumerate([(0.9, 0.92), (0.92, 0.94)], start=1):
        results = {"eval_accuracy": slow, "eval_loss": 0.5}
        add_run(f"sst2/slow/seed-{seed}", results, random_seed=seed)
        # The seed may choose what is held out.
        edit_json(tmp_path / f"runs/sst2/slow/seed-{seed}" / FLAGS, data_checksums={"dev": seed})
        add_run(f"sst2/fast/{seed}", {"eval_accuracy": fast}, random_seed=seed, learning_rate=1e-3)
    add_run("scratch", {"eval_accuracy": 0.8}, init_checkpoint=None, preset="tiny")
    # The results of an unfinished run are not read.
    add_run("killed", {"eval_accuracy": None}, finished=False)
    add_run("mine", {"eval_x": 0.5}, task="tickets", freeze_encoder=True)
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
    rows = [line.split() for line in compare().rstrip().splitlines()[-2:]]
    assert rows == ["small, last as features 70.0 70.0".split(), ["small", "90.0", "90.0"]]


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

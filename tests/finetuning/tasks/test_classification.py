"""Classes, several classes at once, and numbers: scores, files and exported functions, by hand."""

import dataclasses
import math
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import Head
from bert_tf.finetuning.examples import TextExamples
from bert_tf.finetuning.predictions import draw_confusion
from bert_tf.finetuning.registry import TASKS
from bert_tf.finetuning.tasks import classification
from bert_tf.finetuning.tasks.classification import ClassificationTask, MultiLabelTask
from bert_tf.finetuning.tasks.text_task import RegressionTask
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary


def test_a_task_names_its_metrics():
    """Oracles: 2 true positives, a false one and 5 true negatives; table 1 of the BERT paper.

    Of two logits 0 and 1, the losses are log(1 + 1 / e) and 1 more.
    """

    class Features:
        targets = {"labels": np.array([1, 1, 0, 0, 0, 0, 0, 0])}

    logits = np.eye(2)[[1, 1, 1, 0, 0, 0, 0, 0]]
    expected = {"f1": 4 / 5, "matthews": 10 / np.sqrt(3 * 2 * 6 * 5), "accuracy": 7 / 8}
    expected["loss"] = np.log(1 + 1 / np.e) + 1 / 8
    for name, metric in {"cola": "matthews", "mrpc": "f1", "qqp": "f1", "rte": "accuracy"}.items():
        scores = TASKS[name].score({"logits": logits}, Features)
        assert TASKS[name].metric == metric
        assert {name: scores[name] for name in expected} == pytest.approx(expected)
        assert set(scores) <= set(TASKS[name].metrics)


def test_the_metric_may_be_another_and_must_suit_the_dev_set():
    """Oracles: 19 of 20 examples are of one class; ROC and recall need examples of both."""
    task = ClassificationTask(name="csv", labels=("ham", "spam"))
    rare, alike = [types.SimpleNamespace(targets={"labels": np.arange(20) // n}) for n in (19, 20)]
    assert "95.0%" in task.check_metric(rare) and "--metric=macro_f1" in task.check_metric(rare)
    for name in ("macro_f1", "f1/spam", "roc_auc"):
        assert task.with_metric(name).check_metric(rare) is None
    for name in ("f1/spam", "roc_auc"):
        with pytest.raises(ValueError, match=f"--metric={name} is undefined"):
            task.with_metric(name).check_metric(alike)
    with pytest.raises(ValueError, match="--metric=f1/egg is not a metric of this task: choose o"):
        task.with_metric("f1/egg")
    many = ClassificationTask(name="csv", labels=tuple(f"class{i}" for i in range(40)))
    with pytest.raises(ValueError, match="one of .*, f1/CLASS; similar names are f1/cl") as x:
        many.with_metric("f1/clas12")
    assert len(str(x.value)) < 250
    assert task.reported_metrics == ["eval_accuracy", "test_accuracy"]
    for other in TASKS.values():
        assert other.metric in other.metrics and other.with_metric("loss").metric == "loss"


def test_files_with_predictions(tmp_path, monkeypatch):
    """Oracles: probabilities 3/4 and 1/4; test_results.tsv of google-research/bert; ids, texts."""
    logits = np.log(np.array([[3.0, 1.0], [1.0, 3.0]]))
    task, folder = TASKS["imdb"], str(tmp_path)
    monkeypatch.setattr(classification, "draw_confusion", draw_confusion)

    def features(targets, ids=None):
        examples = TextExamples([b"one\ttwo", b"\xff"], None, targets, ids)
        return types.SimpleNamespace(targets=targets, examples=examples)

    labelled = features({"labels": np.array([0, 0])})
    names = task.write_predictions(folder, "dev", {"logits": logits}, labelled)
    assert names == ["predictions_dev.tsv", "confusion_dev.png"]
    lines = (tmp_path / "predictions_dev.tsv").read_text().splitlines()
    assert lines[0].split("\t") == ["index", "label", "prediction", "p(neg)", "p(pos)", "text"]
    assert lines[1:] == ["0\tneg\tneg\t0.75\t0.25\tone two", "1\tneg\tpos\t0.25\t0.75\t\ufffd"]
    assert (tmp_path / "confusion_dev.png").read_bytes().startswith(b"\x89PNG")
    unlabelled = features({}, ["1000000", "b"])
    names = task.write_predictions(folder, "test", {"logits": logits}, unlabelled)
    assert names == ["predictions_test.tsv", "test_results.tsv"]
    lines = (tmp_path / names[0]).read_text().splitlines()
    assert [line.split("\t")[:2] for line in lines[1:]] == [["1000000", "neg"], ["b", "pos"]]
    assert (tmp_path / "test_results.tsv").read_text() == "0.75\t0.25\n0.25\t0.75\n"
    # Names are neither formulas nor split, and many classes still make a picture.
    names = [f"$x_{index}" for index in range(25)]
    draw_confusion(np.arange(25), np.arange(25), names, f"{tmp_path}/many.png")


TASK = MultiLabelTask(name="topics", labels=("a", "b", "c"), separator="|")
LABELS = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]], np.float32)
LOGITS = np.array([[1, 1, -1], [1, -1, -1], [-1, -1, -1], [-1, 0, 2]], np.float32)


FOUND = (("no example", 10), ("every example", 1))


class _Features:
    targets = {"labels": LABELS}
    examples = TextExamples([b"good"] * 4, None, {}, ["w", "x", "y", "z"])

    def __len__(self):
        return 4


def test_scores_against_a_worked_example():
    """Oracle: 3 true positives, 2 false ones, 1 miss; F1 2/3, 1/2 and 1; rows 1 and 3 are right."""
    sigmoid = 1 / (1 + np.exp(-LOGITS))
    scores = TASK.score({"logits": LOGITS}, _Features())
    loss = -np.mean(LABELS * np.log(sigmoid) + (1 - LABELS) * np.log(1 - sigmoid))
    expected = {"loss": loss, "subset_accuracy": 0.5}
    expected |= {"micro_precision": 3 / 5, "micro_recall": 3 / 4, "micro_f1": 6 / 9}
    of_classes = {"precision": (1 / 2, 1 / 2, 1), "recall": (1, 1 / 2, 1), "f1": (2 / 3, 1 / 2, 1)}
    for name, values in of_classes.items():
        expected[f"macro_{name}"] = sum(values) / 3
        expected |= {f"{name}/{label}": x for label, x in zip("abc", values, strict=True)}
    assert scores == pytest.approx(expected)
    assert set(scores) == set(TASK.metrics)


@pytest.mark.parametrize(
    ("rows", "classes", "notes"),
    [
        (LABELS, 3, ('1 "0"', '2 "1"', '1 "2"')),
        (LABELS[:2], 3, ('1 "0"', 'all of them "1"', 'none of them "2"')),
        (LABELS[:1], 3, ('1 "0"', '1 "1"', '0 "2"')),
        (np.eye(11), 11, ()),
        (np.eye(11)[[0, 0]], 11, [f"classes that {x} has: {n}" for x, n in FOUND]),
    ],
)
def test_the_examples_of_each_class_are_counted(rows, classes, notes):
    """Oracle: by hand. Many classes are not named, but those of all or of no examples counted."""
    task = MultiLabelTask(name="topics", labels=tuple(map(str, range(classes))))
    tokenizer = WordPieceTokenizer(Vocabulary((*SPECIAL_TOKENS, "a")))
    for targets, expected in (({"labels": rows}, notes), ({}, ())):
        examples = TextExamples([b"a"] * len(rows), None, targets)
        assert task.featurize(examples, tokenizer, 8).notes == tuple(expected)


def test_predictions_of_no_class_or_always_the_same_are_reported():
    """Oracle: the counts."""
    assert TASK.problem({"logits": LOGITS}, _Features()) is None
    found = TASK.problem({"logits": -np.ones((4, 3))}, _Features())
    assert "no class for any of 4 examples, but should for 3:" in found
    found = TASK.problem({"logits": np.tile([1.0, 1.0, -1.0], (4, 1))}, _Features())
    assert 'predicts "a|b" for 4 of 4 examples, but that is right for 1: ' in found
    assert (
        TASK.problem({"logits": np.where([[1, 1, 0]] * 3 + [[1, 0, 0]], 1, -1)}, _Features())
        is None
    )


def test_files_and_the_exported_function_agree(tmp_path):
    """Oracle: by hand."""
    TASK.write_predictions(str(tmp_path), "dev", {"logits": LOGITS}, _Features())
    lines = (tmp_path / "predictions_dev.tsv").read_text().splitlines()
    assert lines[0] == "index\tlabels\tprediction\tp(a)\tp(b)\tp(c)\ttext"
    rows = ["w\ta|b\ta|b", "x\tb\ta", "y\t\t", "z\tc\tb|c"]
    assert ["\t".join(line.split("\t")[:3]) for line in lines[1:]] == rows
    assert lines[4].split("\t")[3:] == ["0.268941", "0.5", "0.880797", "good"]
    outputs = TASK.serve(tf.constant(LOGITS))
    assert outputs["labels"].numpy().tolist() == [b"a|b", b"a", b"", b"b|c"]
    np.testing.assert_allclose(outputs["probabilities"], 1 / (1 + np.exp(-LOGITS)), rtol=1e-6)


NUMBERS = RegressionTask(name="likeness", pairs=True)
VALUES = np.array([0.0, 1.0, 2.0, 5.0], np.float32)
GUESSES = np.array([1.0, 0.0, 2.0, 3.0], np.float32)


def _numbers(values: np.ndarray, ids: list[str] | None = None) -> types.SimpleNamespace:
    examples = TextExamples([b"a"] * len(values), [b"b"] * len(values), {}, ids)
    return types.SimpleNamespace(targets={"values": values}, examples=examples)


def test_score_against_a_worked_example():
    """Oracle: errors 1 1 0 2; covariance 7, variances 14 and 5; two ranks swapped."""
    scores = NUMBERS.score({"values": GUESSES}, _numbers(VALUES))
    linear, by_rank = 7 / math.sqrt(14 * 5), 0.8
    expected = {"loss": 6 / 4, "mean_squared_error": 6 / 4, "pearson": linear, "spearman": by_rank}
    assert scores == pytest.approx(expected | {"pearson_spearman_mean": (linear + by_rank) / 2})
    assert NUMBERS.metric in scores
    wide = dataclasses.replace(NUMBERS, head=Head("classifier", mean=9.0, deviation=2.0))
    found = wide.score({"values": GUESSES}, _numbers(VALUES))
    assert found == scores | {"loss": pytest.approx(6 / 16)}


def test_constant_predictions_are_reported():
    """Oracle: the mean and the standard deviations."""
    found = NUMBERS.problem({"values": np.full(4, 2.5)}, _numbers(VALUES))
    assert "predicts 2.5 for all of 4 examples (standard deviation 0, but 1.9 of the" in found
    assert NUMBERS.problem({"values": GUESSES}, _numbers(VALUES)) is None
    assert NUMBERS.problem({"values": np.full(4, 3.0)}, _numbers(np.full(4, 3.0))) is None


def test_writes_predictions(tmp_path):
    outputs, split = {"values": GUESSES / 3}, _numbers(VALUES, [*"789x"])
    names = NUMBERS.write_predictions(str(tmp_path), "dev", outputs, split)
    assert names == ["predictions_dev.tsv"]
    assert (tmp_path / names[0]).read_text() == (
        "index\tvalue\tprediction\ttext_a\ttext_b\n7\t0\t0.333333\ta\tb\n8\t1\t0\ta\tb\n"
        "9\t2\t0.666667\ta\tb\nx\t5\t1\ta\tb\n"
    )

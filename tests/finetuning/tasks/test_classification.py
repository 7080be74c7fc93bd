"""The objective and the score of classification, worked by hand."""

import types

import numpy as np
import pytest

from bert_tf.finetuning.examples import TextExamples
from bert_tf.finetuning.predictions import draw_confusion
from bert_tf.finetuning.registry import TASKS
from bert_tf.finetuning.tasks import classification
from bert_tf.finetuning.tasks.classification import ClassificationTask


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

"""Regression: the score, the files and the exported module."""

import dataclasses
import math
import types

import numpy as np
import pytest

from bert_tf.config import Head
from bert_tf.finetuning.examples import TextExamples
from bert_tf.finetuning.tasks.text_task import RegressionTask

TASK = RegressionTask(name="likeness", pairs=True)
VALUES = np.array([0.0, 1.0, 2.0, 5.0], np.float32)
GUESSES = np.array([1.0, 0.0, 2.0, 3.0], np.float32)


def features(values: np.ndarray, ids: list[str] | None = None) -> types.SimpleNamespace:
    examples = TextExamples([b"a"] * len(values), [b"b"] * len(values), {}, ids)
    return types.SimpleNamespace(targets={"values": values}, examples=examples)


def test_score_against_a_worked_example():
    """Oracle: errors 1 1 0 2; covariance 7, variances 14 and 5; two ranks swapped."""
    scores = TASK.score({"values": GUESSES}, features(VALUES))
    linear, by_rank = 7 / math.sqrt(14 * 5), 0.8
    expected = {"loss": 6 / 4, "mean_squared_error": 6 / 4, "pearson": linear, "spearman": by_rank}
    assert scores == pytest.approx(expected | {"pearson_spearman_mean": (linear + by_rank) / 2})
    assert TASK.metric in scores
    wide = dataclasses.replace(TASK, head=Head("classifier", mean=9.0, deviation=2.0))
    found = wide.score({"values": GUESSES}, features(VALUES))
    assert found == scores | {"loss": pytest.approx(6 / 16)}


def test_constant_predictions_are_reported():
    """Oracle: the mean and the standard deviations."""
    found = TASK.problem({"values": np.full(4, 2.5)}, features(VALUES))
    assert "predicts 2.5 for all of 4 examples (standard deviation 0, but 1.9 of the" in found
    assert TASK.problem({"values": GUESSES}, features(VALUES)) is None
    assert TASK.problem({"values": np.full(4, 3.0)}, features(np.full(4, 3.0))) is None


def test_writes_predictions(tmp_path):
    outputs, split = {"values": GUESSES / 3}, features(VALUES, [*"789x"])
    names = TASK.write_predictions(str(tmp_path), "dev", outputs, split)
    assert names == ["predictions_dev.tsv"]
    assert (tmp_path / names[0]).read_text() == (
        "index\tvalue\tprediction\ttext_a\ttext_b\n7\t0\t0.333333\ta\tb\n8\t1\t0\ta\tb\n"
        "9\t2\t0.666667\ta\tb\nx\t5\t1\ta\tb\n"
    )

"""The objective and the score of classification, worked by hand."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning.objectives import ClassificationObjective
from bert_tf.finetuning.registry import TASKS

LOGITS = np.array([[0.0, 0.0], [np.log(3.0), 0.0], [5.0, 1.0]], np.float32)


def test_objective_against_a_worked_example():
    """Oracle: the losses log 2 and log 4/3; the third example only fills the batch."""

    def model(batch, training):
        return tf.constant(LOGITS)

    batch = {"labels": tf.constant([1, 0, 0]), "example_weights": tf.constant([1.0, 1.0, 0.0])}
    objective = ClassificationObjective()
    sums = objective.sums(model, batch, training=False)
    assert float(sums["loss"]) == pytest.approx(np.log(2) + np.log(4 / 3), rel=1e-6)
    assert float(sums["accuracy"]) == 1.0
    assert {float(count) for count in objective.counts(batch).values()} == {2.0}
    np.testing.assert_array_equal(objective.outputs(model, batch)["logits"], LOGITS)


def test_score_against_a_worked_example():
    """Oracle: the same losses; a tie is the first class."""

    class Features:
        targets = {"labels": np.array([1, 0], np.int32)}

    scores = TASKS["sst2"].score({"logits": LOGITS[:2]}, Features)
    assert scores == pytest.approx({"loss": (np.log(2) + np.log(4 / 3)) / 2, "accuracy": 0.5})

"""The objective and the score of classification, worked by hand."""

import numpy as np
import pytest

from bert_tf.finetuning.registry import TASKS

LOGITS = np.array([[0.0, 0.0], [np.log(3.0), 0.0], [5.0, 1.0]], np.float32)


def test_score_against_a_worked_example():
    """Oracle: the same losses; a tie is the first class."""

    class Features:
        targets = {"labels": np.array([1, 0], np.int32)}

    scores = TASKS["sst2"].score({"logits": LOGITS[:2]}, Features)
    assert scores == pytest.approx({"loss": (np.log(2) + np.log(4 / 3)) / 2, "accuracy": 0.5})

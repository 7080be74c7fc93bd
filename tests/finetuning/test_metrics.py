"""The metrics beside the libraries' own definitions; tasks have worked examples."""

import numpy as np
import pytest
import sklearn.metrics

from bert_tf.finetuning import metrics

LABELS = np.array([1, 1, 1, 0, 0, 0, 0, 1])
VALUES = np.array([0.0, 1.0, 2.0, 5.0])


def test_of_each_class_equal_the_report_of_scikit_learn():
    """Oracle: `classification_report`, `roc_auc_score`; 5 of 8 pairs in order, by hand.

    The third of the classes occurs nowhere, the fourth only among the predictions.
    """
    names = ["ham", "a = b/c", "none", "x\ny"]
    labels, predictions = np.array([0, 0, 1, 1, 1, 0]), np.array([0, 1, 1, 1, 3, 0])
    scores = metrics.of_classes(labels, np.eye(4)[predictions], names)
    report = sklearn.metrics.classification_report(
        labels, predictions, output_dict=True, zero_division=0
    )
    for name, own in {"precision": "precision", "recall": "recall", "f1": "f1-score"}.items():
        for number, label in {0: "ham", 1: "a = b/c", 3: "x\\ny"}.items():
            assert scores[f"{name}/{label}"] == pytest.approx(report[str(number)][own])
        assert scores[f"macro_{name}"] == pytest.approx(report["macro avg"][own])
    assert not any("none" in name or "auc" in name for name in scores)

    odds = np.array([0.1, 0.6, 0.2, 0.3, 0.4, 0.5])
    two = metrics.of_classes(
        np.array([0, 0, 0, 0, 1, 1]), np.stack([1 - odds, odds], 1), ["0", "1"]
    )
    assert two["roc_auc"] == pytest.approx((3 + 3) / 8)
    assert two["f1"] == two["f1/1"] and {"f1/0", "matthews"} <= two.keys()
    assert "roc_auc" not in metrics.of_classes(np.zeros(2, int), np.eye(2), ["0", "1"])


def test_undefined_is_zero_without_a_warning():
    """Oracle: the convention of the GLUE paper for Matthews; pytest turns warnings into errors."""
    for labels in (LABELS, np.zeros(8, int), np.ones(8, int)):
        for constant in (np.zeros(8, int), np.ones(8, int)):
            found = metrics.of_classes(labels, np.eye(2)[constant], ["0", "1"])
            assert found["matthews"] == 0
    assert metrics.of_classes(np.zeros(2, int), np.eye(2)[[0, 0]], ["0", "1"])["f1"] == 0
    for arrays in ((VALUES, np.full(4, 2.5)), (np.full(4, 2.5), VALUES), (np.ones(1), np.zeros(1))):
        assert set(metrics.correlations(*arrays).values()) == {0.0}
    # Predictions that are not finite must not look like constant ones.
    assert np.isnan([*metrics.correlations(VALUES, np.array([np.nan, 1, 2, 3])).values()]).all()


def test_ranks_of_right_texts():
    """Oracle: a loop over the candidates, in Python; by hand: ties are worse, and the first text.

    Query 0 has two right texts, one of them twice; the second text of the last example is the
    query of another one.
    """
    texts = np.array([[0, 1], [0, 3], [2, 1], [4, 5], [6, 0]])
    vectors = np.random.default_rng(0).normal(size=(5, 2, 4))
    vectors[2, 1], vectors[1, 0] = vectors[0, 1], vectors[0, 0]
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    found = metrics.rank_right_texts(vectors, texts, 0.5)
    candidates = {name: vectors[i, 1] for i, name in enumerate(texts[:, 1])}
    for row, (query, own) in enumerate(texts):
        right = {second for first, second in texts if first == query}
        cosines = {name: vectors[row, 0] @ x for name, x in candidates.items() if name != query}
        best = max(cosines[name] for name in right)
        wrong = [cosines[name] for name in cosines.keys() - right]
        assert found["ranks"][row] == 1 + sum(x > best for x in wrong)
        assert found["cosines"][row] == pytest.approx(best)
        total = sum(np.exp(x / 0.5) for x in [*wrong, cosines[own]])
        assert found["losses"][row] == pytest.approx(np.log(total) - cosines[own] / 0.5)
    # More copies of a pair than 8 bits count change nothing.
    rows = np.append(np.arange(5), np.zeros(199, int))
    often = metrics.rank_right_texts(vectors[rows], texts[rows], 0.5)
    np.testing.assert_array_equal(often["ranks"], found["ranks"][rows])
    equal = metrics.rank_right_texts(np.ones([5, 2, 1]), texts, 0.5)
    # Of the candidates 0, 1, 3 and 5, the first text and right ones are not wrong.
    assert equal["ranks"].tolist() == [2, 2, 4, 4, 4]

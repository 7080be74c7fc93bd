"""Exact match and F1, against worked examples and the official scripts' way of counting."""

import collections

import numpy as np
import pytest

from bert_tf.finetuning.squad.answers import score, score_with_nulls


def test_worked_examples_of_1_1():
    """Oracle: by hand. "" and "the" are both empty when normalized, but 1.1 gives F1 0."""
    cases = {
        ("The Denver  Broncos!", "denver broncos"): (1, 1),
        ("Broncos", "Denver Broncos"): (0, 2 * 1 * 0.5 / 1.5),
        ("in the year 1999, 1999", "1999 1999 1999"): (0, 2 * 2 / (4 + 3)),
        ("a", "The"): (1, 0),
        ("Zürich–Bern", "zürich–bern"): (1, 1),
        ("x", "y"): (0, 0),
    }
    for (prediction, answer), expected in cases.items():
        found = score([prediction], [("none of it", answer)])
        assert found == pytest.approx(dict(zip(("exact_match", "f1"), expected, strict=True)))


def test_worked_example_of_2_0():
    """Oracle: by hand.

    Sorted by odds, the answers gain F1 1, lose the 1 of an unanswerable question, and gain 0.5:
    the best is to answer the first only.
    """
    predictions, odds = ["a cat", "dog", "blue", "x"], [-3.0, -1.0, 0.5, 2.0]
    answers = [("cat",), (), ("blue sky sky",), ()]
    found = score_with_nulls(predictions, odds, answers, threshold=0.0)
    expected = {"": 1 / 2, "HasAns_": 1 / 2, "NoAns_": 1 / 2, "best_": 3 / 4}
    expected = {f"{a}{b}": x for a, x in expected.items() for b in ("exact", "f1")}
    expected |= {"best_exact_thresh": -3.0, "best_f1_thresh": -3.0}
    assert found == pytest.approx(expected)
    found = score_with_nulls(predictions, odds, answers, threshold=1.0)
    assert found["f1"] == pytest.approx((1 + 0 + 0.5 + 1) / 4)
    assert score_with_nulls(["a"], [-1.0], [()], 0.0)["best_f1_thresh"] == 0.0
    assert "HasAns_f1" not in score_with_nulls(["a"], [-1.0], [()], 0.0)


def _official_best(predictions, scores, odds, answers):
    """`find_best_thresh` of evaluate-v2.0.py."""
    current = best = sum(not texts for texts in answers)
    threshold = 0.0
    for index in sorted(range(len(odds)), key=lambda x: odds[x]):
        if answers[index]:
            current += scores[index]
        else:
            current += -1 if predictions[index] else 0
        if current > best:
            best, threshold = current, odds[index]
    return best / len(scores), threshold


def _official_f1(prediction, answer):
    """`compute_f1` of evaluate-v2.0.py, for words that need no normalization."""
    gold, predicted = answer.split(), prediction.split()
    if not gold or not predicted:
        return int(gold == predicted)
    same = sum((collections.Counter(gold) & collections.Counter(predicted)).values())
    precision, recall = same / len(predicted), same / len(gold)
    return 2 * precision * recall / (precision + recall) if same else 0


def test_2_0_against_the_official_script():
    """Oracle: its loops, on random words, answers and odds with ties."""
    random = np.random.default_rng(0)

    def text(least: int) -> str:
        return " ".join(random.choice([*"bcde"], random.integers(least, 4)))

    for _ in range(30):
        predictions = [text(0) for _ in range(20)]
        answers = [tuple(text(1) for _ in range(random.integers(0, 3))) for _ in range(20)]
        odds = random.integers(-3, 4, 20).astype(float).tolist()
        found = score_with_nulls(predictions, odds, answers, 1.0)
        for name, measure in (("exact", lambda a, b: int(a == b)), ("f1", _official_f1)):
            raw = [
                max(measure(prediction, text) for text in texts or [""])
                for prediction, texts in zip(predictions, answers, strict=True)
            ]
            final = [
                float(not texts) if odd > 1.0 else score
                for odd, texts, score in zip(odds, answers, raw, strict=True)
            ]
            assert found[name] == pytest.approx(np.mean(final))
            best = _official_best(predictions, raw, odds, answers)
            assert (found[f"best_{name}"], found[f"best_{name}_thresh"]) == pytest.approx(best)

"""Exact match and F1, as the official scripts of SQuAD count them, as shares from 0 to 1.

Source: rajpurkar/SQuAD-explorer evaluate-v1.1.py and evaluate-v2.0.py.
"""

import functools
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

_Measure = Callable[[str, str], float]
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """Lower-cases, removes ASCII punctuation and articles, and joins the words with spaces."""
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def exact_match(prediction: str, answer: str) -> float:
    """Returns whether both are the same when normalized."""
    return float(normalize(prediction) == normalize(answer))


def f1(prediction: str, answer: str) -> float:
    """Returns the F1 of the normalized words; 0 without common ones."""
    predicted, correct = normalize(prediction).split(), normalize(answer).split()
    common = sum((Counter(predicted) & Counter(correct)).values())
    return 2 * common / (len(predicted) + len(correct)) if common else 0.0


def score(predictions: Sequence[str], answers: Sequence[Sequence[str]]) -> dict[str, float]:
    """Returns `exact_match` and `f1`, the best over the answers of a question, as in 1.1."""
    return {
        name: float(np.mean(list(map(functools.partial(_best, measure), predictions, answers))))
        for name, measure in (("exact_match", exact_match), ("f1", f1))
    }


def _best(measure: _Measure, prediction: str, answers: Sequence[str]) -> float:
    return max(measure(prediction, answer) for answer in answers)


def score_with_nulls(
    predictions: Sequence[str],
    null_odds: Sequence[float],
    answers: Sequence[Sequence[str]],
    threshold: float,
) -> dict[str, float]:
    """Returns the metrics of 2.0, where a question may have no answer.

    Args:
        predictions: the best answers, also of questions that probably have none.
        null_odds: the larger, the more probable it is that the question has no answer.
        answers: the correct answers; () if the question has none.
        threshold: questions whose odds are larger get no answer in `exact` and `f1`.

    Returns:
        `exact` and `f1`; `HasAns_exact`, `HasAns_f1`, `NoAns_exact` and `NoAns_f1` for the
        questions with and without an answer, where there are some; and `best_exact`,
        `best_exact_thresh`, `best_f1` and `best_f1_thresh`: the metrics at the best threshold.
    """
    odds, answerable = np.array(null_odds), np.array([bool(texts) for texts in answers])
    correct = [[text for text in texts if normalize(text)] or [""] for texts in answers]
    results: dict[str, float] = {}
    for name, measure in (("exact", exact_match), ("f1", _f1_with_null)):
        best = functools.partial(_best, measure)
        given = np.array(list(map(best, predictions, correct)))
        empty = np.array(list(map(best, [""] * len(correct), correct)))
        scores = np.where(odds > threshold, empty, given)
        results[name] = float(scores.mean())
        for group, rows in (("HasAns", answerable), ("NoAns", ~answerable)):
            if rows.any():
                results[f"{group}_{name}"] = float(scores[rows].mean())
        answered = np.array(list(map(bool, predictions)))
        highest, at = _best_threshold(
            np.where(answerable, given, -1.0 * answered), odds, answerable
        )
        results |= {f"best_{name}": highest, f"best_{name}_thresh": at}
    return results


def _f1_with_null(prediction: str, answer: str) -> float:
    """Returns `f1`, and 1 if both are empty when normalized."""
    return float(not normalize(prediction)) if not normalize(answer) else f1(prediction, answer)


def _best_threshold(
    gains: np.ndarray, odds: np.ndarray, answerable: np.ndarray
) -> tuple[float, float]:
    """Returns the best mean score over all thresholds, and the lowest threshold with it.

    The threshold is 0 if it is best to answer no question.

    Args:
        gains: what answering each question adds to the score of giving the empty answer.
    """
    order = np.argsort(odds, kind="stable")
    # The sums over questions if none, the first, the first two, ... are answered.
    sums = np.cumsum([np.sum(~answerable), *gains[order]])
    best = int(np.argmax(sums))
    return float(sums[best] / len(odds)), float(odds[order[best - 1]]) if best else 0.0

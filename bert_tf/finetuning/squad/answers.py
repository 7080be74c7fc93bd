"""The best answers of SQuAD's windows, and their official scores."""

import itertools
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from scipy.special import softmax

from bert_tf.finetuning.squad.contexts import Places, SquadFeatures, SquadOptions
from bert_tf.finetuning.tokenizing import most_context

_QUESTIONS_PER_PART = 1024
# The null odds of a question without any valid span.
CERTAINLY_NULL = 1e6


class Candidate(NamedTuple):
    """A possible answer ("" for none), its probability, and the logits of its ends."""

    text: str
    probability: float
    start_logit: float
    end_logit: float


class Answer(NamedTuple):
    """What was found for a question.

    `text` is the best answer that is not empty; "" if no span is valid. `null_odds` is the score of
    having no answer minus that of `text`; 0 if every question has one. The best candidates come
    first.
    """

    text: str
    null_odds: float
    candidates: list[Candidate]


class Spans(NamedTuple):
    """Valid spans [N] of ascending questions: first and last token, and the logits of both."""

    question: tf.Tensor
    start: tf.Tensor
    end: tf.Tensor
    start_logit: tf.Tensor
    end_logit: tf.Tensor


def find_answers(
    logits: Sequence[np.ndarray], features: SquadFeatures, options: SquadOptions
) -> list[Answer]:
    """Finds the answers to all questions, given start and end logits of each window, [length, 2].

    With a threshold, questions may have no answer.
    """
    windows, total = features.windows, len(features.examples)
    nulls = {} if options.threshold is None else _null_logits(logits, windows.question)
    answers = []
    for begin in range(0, total, _QUESTIONS_PER_PART):
        questions = range(begin, min(begin + _QUESTIONS_PER_PART, total))
        rows = slice(*np.searchsorted(windows.question, (questions.start, questions.stop)))
        dense = np.full((len(logits[rows]), max(map(len, logits[rows])), 2), -np.inf)
        for row, values in zip(dense, logits[rows], strict=True):
            row[: len(values)] = values
        spans = best_spans(dense, Places(*(values[rows] for values in windows)), options)
        spans = Spans(*(values.numpy() for values in spans))
        # By question and, within a question, the best first.
        order = np.lexsort((-(spans.start_logit + spans.end_logit), spans.question))
        spans = Spans(*(values[order] for values in spans))
        found = _distinct(spans, questions, features, options.n_best_size)
        for question, best in zip(questions, found, strict=True):
            answers.append(_answer(best, nulls.get(question), options.n_best_size))
    return answers


def best_spans(logits: tf.Tensor | np.ndarray, windows: Places, options: SquadOptions) -> Spans:
    """Returns the valid spans between the best starts and the best ends of each window.

    Works eagerly and in graphs. `logits` are those of starts and ends, [W, S, 2], -inf for padding.
    """
    count = tf.minimum(options.n_best_size, tf.shape(logits)[1])
    (start_logits, starts), (end_logits, ends) = (
        tf.math.top_k(logits[:, :, index], count, index_type=tf.int64) for index in range(2)
    )
    first, length = windows.first[:, tf.newaxis], windows.length[:, tf.newaxis]
    # Numbered from the first window, because there may be parts of all windows only.
    serves_best = most_context(windows.begin - windows.begin[:1], windows.length)
    serves_best = serves_best.to_tensor(shape=tf.shape(logits, tf.int64)[:2])
    may_start = tf.gather(serves_best, tf.maximum(starts - first, 0), batch_dims=1)
    may_start &= starts >= first
    may_end = (ends >= first) & (ends < first + length)
    widths = ends[:, tf.newaxis, :] - starts[:, :, tf.newaxis] + 1
    valid = (widths > 0) & (widths <= options.max_answer_length)
    valid &= may_start[:, :, tf.newaxis] & may_end[:, tf.newaxis, :]
    row, i, j = tf.unstack(tf.where(valid), 3, axis=1)
    skipped = tf.gather(windows.offset - windows.first, row)
    start, end = tf.stack([row, i], 1), tf.stack([row, j], 1)
    return Spans(
        tf.gather(windows.question, row),
        tf.gather_nd(starts, start) + skipped,
        tf.gather_nd(ends, end) + skipped,
        tf.gather_nd(start_logits, start),
        tf.gather_nd(end_logits, end),
    )


def _null_logits(
    logits: Sequence[np.ndarray], question: np.ndarray
) -> dict[int, tuple[float, float]]:
    """Returns for each question the logits of [CLS] in the window where their sum is least."""
    values = np.array([window[0] for window in logits], np.float64)
    order = np.lexsort((values.sum(axis=1), question))
    numbers, first = np.unique(question[order], return_index=True)
    return dict(zip(numbers.tolist(), map(tuple, values[order[first]].tolist()), strict=True))


def _distinct(
    spans: Spans, questions: range, features: SquadFeatures, count: int
) -> Iterator[dict[str, tuple[float, float]]]:
    """Yields for each question its first `count` different texts with their logits."""
    examples, splits = features.examples, features.starts.row_splits.numpy()
    contexts = np.array([question.context for question in examples.questions])
    begin = splits[contexts[spans.question]]
    starts = features.starts.values.numpy()[begin + spans.start].tolist()
    limits = features.limits.values.numpy()[begin + spans.end].tolist()
    logits = list(zip(spans.start_logit.tolist(), spans.end_logit.tolist(), strict=True))
    bounds = np.searchsorted(spans.question, [*questions, questions.stop]).tolist()
    for question, (first, end) in zip(questions, itertools.pairwise(bounds), strict=True):
        context, best = examples.contexts[contexts[question]], {}
        for index in range(first, end):
            best.setdefault(context[starts[index] : limits[index]].decode(), logits[index])
            if len(best) == count:
                break
        yield best


def _answer(
    best: dict[str, tuple[float, float]], null: tuple[float, float] | None, count: int
) -> Answer:
    """Returns the answer, given the texts with their logits, the best first."""
    text, odds = next(iter(best), ""), 0.0
    if null:
        odds = sum(null) - sum(best[text]) if best else CERTAINLY_NULL
        # The best `count`, and having no answer in any case.
        kept = sorted([*best.items(), ("", null)], key=lambda item: -sum(item[1]))
        best = dict(kept[:count]) | {"": null}
    if not best:
        return Answer("", odds, [Candidate("", 0.0, 0.0, 0.0)])
    probabilities = softmax([sum(logits) for logits in best.values()]).tolist()
    pairs = zip(best.items(), probabilities, strict=True)
    candidates = [Candidate(text, share, *logits) for (text, logits), share in pairs]
    return Answer(text, odds, candidates)


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
        name: float(_best_scores(measure, predictions, answers).mean())
        for name, measure in (("exact_match", exact_match), ("f1", f1))
    }


def _best_scores(
    measure: Callable[[str, str], float],
    predictions: Sequence[str],
    answers: Sequence[Sequence[str]],
) -> np.ndarray:
    """Returns the best score of each prediction over the answers of its question, [N]."""
    pairs = zip(predictions, answers, strict=True)
    return np.array([max(measure(text, answer) for answer in given) for text, given in pairs])


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
    nothing = np.array([texts == [""] for texts in correct])
    answered = np.array(list(map(bool, predictions)))
    exact = _best_scores(exact_match, predictions, correct)
    # Where the right answer is empty, an empty prediction is all right, and others are all wrong.
    overlap = np.where(nothing, exact, _best_scores(f1, predictions, correct))
    results: dict[str, float] = {}
    for name, given in (("exact", exact), ("f1", overlap)):
        scores = np.where(odds > threshold, nothing, given)
        results[name] = float(scores.mean())
        for group, rows in (("HasAns", answerable), ("NoAns", ~answerable)):
            if rows.any():
                results[f"{group}_{name}"] = float(scores[rows].mean())
        gains = np.where(answerable, given, -1.0 * answered)
        highest, at = _best_threshold(gains, odds, answerable)
        results |= {f"best_{name}": highest, f"best_{name}_thresh": at}
    return results


def _best_threshold(
    gains: np.ndarray, odds: np.ndarray, answerable: np.ndarray
) -> tuple[float, float]:
    """Returns the best mean score, and the lowest threshold with it; 0 if no answer is best."""
    # `gains` are what answering each question adds to the score of giving the empty answer.
    order = np.argsort(odds, kind="stable")
    # The sums over questions if none, the first, the first two, ... are answered.
    sums = np.cumsum([np.sum(~answerable), *gains[order]])
    best = int(np.argmax(sums))
    return float(sums[best] / len(odds)), float(odds[order[best - 1]]) if best else 0.0

"""Answers from the logits of windows: the best spans, cut from the original text.

Source: google-research/bert run_squad.py `write_predictions`. It finds the text of a span with
heuristics on re-tokenized words; here, the tokens know their place in the text.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from bert_tf.finetuning.squad.features import SquadFeatures
from bert_tf.finetuning.squad.windows import Windows, has_most_context

_QUESTIONS_PER_PART = 1024
# The null odds of a question without any valid span.
CERTAINLY_NULL = 1e6


class Limits(NamedTuple):
    """The flags of the same names."""

    n_best_size: int
    max_answer_length: int


class Candidate(NamedTuple):
    """A possible answer to a question; the empty text stands for none.

    Attributes:
        text: the answer.
        probability: among the candidates for the question.
        start_logit, end_logit: of its first and last token.
    """

    text: str
    probability: float
    start_logit: float
    end_logit: float


class Answer(NamedTuple):
    """What was found for a question.

    Attributes:
        text: the best answer that is not empty; "" if no span is valid.
        null_odds: the score of having no answer minus that of `text`; 0 if every question has one.
        candidates: the best candidates, the likeliest first.
    """

    text: str
    null_odds: float
    candidates: list[Candidate]


class _Spans(NamedTuple):
    """Valid spans [N].

    Attributes:
        question: the index of the question.
        start, end: the first and the last token in the context.
        start_logit, end_logit: float64.
    """

    question: np.ndarray
    start: np.ndarray
    end: np.ndarray
    start_logit: np.ndarray
    end_logit: np.ndarray


def find_answers(
    logits: Sequence[np.ndarray], features: SquadFeatures, limits: Limits, unanswerable: bool
) -> list[Answer]:
    """Finds the answers to all questions.

    Args:
        logits: the start and end logits of each window, [length, 2].
        unanswerable: whether a question may have no answer.
    """
    windows, total = features.windows, len(features.examples)
    most_context = has_most_context(windows).to_tensor().numpy()
    nulls = _null_logits(logits, windows.question) if unanswerable else {}
    answers = []
    for begin in range(0, total, _QUESTIONS_PER_PART):
        questions = range(begin, min(begin + _QUESTIONS_PER_PART, total))
        rows = slice(*np.searchsorted(windows.question, (questions.start, questions.stop)))
        part = Windows(*(values[rows] for values in windows))
        spans = _sorted(_spans(logits[rows], part, most_context[rows], limits))
        found = _distinct(spans, questions, features, limits.n_best_size)
        for question, best in zip(questions, found, strict=True):
            answers.append(_answer(best, nulls.get(question), limits.n_best_size))
    return answers


def _sorted(spans: _Spans) -> _Spans:
    """Sorts by question and, within a question, by score, the best first."""
    order = np.lexsort((-(spans.start_logit + spans.end_logit), spans.question))
    return _Spans(*(values[order] for values in spans))


def _spans(
    logits: Sequence[np.ndarray], windows: Windows, most_context: np.ndarray, limits: Limits
) -> _Spans:
    """Returns the spans between the best starts and the best ends of each window."""
    dense = np.full((len(logits), max(map(len, logits)), 2), -np.inf)
    for row, values in zip(dense, logits, strict=True):
        row[: len(values)] = values
    best = np.argsort(-dense, axis=1, kind="stable")[:, : limits.n_best_size]
    first, length = windows.first[:, np.newaxis], windows.length[:, np.newaxis]
    starts, ends = best[:, :, 0] - first, best[:, :, 1] - first
    columns = np.clip(starts, 0, max(0, most_context.shape[1] - 1))
    may_start = (starts >= 0) & (starts < length)
    if most_context.size:
        may_start &= np.take_along_axis(most_context, columns, axis=1)
    may_end = (ends >= 0) & (ends < length)
    widths = ends[:, np.newaxis, :] - starts[:, :, np.newaxis] + 1
    valid = (widths > 0) & (widths <= limits.max_answer_length)
    valid &= may_start[:, :, np.newaxis] & may_end[:, np.newaxis, :]
    row, i, j = np.nonzero(valid)
    start, end = starts[row, i], ends[row, j]
    return _Spans(
        windows.question[row],
        start + windows.offset[row],
        end + windows.offset[row],
        dense[row, start + windows.first[row], 0],
        dense[row, end + windows.first[row], 1],
    )


def _null_logits(
    logits: Sequence[np.ndarray], question: np.ndarray
) -> dict[int, tuple[float, float]]:
    """Returns for each question the logits of [CLS] in the window where their sum is least."""
    nulls: dict[int, tuple[float, float]] = {}
    for index, values in zip(question.tolist(), logits, strict=True):
        start, end = values[0].tolist()
        if index not in nulls or start + end < sum(nulls[index]):
            nulls[index] = start, end
    return nulls


def _distinct(
    spans: _Spans, questions: range, features: SquadFeatures, count: int
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
    scores = np.array([sum(logits) for logits in best.values()])
    probabilities = softmax(scores).tolist()
    return Answer(
        text,
        odds,
        [
            Candidate(text, probability, *logits)
            for (text, logits), probability in zip(best.items(), probabilities, strict=True)
        ],
    )

"""Answers from logits, against google-research/bert's loops."""

import collections
import math

import numpy as np
import pytest

from bert_tf.finetuning.squad.questions import read_squad_file

Span = collections.namedtuple("Span", "feature start end start_logit end_logit")


def best_indexes(logits, count):
    ranked = sorted(enumerate(logits), key=lambda x: x[1], reverse=True)
    return [index for index, _ in ranked[:count]]


def original(features, window_numbers, logits, max_context, text_of, limits, null):
    """run_squad.py's `write_predictions` for one question, loop by loop.

    Args:
        text_of: (window, start, end) -> the text; in place of `get_final_text`.

    Returns:
        (best text that is not empty or None, null odds or None, [(text, probability, logits)]).
    """
    spans, score_null = [], 1000000
    for number in window_numbers:
        starts, ends = logits[number][:, 0].tolist(), logits[number][:, 1].tolist()
        if null and starts[0] + ends[0] < score_null:
            score_null = starts[0] + ends[0]
            null_span = Span(number, 0, 0, starts[0], ends[0])
        for start in best_indexes(starts, limits.n_best_size):
            for end in best_indexes(ends, limits.n_best_size):
                first = features.windows.first[number]
                tokens = range(first, first + features.windows.length[number])
                if start not in tokens or end not in tokens:
                    continue
                if not max_context[number][start - first] or end < start:
                    continue
                if end - start + 1 > limits.max_answer_length:
                    continue
                spans.append(Span(number, start, end, starts[start], ends[end]))
    if null:
        spans.append(null_span)
    spans.sort(key=lambda x: x.start_logit + x.end_logit, reverse=True)
    seen, best = set(), []
    for span in spans:
        if len(best) >= limits.n_best_size:
            break
        text = text_of(span.feature, span.start, span.end) if span.start > 0 else ""
        if text in seen:
            continue
        seen.add(text)
        best.append((text, span.start_logit, span.end_logit))
    if null and "" not in seen:
        best.append(("", null_span.start_logit, null_span.end_logit))
    scores = [start + end for _, start, end in best]
    total = sum(math.exp(score) for score in scores)
    candidates = [(*x, math.exp(score) / total) for x, score in zip(best, scores, strict=True)]
    texts = [x for x in best if x[0]]
    odds = score_null - sum(texts[0][1:]) if null and texts else None
    return texts[0][0] if texts else None, odds, candidates


def original_max_context(windows):
    """run_squad.py's `_check_is_max_context` for each token of each window."""
    flags = []
    for number, question in enumerate(windows.question):
        others = [i for i, other in enumerate(windows.question) if other == question]
        row, first = [], windows.offset[number]
        for position in range(first, first + windows.length[number]):
            best_score, best = None, None
            for i in others:
                end = windows.offset[i] + windows.length[i] - 1
                if not windows.offset[i] <= position <= end:
                    continue
                left, right = position - windows.offset[i], end - position
                score = min(left, right) + 0.01 * windows.length[i]
                if best_score is None or score > best_score:
                    best_score, best = score, i
            row.append(best == number)
        flags.append(row)
    return flags


@pytest.mark.parametrize("threshold", [None, 0.0])
@pytest.mark.parametrize("n_best_size", [1, 3, 100])
def test_answers_against_the_loops_of_the_original(
    threshold, n_best_size, make_task, tokenizer, random_questions, random_logits, write_squad
):
    """Oracle: run_squad.py's algorithm in plain loops, on random logits with many ties."""
    task = make_task(threshold, n_best_size)
    examples = read_squad_file(write_squad(random_questions(60, seed=3)), "dev", True)
    features = task.featurize(examples, tokenizer, 16)
    logits = random_logits(features, seed=n_best_size)
    found = task.decode({"logits": logits}, features)["answers"]
    windows, max_context = features.windows, original_max_context(features.windows)
    starts, limits = features.starts.to_list(), features.limits.to_list()

    def text_of(number, start, end):
        index = examples.questions[windows.question[number]].context
        skipped = windows.offset[number] - windows.first[number]
        span = slice(starts[index][start + skipped], limits[index][end + skipped])
        return examples.contexts[index][span].decode()

    invalid = 0
    for question, answer in enumerate(found):
        numbers = np.flatnonzero(windows.question == question)
        text, odds, candidates = original(
            features, numbers, logits, max_context, text_of, task._options, threshold is not None
        )
        assert answer.text == (text or "")
        if text is None:
            invalid += 1
        elif threshold is not None:
            assert answer.null_odds == odds
        if not candidates:
            assert answer.candidates == [("", 0.0, 0.0, 0.0)]
            continue
        rows = [(x.text, x.start_logit, x.end_logit) for x in answer.candidates]
        assert rows == [row[:3] for row in candidates]
        probabilities = [x.probability for x in answer.candidates]
        assert probabilities == pytest.approx([row[3] for row in candidates], rel=1e-9)
    assert len(windows.question) > 1.5 * len(examples)
    assert invalid > 0 or n_best_size == 100

"""Windows over contexts, answers in them, against google-research/bert's loops, and scores."""

import collections
import lzma
import math

import numpy as np
import pytest

from bert_tf.finetuning.squad.answers import score, score_with_nulls
from bert_tf.finetuning.squad.contexts import answer_tokens, make_features
from bert_tf.finetuning.squad.questions import Question, SquadExamples, read_squad_file
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import load_vocab


def _examples(context: str, question: str, span: tuple[int, int] | None) -> SquadExamples:
    rows = [Question("1", question, 0, ("x",) if span else (), span)]
    return SquadExamples([context.encode()], rows, True)


def test_worked_example(tokenizer):
    """Oracle: run_squad.py's sliding window by hand: 9 tokens, room for 5, stride 3."""
    examples = _examples("a b c d e f g h i", "p o n", (8, 11))  # "e f"
    features = make_features(examples, tokenizer, 10, 2, 3)
    ids = [[tokenizer.vocab.tokens[i] for i in row] for row in features.ids.to_list()]
    assert [" ".join(row) for row in ids] == [
        "[CLS] p o [SEP] a b c d e [SEP]",
        "[CLS] p o [SEP] d e f g h [SEP]",
        "[CLS] p o [SEP] g h i [SEP]",
    ]
    assert features.types.to_list() == [[0] * 4 + [1] * 6] * 2 + [[0] * 4 + [1] * 4]
    assert features.targets["start"].tolist() == [0, 5, 0]
    assert features.targets["end"].tolist() == [0, 6, 0]
    assert features.describe() == (
        "1 question on 1 context in 3 windows of up to 10 tokens, 1.0 tokens per word, 0.0% [UNK], "
        "1 question truncated to 2 tokens"
    )


def test_a_stride_longer_than_a_window_skips_no_token(tokenizer):
    """Oracle: the tokens themselves; run_squad.py moves by at most the length of a window."""
    features = make_features(_examples("a b c d e f g", "p", None), tokenizer, 6, 2, 100)
    tokens = np.concatenate([row[3:-1] for row in features.ids.to_list()])
    assert [tokenizer.vocab.tokens[i] for i in tokens] == [*"abcdefg"]


def test_contexts_without_tokens_have_an_empty_window(tokenizer):
    """Such contexts, and questions without tokens, have no windows in run_squad.py."""
    features = make_features(_examples("\u200b", "", None), tokenizer, 10, 2, 3)
    cls_id, sep_id = tokenizer.vocab.cls_id, tokenizer.vocab.sep_id
    assert features.ids.to_list() == [[cls_id, sep_id, sep_id]]


def _original_starts(length: int, room: int, stride: int) -> list[int]:
    """run_squad.py's `doc_spans`."""
    starts, start = [], 0
    while start < length:
        starts.append(start)
        part = min(length - start, room)
        if start + part == length:
            break
        start += min(part, stride)
    return starts


def test_real_questions(shared_data, tmp_path):
    """Oracles: run_squad.py's loop over the starts of windows; the texts, 32 cut inside a piece."""
    vocab = load_vocab(str(shared_data / "vocab" / "bert-base-uncased" / "vocab.txt"))
    path = tmp_path / "dev.json"
    path.write_bytes(lzma.open(shared_data / "squad" / "dev-v1.1.json.xz").read())
    examples = read_squad_file(str(path), "train", False)
    features = make_features(examples, WordPieceTokenizer(vocab), 384, 64, 128)
    lengths = np.diff(features.starts.row_splits.numpy())
    _, windows = np.unique(features.windows.question, return_index=True)
    queries, expected = features.windows.first[windows] - 2, []
    for question, query in zip(examples.questions, queries, strict=True):
        expected += _original_starts(int(lengths[question.context]), 384 - int(query) - 3, 128)
    assert features.windows.offset.tolist() == expected
    first, last = answer_tokens(examples, features.starts, features.limits)
    starts, limits, differ = features.starts.to_list(), features.limits.to_list(), 0
    for question, start, end in zip(examples.questions, first, last, strict=True):
        index = question.context
        text = examples.contexts[index][starts[index][start] : limits[index][end]].decode()
        differ += text != question.answers[0].strip()
    assert differ == 32
    assert len({*features.windows.question[features.targets["start"] > 0]}) == len(examples)


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

"""Tests pairs. Oracles: examples worked by hand, and the original's algorithm over plain lists.

Statistical bounds are five standard deviations, which a correct program exceeds less than once in
a million runs; the seeds are fixed.
"""

import collections
import lzma
import random

import numpy as np
import pytest
from support import assert_likely, make_chunk

from bert_tf.examples.chunk import Chunk
from bert_tf.examples.segments import Pairs, next_sentence_pairs, sentence_order_pairs


def _rows(pairs: Pairs) -> list[tuple[int, int, int, int, bool]]:
    columns = (pairs.a_start, pairs.a_end, pairs.b_start, pairs.b_end, pairs.labels)
    return [tuple(row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def _make(chunk: Chunk, max_tokens: int, seed: int, short_seq_prob: float = 0.0) -> Pairs:
    return next_sentence_pairs(chunk, max_tokens, short_seq_prob, np.random.default_rng(seed))


def test_worked_example():
    # Document 0: sentences [0 1] [2]; document 1: sentences [3] [4 5]. All of a document fits.
    chunk = make_chunk([[2, 1], [1, 2]])
    # Either the true pair, or both sentences get a random segment, which begins at either sentence
    # of the other document and extends to its end.
    first = {((0, 2, 2, 3, False),): 1 / 2}
    second = {((3, 4, 4, 6, False),): 1 / 2}
    for one in ((3, 6), (4, 6)):
        for two in ((3, 6), (4, 6)):
            first[(0, 2, *one, True), (2, 3, *two, True)] = 1 / 8
    for one in ((0, 3), (2, 3)):
        for two in ((0, 3), (2, 3)):
            second[(3, 4, *one, True), (4, 6, *two, True)] = 1 / 8
    runs = 4000
    found = [collections.Counter(), collections.Counter()]
    for seed in range(runs):
        rows = _rows(_make(chunk, 50, seed))
        for number, counter in enumerate(found):
            counter[tuple(row for row in rows if (row[0] >= 3) == number)] += 1
    for counter, expected in zip(found, (first, second), strict=True):
        assert counter.keys() == expected.keys()
        for outcome, chance in expected.items():
            assert_likely(counter[outcome], runs, chance)


def _slow_truncate(a: list, b: list, max_tokens: int, rng: random.Random) -> None:
    while len(a) + len(b) > max_tokens:
        longer = a if len(a) > len(b) else b
        del longer[0 if rng.random() < 0.5 else -1]


@pytest.mark.parametrize(("a", "b"), [(5, 30), (16, 16), (4, 5), (19, 3)])
def test_truncation_cuts_the_longer_segment_at_either_end(a, b):
    # The two sentences make a pair of exactly these lengths unless B is random.
    chunk = make_chunk([[a, b], [1]])
    slow_a, slow_b = list(range(a)), list(range(a, a + b))
    _slow_truncate(slow_a, slow_b, 21, random.Random(0))
    front = []
    for seed in range(600):
        a_start, a_end, b_start, b_end, is_random = _rows(_make(chunk, 21, seed))[0]
        if not is_random:
            assert (a_end - a_start, b_end - b_start) == (len(slow_a), len(slow_b))
            front.append(a_start + (b_start - a))
    cut = max(a + b - 21, 0)
    assert len(front) > 200
    assert abs(np.mean(front) - cut / 2) <= 5 * (cut / 4 / len(front)) ** 0.5
    assert 0 <= min(front) and max(front) <= cut


def test_every_pair_is_inside_one_document_or_two():
    rng = np.random.default_rng(0)
    documents = [rng.integers(1, 30, rng.integers(1, 12)).tolist() for _ in range(40)]
    chunk = make_chunk(documents)
    limits = chunk.sentence_starts[chunk.document_starts]
    seen_random = 0
    for seed in range(30):
        covered = np.zeros(len(chunk.token_ids) + 1, int)
        for a_start, a_end, b_start, b_end, is_random in _rows(_make(chunk, 40, seed, 0.3)):
            assert 1 <= a_end - a_start and 1 <= b_end - b_start
            assert (a_end - a_start) + (b_end - b_start) <= 40
            document_a = np.searchsorted(limits, [a_start, a_end - 1], side="right")
            document_b = np.searchsorted(limits, [b_start, b_end - 1], side="right")
            assert document_a[0] == document_a[1] and document_b[0] == document_b[1]
            assert (document_a[0] != document_b[0]) == is_random
            seen_random += is_random
            if not is_random:
                assert a_end <= b_start
                covered[b_start:b_end] += 1
            covered[a_start:a_end] += 1
        # No sentence is used twice.
        assert covered.max() == 1
    assert seen_random > 100


def test_one_document_gives_only_true_neighbours():
    assert _make(make_chunk([[5]]), 12, 0).documents_without_pairs == 1
    for lengths in [[3, 3, 3, 3, 3], [3, 30, 2, 2, 30]]:
        for seed in range(50):
            rows = _rows(_make(make_chunk([lengths]), 9, seed, 0.5))
            assert not any(is_random for *_, is_random in rows)
            # The last sentence is used even if it is left over alone.
            assert max(b_end for _, _, _, b_end, _ in rows) > sum(lengths[:-1])
            for _, a_end, b_start, _, _ in rows:
                # Sentences of three tokens fill nine exactly. The others are truncated.
                assert a_end == b_start if lengths[1] == 3 else a_end <= b_start
    assert _rows(_make(make_chunk([[5]]), 12, 0)) == []


def test_random_segments_come_from_the_partner():
    # The first two documents are paired. Random segments come from the other three only, also for
    # the document whose only sentence has no neighbor.
    chunk = make_chunk([[3, 3], [2], [1, 1], [4], [2, 2, 2]])
    found: collections.Counter = collections.Counter()
    runs = 2000
    for seed in range(runs):
        pairs = next_sentence_pairs(chunk, 20, 0.0, np.random.default_rng(seed), documents=2)
        assert pairs.documents_without_pairs == 0
        for a_start, a_end, b_start, _, is_random in _rows(pairs):
            assert a_end <= 8
            assert b_start >= 8 if is_random else b_start == 3
            if a_start == 6:
                found[b_start] += 1
    # Documents have equal chances, and so have the sentences of a document.
    chances = {8: 1 / 6, 9: 1 / 6, 10: 1 / 3, 14: 1 / 9, 16: 1 / 9, 18: 1 / 9}
    assert found.keys() == chances.keys()
    for start, chance in chances.items():
        assert_likely(found[start], runs, chance)


def test_sentence_order_worked_by_hand():
    # The first three sentences fill a pair of six tokens, divided at either border. The lone fourth
    # is paired with the one before it. The short document is one pair; a lone sentence gives none.
    chunk = make_chunk([[2, 1, 3, 1], [5], [1, 1]])
    found: collections.Counter = collections.Counter()
    runs = 4000
    for seed in range(runs):
        pairs = sentence_order_pairs(chunk, 6, 0.0, np.random.default_rng(seed))
        assert pairs.documents_without_pairs == 1
        found.update(_rows(pairs))
    chances = {(0, 2, 2, 6): 1 / 2, (0, 3, 3, 6): 1 / 2, (3, 6, 6, 7): 1, (12, 13, 13, 14): 1}
    for (a_start, a_end, b_start, b_end), chance in chances.items():
        true = found.pop((a_start, a_end, b_start, b_end, False))
        swapped = found.pop((b_start, b_end, a_start, a_end, True))
        for number in (true, swapped):
            assert_likely(number, runs, chance / 2)
    assert not found


def _slow_order_pairs(documents, max_tokens, short_seq_prob, rng):
    """Yields (length of A, length of B, swapped) like ALBERT's script, but pairs lone sentences."""
    for lengths in documents:
        target = max_tokens
        if rng.random() < short_seq_prob:
            target = rng.randint(2, max_tokens)
        position = 0
        while position < len(lengths) > 1:
            taken = [lengths[position]]
            while sum(taken) < target and position + len(taken) < len(lengths):
                taken.append(lengths[position + len(taken)])
            position += len(taken)
            if len(taken) == 1 and position < len(lengths):
                taken.append(lengths[position])
                position += 1
            elif len(taken) == 1:
                taken.insert(0, lengths[position - 2])
            split = rng.randint(1, len(taken) - 1)
            a, b = [0] * sum(taken[:split]), [0] * sum(taken[split:])
            swapped = rng.random() < 0.5
            if swapped:
                a, b = b, a
            _slow_truncate(a, b, max_tokens, rng)
            yield len(a), len(b), swapped


def _slow_pairs(documents, max_tokens, short_seq_prob, rng):
    """Yields (length of A, length of B, random) as google-research/bert's script does."""
    for number, lengths in enumerate(documents):
        target = max_tokens
        if rng.random() < short_seq_prob:
            target = rng.randint(2, max_tokens)
        waiting = list(lengths)
        while waiting:
            taken = [waiting.pop(0)]
            while waiting and sum(taken) < target:
                taken.append(waiting.pop(0))
            split = rng.randint(1, len(taken) - 1) if len(taken) > 1 else 1
            a, rest = sum(taken[:split]), taken[split:]
            is_random = not rest or rng.random() < 0.5
            if is_random:
                waiting = rest + waiting
                other = documents[rng.choice([i for i in range(len(documents)) if i != number])]
                b = 0
                for length in other[rng.randrange(len(other)) :]:
                    b += length
                    if b >= target - a:
                        break
            else:
                b = sum(rest)
            a, b = [0] * a, [0] * b
            _slow_truncate(a, b, max_tokens, rng)
            yield len(a), len(b), is_random


def _summary(pairs: list[tuple[int, int, bool]]) -> list[float]:
    a, b, is_random = np.array(pairs, float).T
    full = a + b
    return [
        len(pairs),
        full.mean(),
        full.std(),
        a.mean(),
        a.std(),
        b.mean(),
        b.std(),
        a[is_random == 1].mean(),
        b[is_random == 1].mean(),
        is_random.mean(),
        full.min(),
        (full == full.max()).mean(),
    ]


@pytest.mark.parametrize(
    ("make", "slow"),
    [(next_sentence_pairs, _slow_pairs), (sentence_order_pairs, _slow_order_pairs)],
    ids=["nsp", "sop"],
)
def test_distributions_equal_the_originals_on_real_text(shared_data, make, slow):
    documents, sentences = [], []
    with lzma.open(shared_data / "corpus" / "wikipedia_en.txt.xz", "rt", encoding="utf-8") as file:
        while len(documents) < 60:
            line = file.readline().strip()
            sentences += [len(part.split()) for part in line.split(". ") if part.split()]
            if not line:
                documents.append(sentences[:80])
                sentences = []
    chunk = make_chunk(documents)
    rng = random.Random(1)
    ours, originals = [], []
    for seed in range(60):
        rows = _rows(make(chunk, 61, 0.3, np.random.default_rng(seed)))
        ours.append(_summary([(a1 - a0, b1 - b0, is_random) for a0, a1, b0, b1, is_random in rows]))
        originals.append(_summary(list(slow(documents, 61, 0.3, rng))))
    ours, originals = np.array(ours), np.array(originals)
    deviation = np.sqrt((ours.var(axis=0) + originals.var(axis=0)) / len(ours))
    difference = np.abs(ours.mean(axis=0) - originals.mean(axis=0))
    assert np.all(difference <= 5 * deviation), difference / deviation

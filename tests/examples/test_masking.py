"""Tests masking. Oracles: the proportions and the greedy choice of google-research/bert's script.

test_selection tests the choice of n-grams and spans. Statistical bounds are five standard
deviations; the seeds are fixed.
"""

import collections

import numpy as np
import pytest

from bert_tf.choices import MASKINGS
from bert_tf.examples.masking import mask_rows, prediction_budget
from bert_tf.examples.rows import Rows

CLS, SEP, MASK, VOCAB = 1, 2, 3, 50
STATIC = [name for name in MASKINGS if name != "dynamic"]
CONTINUES = np.arange(VOCAB) >= 40  # Tokens that begin with "##".


def _rows(rows: int, length: int = 40, seed: int = 0):
    """Returns ids, maskable and lengths of random rows [CLS] A [SEP] B [SEP] padding."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(4, VOCAB, (rows, length), np.int32)
    lengths = rng.integers(6, length + 1, rows)
    first_sep = rng.integers(2, lengths - 2)
    column = np.arange(length)
    special = (column == 0) | (column == first_sep[:, None]) | (column == lengths[:, None] - 1)
    ids[:, 0] = CLS
    ids[special & (column > 0)] = SEP
    ids[column >= lengths[:, None]] = 0
    return ids, ~special & (column < lengths[:, None]), lengths


def _unit_starts(ids, maskable):
    starts = maskable.copy()
    starts[:, 1:] &= ~(CONTINUES[ids[:, 1:]] & maskable[:, :-1])
    return starts


def _mask(ids, maskable, budget, masking, seed=0):
    rows = Rows(ids, maskable.sum(axis=1), ids, maskable, _unit_starts(ids, maskable))
    return _mask_rows(rows, budget, masking, VOCAB, seed)


def _mask_rows(rows, budget, masking, vocab_size, seed=0):
    rng = np.random.default_rng(seed)
    return mask_rows(
        rows, budget, rng, masking=masking, max_ngram_size=3, mask_id=MASK, vocab_size=vocab_size
    )


@pytest.mark.parametrize("masking", STATIC)
def test_labels_reconstruct_the_row(masking):
    ids, maskable, lengths = _rows(2000)
    budget = prediction_budget(lengths, 0.3, 8)
    masked = _mask(ids, maskable, budget, masking)
    number = masked.weights.sum(axis=1).astype(int)
    assert np.all(number <= budget) if masking != "wordpiece" else np.all(number == budget)
    for row in range(len(ids)):
        positions = masked.positions[row, : number[row]]
        assert np.all(np.diff(positions) > 0) and maskable[row, positions].all()
        restored = masked.ids[row].copy()
        restored[positions] = masked.labels[row, : number[row]]
        np.testing.assert_array_equal(restored, ids[row])
        for padding in (masked.positions, masked.labels, masked.weights):
            assert not padding[row, number[row] :].any()
    assert set(np.unique(masked.weights)) == {0.0, 1.0}


@pytest.mark.parametrize("masking", STATIC)
def test_80_10_10_and_the_random_token_is_from_the_whole_vocabulary(masking):
    ids, maskable, lengths = _rows(40_000)
    masked = _mask(ids, maskable, prediction_budget(lengths, 0.2, 10), masking)
    chosen = masked.weights > 0
    if masking == "span":  # Drawn once per span, so only its first token counts.
        chosen[:, 1:] &= np.diff(masked.positions, axis=1) != 1
    before = masked.labels[chosen]
    after = np.take_along_axis(masked.ids, masked.positions, axis=1)[chosen]
    total = len(before)
    assert total > 50_000
    # A random token may happen to be [MASK] or the original token.
    for share, chance in [
        ((after == MASK).mean(), 0.8 + 0.1 / VOCAB),
        ((after == before).mean(), 0.1 + 0.1 / VOCAB),
    ]:
        assert abs(share - chance) < 5 * (chance * (1 - chance) / total) ** 0.5
    others = after[(after != MASK) & (after != before)]
    counts = np.bincount(others, minlength=VOCAB)
    assert counts[MASK] == 0 and counts[0] > 0 and counts[CLS] > 0 and counts[SEP] > 0
    # Special tokens are never the original token, so their chance is the full one.
    chance = 0.1 / VOCAB
    for special in (0, CLS, SEP):
        assert abs(counts[special] - total * chance) < 5 * (total * chance) ** 0.5
    ordinary = counts[4:]
    chance = 0.1 / VOCAB * (1 - 1 / (VOCAB - 4))
    assert np.all(np.abs(ordinary - total * chance) < 5 * (total * chance) ** 0.5)


@pytest.mark.parametrize("masking", STATIC)
def test_only_spans_share_one_replacement(masking):
    # Among so many ids, a random one is neither [MASK] nor the original token.
    ids, maskable, lengths = _rows(20_000)
    starts = _unit_starts(ids, maskable)
    rows = Rows(ids, lengths, ids, maskable, starts)
    budget = prediction_budget(lengths, 0.3, 8)
    masked = _mask_rows(rows, budget, masking, 2**30)
    after = np.take_along_axis(masked.ids, masked.positions, axis=1)
    # 0: masked, 1: random, 2: kept.
    fate = np.where(after == MASK, 0, np.where(after == masked.labels, 2, 1))
    together = (np.diff(masked.positions, axis=1) == 1) & (masked.weights[:, 1:] > 0)
    same = (fate[:, 1:] == fate[:, :-1])[together]
    assert len(same) > 5_000
    if masking == "span":
        assert same.all()
    else:
        chance = 0.8**2 + 2 * 0.1**2
        # Neighboring pairs share a token, which at most doubles the variance.
        assert abs(same.mean() - chance) < 5 * (2 * chance * (1 - chance) / len(same)) ** 0.5


def test_every_token_is_equally_likely():
    row, maskable, _ = _rows(1, seed=4)
    ids, maskable = np.repeat(row, 30_000, axis=0), np.repeat(maskable, 30_000, axis=0)
    masked = _mask(ids, maskable, np.full(len(ids), 3), "wordpiece")
    counts = np.bincount(masked.positions.ravel(), minlength=ids.shape[1])
    chance = 3 / maskable[0].sum()
    deviation = (len(ids) * chance * (1 - chance)) ** 0.5
    assert np.all(np.abs(counts - len(ids) * chance)[maskable[0]] < 5 * deviation)
    assert not counts[~maskable[0]].any()


def _words(ids: np.ndarray, maskable: np.ndarray) -> list[list[int]]:
    """Returns the positions of each word of a row, token by token."""
    words: list[list[int]] = []
    for position in np.flatnonzero(maskable):
        if CONTINUES[ids[position]] and words and words[-1][-1] == position - 1:
            words[-1].append(position)
        else:
            words.append([position])
    return words


@pytest.mark.parametrize("masking", ["whole_word", "ngram", "span", "entity"])
def test_whole_words_are_masked_until_none_fits(masking):
    ids, maskable, lengths = _rows(3000)
    budget = prediction_budget(lengths, 0.3, 8)
    masked = _mask(ids, maskable, budget, masking)
    for row in range(len(ids)):
        chosen = set(masked.positions[row][masked.weights[row] > 0].tolist())
        left = budget[row] - len(chosen)
        for word in _words(ids[row], maskable[row]):
            assert len(chosen.intersection(word)) in (0, len(word))
            # A skipped word did not fit then, so it does not fit the remaining budget.
            assert chosen.intersection(word) or len(word) > left
        assert left >= 0


def test_whole_word_choice_worked_by_hand():
    # [CLS] a [SEP] b c ##c [SEP]: words of 1, 1 and 2 tokens, budget 2. Of the six orders, the two
    # that begin with the long word give it alone; after a short word only the other one fits.
    ids = np.array([[CLS, 10, SEP, 11, 12, 41, SEP, 0]], np.int32).repeat(6000, axis=0)
    maskable = np.isin(np.arange(8), [1, 3, 4, 5])[None].repeat(6000, axis=0)
    masked = _mask(ids, maskable, np.full(6000, 2), "whole_word")
    found = collections.Counter(map(tuple, masked.positions.tolist()))
    assert found.keys() == {(1, 3), (4, 5)}
    assert abs(found[4, 5] - 2000) < 5 * (6000 * 1 / 3 * 2 / 3) ** 0.5


def test_a_word_that_never_fits_gives_no_prediction():
    ids = np.array([[CLS, 10, 41, SEP]], np.int32)
    masked = _mask(ids, np.array([[False, True, True, False]]), np.array([1]), "whole_word")
    np.testing.assert_array_equal(masked.ids, ids)
    assert not masked.weights.any()


def test_a_continuation_after_sep_is_its_own_word():
    # [CLS] a [SEP] ##b [SEP]: of 2 words of one token each, budget 1 takes either.
    ids = np.array([[CLS, 10, SEP, 41, SEP]], np.int32).repeat(100, axis=0)
    maskable = np.isin(np.arange(5), [1, 3])[None].repeat(100, axis=0)
    masked = _mask(ids, maskable, np.ones(100, int), "whole_word")
    assert set(masked.positions[:, 0]) == {1, 3}
    assert masked.weights.sum() == 100


def test_budget_is_that_of_the_original():
    lengths = np.arange(1, 513)
    for prob, most in [(0.15, 20), (0.15, 76), (0.5, 20), (0.001, 5), (1.0, 1000)]:
        expected = [min(most, max(1, int(round(n * prob)))) for n in lengths.tolist()]
        assert prediction_budget(lengths, prob, most).tolist() == expected


def test_a_budget_beyond_the_row_predicts_every_piece():
    ids, maskable, _ = _rows(50)
    for masking in STATIC:
        masked = _mask(ids, maskable, np.full(50, 100), masking)
        np.testing.assert_array_equal(masked.weights.sum(axis=1), maskable.sum(axis=1))

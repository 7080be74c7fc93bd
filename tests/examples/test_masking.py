"""Tests masking.

Oracles: examples worked by hand, and the proportions and algorithms of google-research/bert, the
Model Garden and SpanBERT on rows. Statistical bounds are five standard deviations; the seeds are
fixed.
"""

import collections
import functools
import itertools
import random
import types

import numpy as np
import pytest
from support import assert_likely

from bert_tf.base.choices import MASKINGS
from bert_tf.examples.masking import choose_ngrams, choose_spans, choose_tokens, mask_rows
from bert_tf.examples.segments import Rows
from tfrecords.dynamic_masking import graph_budget

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


def _mask(ids, maskable, lengths, masking, prob, most, vocab_size=VOCAB):
    """Masks a share `prob` of each row, at most `most` tokens."""
    rows = Rows(ids, lengths, ids, maskable, _unit_starts(ids, maskable))
    options = types.SimpleNamespace(
        masking=masking, max_ngram_size=3, masked_lm_prob=prob, max_predictions_per_seq=most
    )
    masked = mask_rows(rows, options, _Vocabulary(vocab_size), np.random.default_rng(0))
    names = ("ids", "positions", "labels", "weights")
    return types.SimpleNamespace(**dict(zip(names, masked.values(), strict=True)))


class _Vocabulary:
    mask_id = MASK

    def __init__(self, size):
        self._size = size

    def __len__(self):
        return self._size


@pytest.mark.parametrize("masking", STATIC)
def test_80_10_10_and_the_random_token_is_from_the_whole_vocabulary(masking):
    ids, maskable, lengths = _rows(40_000)
    masked = _mask(ids, maskable, lengths, masking, 0.2, 10)
    chosen = masked.weights > 0
    if masking == "span":  # Drawn once per span, so only its first token counts.
        chosen[:, 1:] &= np.diff(masked.positions, axis=1) != 1
    before = masked.labels[chosen]
    after = np.take_along_axis(masked.ids, masked.positions, axis=1)[chosen]
    total = len(before)
    assert total > 50_000
    # A random token may happen to be [MASK] or the original token.
    assert_likely((after == MASK).sum(), total, 0.8 + 0.1 / VOCAB)
    assert_likely((after == before).sum(), total, 0.1 + 0.1 / VOCAB)
    others = after[(after != MASK) & (after != before)]
    counts = np.bincount(others, minlength=VOCAB)
    assert counts[MASK] == 0 and counts[0] > 0 and counts[CLS] > 0 and counts[SEP] > 0
    # Special tokens are never the original token, so their chance is the full one.
    assert_likely(counts[[0, CLS, SEP]], total, 0.1 / VOCAB)
    assert_likely(counts[4:], total, 0.1 / VOCAB * (1 - 1 / (VOCAB - 4)))


@pytest.mark.parametrize("masking", STATIC)
def test_only_spans_share_one_replacement(masking):
    # Among so many ids, a random one is neither [MASK] nor the original token.
    ids, maskable, lengths = _rows(20_000)
    masked = _mask(ids, maskable, lengths, masking, 0.3, 8, vocab_size=2**30)
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


def _words(ids: np.ndarray, maskable: np.ndarray) -> list[list[int]]:
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
    budget = graph_budget(lengths, 0.3, 8).numpy()
    masked = _mask(ids, maskable, lengths, masking, 0.3, 8)
    for row in range(len(ids)):
        chosen = set(masked.positions[row][masked.weights[row] > 0].tolist())
        left = budget[row] - len(chosen)
        for word in _words(ids[row], maskable[row]):
            assert len(chosen.intersection(word)) in (0, len(word))
            # A skipped word did not fit then, so it does not fit the remaining budget.
            assert chosen.intersection(word) or len(word) > left
        assert left >= 0


def test_a_budget_beyond_the_row_predicts_every_piece():
    ids, maskable, lengths = _rows(50)
    for masking in STATIC:
        masked = _mask(ids, maskable, lengths, masking, 1.0, 100)
        np.testing.assert_array_equal(masked.weights.sum(axis=1), maskable.sum(axis=1))


# SpanBERT, section 3.1: lengths 1 to 10 from a geometric distribution with p = 0.2; mean 3.8.
CHANCES = [0.2 * 0.8**n for n in range(10)]
CHANCES = [chance / sum(CHANCES) for chance in CHANCES]


def _row(*segments: list[int], length: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns maskable and starts [S] of a row of segments, given by the sizes of their units."""
    maskable, starts = [False], [False]
    for sizes in segments:
        for size in sizes:
            maskable += [True] * size
            starts += [True] + [False] * (size - 1)
        maskable.append(False)
        starts.append(False)
    padding = [False] * (length - len(starts))
    return np.array(maskable + padding), np.array(starts + padding)


def _ngrams(maskable, starts, budget, seed=0, size=3):
    return choose_ngrams(maskable, starts, budget, size, np.random.default_rng(seed))


def _spans(maskable, starts, budget, seed=0):
    return choose_spans(maskable, starts, budget, np.random.default_rng(seed))


def _check_chances(choose, row, budget, expected):
    runs = 20_000
    repeated = (array[None].repeat(runs, axis=0) for array in row)
    positions = choose(*repeated, np.full(runs, budget))
    length = len(row[0])
    found = collections.Counter(
        tuple(p for p in chosen if p < length) for chosen in positions.tolist()
    )
    assert found.keys() == expected.keys()
    assert sum(expected.values()) == pytest.approx(1)
    for outcome, chance in expected.items():
        assert_likely(found[outcome], runs, chance)


_WORDS, _BIGRAMS = (functools.partial(_ngrams, size=size) for size in (1, 2))
_ONE = CHANCES[0]


@pytest.mark.parametrize(
    ("choose", "segments", "expected"),
    [
        # Words of 1, 1 and 2 tokens. Of the six orders, the two that begin with the long word give
        # it alone; after a short word only the other one fits.
        (_WORDS, [[1], [1, 2]], {(1, 3): 2 / 3, (4, 5): 1 / 3}),
        # Three words, two to predict. A third of the time (weights 1 and 1/2), one of the two
        # bigrams comes first. Otherwise two of the three words are taken.
        (_BIGRAMS, [[1, 1, 1]], {(1, 2): 1 / 6 + 2 / 9, (2, 3): 1 / 6 + 2 / 9, (1, 3): 2 / 9}),
        # A [SEP] separates the first two words, so there is only one bigram.
        (_BIGRAMS, [[1], [1, 1]], {(1, 3): 2 / 9, (1, 4): 2 / 9, (3, 4): 2 / 9 + 1 / 3}),
        # After a span of one word, either of the others follows. A longer one extends to the right.
        (
            _spans,
            [[1, 1, 1]],
            {
                (1, 2): (_ONE / 2 + 1 - _ONE) / 3 + _ONE / 6,
                (1, 3): _ONE / 6 + 1 / 6,
                (2, 3): (_ONE / 2 + 1 - _ONE) / 3 + 1 / 6,
            },
        ),
        # A span begins at a token and takes its whole unit; then the long word no longer fits.
        (_spans, [[2, 1]], {(1, 2): 2 / 3, (3,): 1 / 3}),
        # Spans that begin at the first or last word have one word; either of the others follows. A
        # span that begins at the middle word extends to the last, if it is longer than one word.
        (
            _spans,
            [[1], [1, 1]],
            {
                (1, 3): 1 / 6 + _ONE / 6,
                (1, 4): 1 / 6 + 1 / 6,
                (3, 4): (_ONE / 2 + 1 - _ONE) / 3 + 1 / 6,
            },
        ),
    ],
)
def test_choices_worked_by_hand(choose, segments, expected):
    _check_chances(choose, _row(*segments), 2, expected)


def _slow_ngrams(segments, budget, rng, size=3):
    """Runs `_masking_ngrams` of the Model Garden. Units are (segment, first token, size)."""
    grams = {n: [] for n in range(1, size + 1)}
    for n, units in itertools.product(grams, segments):
        grams[n] += [units[i : i + n] for i in range(len(units) - n + 1)]
    for candidates in grams.values():
        rng.shuffle(candidates)
    taken: set = set()
    used = 0
    while used < budget and any(grams.values()):
        n = rng.choices(list(grams), [1 / n for n in grams])[0]
        if used + n > budget:
            grams[n].clear()
        if not grams[n]:
            continue
        gram = grams[n].pop()
        tokens = sum(unit[2] for unit in gram)
        if used + tokens <= budget and not taken.intersection(gram):
            taken.update(gram)
            used += tokens
    return taken


def _slow_spans(segments, budget, rng):
    """Runs SpanBERT's choice, but ends spans at a [SEP] and before a unit that does not fit."""
    taken: set = set()
    used = 0

    def fits(unit):
        return used + unit[2] <= budget

    everything = [unit for units in segments for unit in units]
    while any(fits(unit) and unit not in taken for unit in everything):
        length = rng.choices(range(1, 11), CHANCES)[0]
        anchor = rng.choices(everything, [unit[2] for unit in everything])[0]
        if anchor in taken:
            continue
        units = segments[anchor[0]]
        for unit in units[units.index(anchor) :][:length]:
            if unit not in taken:
                if not fits(unit):
                    break
                taken.add(unit)
                used += unit[2]
    return taken


def _summary(segments, taken):
    """Returns tokens, units, units of several tokens, and runs by length that a row has taken."""
    runs = []
    for units in segments:
        for together, group in itertools.groupby(units, lambda unit: unit in taken):
            if together:
                runs.append(len(list(group)))
    lengths = [runs.count(length) for length in range(1, 10)]
    tokens = sum(unit[2] for unit in taken)
    long_units = sum(unit[2] > 1 for unit in taken)
    middle = sum(unit[1] * unit[2] for unit in taken) / max(tokens, 1)
    return [tokens, len(taken), long_units, middle, len(runs), max(runs, default=0), *lengths]


@pytest.mark.parametrize(
    ("choose", "slow"), [(_ngrams, _slow_ngrams), (_spans, _slow_spans)], ids=["ngram", "span"]
)
@pytest.mark.parametrize("share", [0.15, 0.6])
def test_distributions_equal_the_references(choose, slow, share):
    rng = np.random.default_rng(0)
    drawn = random.Random(0)
    rows = 3000
    made, ours, theirs, budgets = [], [], [], []
    for _ in range(rows):
        segments = [rng.geometric(0.7, rng.integers(1, 50)).tolist() for _ in range(2)]
        made.append(segments)
        budgets.append(max(1, round(share * sum(map(sum, segments)))))
    length = max(sum(map(sum, segments)) for segments in made) + 3
    maskable, starts = map(
        np.array, zip(*(_row(*segments, length=length) for segments in made), strict=True)
    )
    positions = choose(maskable, starts, np.array(budgets))
    for row, segments in enumerate(made):
        units, position = [], 1
        for number, sizes in enumerate(segments):
            ends = np.cumsum([position, *sizes])
            units.append([(number, int(e), size) for e, size in zip(ends, sizes, strict=False)])
            position = int(ends[-1]) + 1
        chosen = set(positions[row][positions[row] < length].tolist())
        taken = {unit for part in units for unit in part if unit[1] in chosen}
        # Whole units, each once, within the budget.
        assert sorted(chosen) == sorted(p for _, s, n in taken for p in range(s, s + n))
        assert len(chosen) <= budgets[row]
        ours.append(_summary(units, taken))
        theirs.append(_summary(units, slow(units, budgets[row], drawn)))
    ours, theirs = np.array(ours, float), np.array(theirs, float)
    # The rows are the same, so differences between rows cancel.
    difference = ours - theirs
    deviation = np.maximum(difference.std(axis=0), 1e-9) / rows**0.5
    assert np.all(np.abs(difference.mean(axis=0)) <= 5 * deviation)
    assert theirs[:, 6:11].sum(axis=0).min() > 0  # Runs of 1 to 5 occur.


def test_tokens_are_a_uniform_choice():
    expected = dict.fromkeys([(1, 2), (1, 4), (1, 5), (2, 4), (2, 5), (4, 5)], 1 / 6)
    row = (_row([2], [2])[0],)
    _check_chances(lambda *args: choose_tokens(*args, np.random.default_rng(0)), row, 2, expected)


@pytest.mark.parametrize("choose", [_ngrams, _spans])
def test_no_rows_and_rows_where_nothing_fits(choose):
    empty = np.zeros((0, 8), bool)
    assert choose(empty, empty, np.zeros(0, int)).shape[0] == 0
    maskable, starts = (array[None] for array in _row([3]))
    assert choose(maskable, starts, np.array([2])).tolist() == [[5, 5]]
    assert choose(maskable, starts, np.array([9])).tolist() == [[1, 2, 3, 5, 5, 5, 5, 5, 5]]

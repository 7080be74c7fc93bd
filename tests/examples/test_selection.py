"""Tests choosing tokens. Oracles: examples worked by hand, and the references' algorithms on rows.

Statistical bounds are five standard deviations; the seeds are fixed.
"""

import collections
import itertools
import random

import numpy as np
import pytest

from bert_tf.examples.masking import choose_ngrams, choose_spans, choose_tokens

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
        assert abs(found[outcome] - runs * chance) < 5 * (runs * chance * (1 - chance)) ** 0.5


def test_ngrams_worked_by_hand():
    # Three words, two to predict. A third of the time (weights 1 and 1/2), one of the two bigrams
    # comes first. Otherwise two of the three words are taken.
    expected = {(1, 2): 1 / 6 + 2 / 9, (2, 3): 1 / 6 + 2 / 9, (1, 3): 2 / 9}
    _check_chances(lambda *row: _ngrams(*row, size=2), _row([1, 1, 1]), 2, expected)


def test_no_ngram_across_sep():
    # A [SEP] separates the first two words, so there is only one bigram.
    expected = {(1, 3): 2 / 9, (1, 4): 2 / 9, (3, 4): 2 / 9 + 1 / 3}
    _check_chances(lambda *row: _ngrams(*row, size=2), _row([1], [1, 1]), 2, expected)


def test_spans_worked_by_hand():
    # After a span of one word, either of the others follows. A longer span extends to the right.
    one = CHANCES[0]
    expected = {
        (1, 2): (one / 2 + 1 - one) / 3 + one / 6,
        (1, 3): one / 6 + 1 / 6,
        (2, 3): (one / 2 + 1 - one) / 3 + 1 / 6,
    }
    _check_chances(_spans, _row([1, 1, 1]), 2, expected)


def test_spans_begin_at_a_token_and_take_its_whole_unit():
    # After the short word, the long one no longer fits.
    _check_chances(_spans, _row([2, 1]), 2, {(1, 2): 2 / 3, (3,): 1 / 3})


def test_no_span_across_sep():
    # Spans that begin at the first or last word have one word; either of the others follows. A span
    # that begins at the middle word extends to the last, if it is longer than one word.
    one = CHANCES[0]
    expected = {
        (1, 3): 1 / 6 + one / 6,
        (1, 4): 1 / 6 + 1 / 6,
        (3, 4): (one / 2 + 1 - one) / 3 + 1 / 6,
    }
    _check_chances(_spans, _row([1], [1, 1]), 2, expected)


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


def test_spans_have_the_lengths_of_the_paper():
    # A budget of ten tokens always has room for the first span, and rows are so long that spans do
    # not touch. The first span has its full length; the last one takes the rest of the budget.
    assert np.dot(np.arange(1, 11), CHANCES) == pytest.approx(3.8, abs=0.01)
    chances = np.zeros((11, 11))  # [remaining budget, length of the next run]
    expected = np.zeros((11, 11))  # [remaining budget, length]: expected number of runs
    for left in range(1, 11):
        for length, chance in enumerate(CHANCES, 1):
            chances[left, min(length, left)] += chance
        for length in range(1, left + 1):
            expected[left] += chances[left, length] * expected[left - length]
            expected[left, length] += chances[left, length]
    rows, length = 2000, 3000
    maskable, starts = (array[None].repeat(rows, axis=0) for array in _row([1] * length))
    positions = np.sort(_spans(maskable, starts, np.full(rows, 10)), axis=1)
    found = np.zeros(11)
    for chosen in positions.tolist():
        ends = [n for n in range(10) if n == 9 or chosen[n + 1] != chosen[n] + 1]
        for size in np.diff([-1, *ends]):
            found[size] += 1
    found /= rows
    # Runs touch by chance in less than one row in a hundred.
    assert np.all(np.abs(found - expected[10]) < 5 * (expected[10] / rows) ** 0.5 + 0.01)


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

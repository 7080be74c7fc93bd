"""Masked-LM predictions for a batch of rows: which tokens, and what becomes of them.

Wordpiece and whole-word masking follow `create_masked_lm_predictions` of google-research/bert's
create_pretraining_data.py, with one difference: a continuation token that truncation left at the
start of segment B is a word of its own, whereas the original joins it to the last word of A, across
the [SEP].

The replacement is drawn for every token, as in the original. Span masking draws it once per span,
as SpanBERT does; adjacent spans count as one. (The Model Garden draws once per n-gram.)

The functions that choose tokens take `maskable` [N, S] bool (False for [CLS], [SEP] and padding)
and `budget` [N], the largest number of tokens to predict in a row. They return positions
[N, max(budget)] in ascending order, padded with S. Those that also take `starts` [N, S] bool, where
units of masking begin, choose whole units and never a run of units across a [SEP]. The first token
of a segment always begins a unit.
"""

import numpy as np

from bert_tf.examples.creation_options import DataOptions
from bert_tf.examples.segments import Rows
from tfrecords.vocabulary import Vocabulary

# SpanBERT, section 3.1.
SPAN_P, MAX_SPAN = 0.2, 10
_POSITION_BITS = 16
_NONE = np.uint64(2**64 - 1)


def mask_rows(
    rows: Rows, options: DataOptions, vocab: Vocabulary, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Chooses tokens to predict: 80% become [MASK], 10% become a random token, 10% stay unchanged.

    The random token is drawn from the whole vocabulary, special tokens included. The options have
    all defaults resolved; the masking is not "dynamic". Returns `input_word_ids` [N, S] with the
    replacements, and `masked_lm_positions` (ascending), `masked_lm_ids` and `masked_lm_weights`
    [N, P], zero-padded.
    """
    masking, width = options.masking, options.max_predictions_per_seq
    # rint rounds halves to even, as the original's round() does. Special tokens count.
    budget = np.rint(rows.lengths * options.masked_lm_prob).astype(np.int64).clip(1, width)
    if masking == "wordpiece":
        positions = choose_tokens(rows.maskable, budget, rng)
    elif masking == "span":
        positions = choose_spans(rows.maskable, rows.unit_starts, budget, rng)
    else:
        size = options.max_ngram_size if masking == "ngram" else 1
        positions = choose_ngrams(rows.maskable, rows.unit_starts, budget, size, rng)
    chosen = positions < rows.ids.shape[1]
    draw = rng.random(positions.shape, np.float32)
    if masking == "span":
        # The draw of its first token counts for the whole span.
        begins = np.diff(positions, axis=1, prepend=-2) != 1
        first = np.where(begins, np.arange(positions.shape[1]), 0)
        draw = np.take_along_axis(draw, np.maximum.accumulate(first, axis=1), axis=1)
    positions = np.where(chosen, positions, 0)
    labels = np.where(chosen, np.take_along_axis(rows.ids, positions, axis=1), 0)
    random_ids = rng.integers(0, len(vocab), positions.shape, np.int32)
    replaced = np.where(draw < 0.8, vocab.mask_id, np.where(draw < 0.9, labels, random_ids))
    masked_ids = rows.ids.copy()
    row, _ = np.nonzero(chosen)
    masked_ids[row, positions[chosen]] = replaced[chosen]
    padding = [(0, 0), (0, width - positions.shape[1])]
    return {
        "input_word_ids": masked_ids,
        "masked_lm_positions": np.pad(positions.astype(np.int32), padding),
        "masked_lm_ids": np.pad(labels, padding),
        "masked_lm_weights": np.pad(chosen.astype(np.float32), padding),
    }


def choose_tokens(maskable: np.ndarray, budget: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Chooses single tokens, regardless of units."""
    most = int(budget.max(initial=1))
    order = _random_order(maskable, rng)[:, :most]
    order[np.arange(order.shape[1]) >= budget[:, None]] = maskable.shape[1]
    return np.sort(order, axis=1).astype(np.int64)


def choose_ngrams(
    maskable: np.ndarray,
    starts: np.ndarray,
    budget: np.ndarray,
    max_ngram_size: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Chooses runs of 1 to `max_ngram_size` units.

    Repeatedly draws a size n with probability proportional to 1/n, then one of the n-grams of that
    size that have not been drawn. Takes the n-gram if it fits into the remaining budget and none of
    its units is already taken. This is `_masking_ngrams` of the TensorFlow Model Garden
    (official/nlp/data/create_pretraining_data.py).
    """
    units = _Units(maskable, starts)
    sizes = range(1, max_ngram_size + 1)
    orders, counts = [], []
    for size in sizes:
        # An n-gram is whole if its last unit exists and is in the same segment.
        whole = units.exists.copy()
        if size > 1:
            whole[:, 1 - size :] = False
            whole[:, : 1 - size] &= (
                units.segment[:, size - 1 :] == units.segment[:, : 1 - size]
            ) & units.exists[:, size - 1 :]
        orders.append(_random_order(whole, rng))
        counts.append(np.count_nonzero(whole, axis=1))
    order, count = np.stack(orders, axis=1), np.stack(counts, axis=1)
    weights = 1 / np.arange(1, max_ngram_size + 1)
    drawn = np.zeros_like(count)
    left = budget.copy()
    column = np.arange(max_ngram_size)
    active = np.arange(len(left))
    while True:
        available = (drawn[active] < count[active]) & (column < left[active, None])
        active, available = _keep(available.any(axis=1), active, available)
        if not len(active):
            return units.positions(maskable, int(budget.max(initial=1)))
        cumulative = np.cumsum(available * weights, axis=1)
        draw = rng.random(len(active)) * cumulative[:, -1]
        # The first size whose cumulative weight exceeds the draw.
        size = (cumulative <= draw[:, None]).sum(axis=1)
        first = order[active, size, drawn[active, size]]
        drawn[active, size] += 1
        window = first[:, None] + column
        inside = column <= size[:, None]
        window = np.where(inside, window, first[:, None])
        tokens = (units.sizes[active[:, None], window] * inside).sum(axis=1)
        fits = (tokens <= left[active]) & ~units.taken[active[:, None], window].any(axis=1)
        units.taken[active[fits, None], window[fits]] = True
        left[active] -= np.where(fits, tokens, 0)


def choose_spans(
    maskable: np.ndarray, starts: np.ndarray, budget: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Chooses runs of units whose number is geometrically distributed (p = 0.2, at most 10).

    Repeatedly draws a length and a token that has not been chosen; the span begins with the unit of
    that token. Units that are already chosen count toward the length but not against the budget.
    This is `PairWithSpanMaskingScheme` of SpanBERT (pretraining/fairseq/data/masking.py), with two
    differences. SpanBERT cuts the last span in the middle of a word when the budget is used up;
    here, the span ends before the word that does not fit. And SpanBERT's spans may cross a [SEP].
    """
    units = _Units(maskable, starts)
    anchors = _random_order(maskable, rng)
    count = np.count_nonzero(maskable, axis=1)
    chances = SPAN_P * (1 - SPAN_P) ** np.arange(MAX_SPAN)
    limits = np.cumsum(chances / chances.sum())[:-1]
    drawn = np.zeros_like(count)
    left = budget.copy()
    column = np.arange(MAX_SPAN)
    active = np.arange(len(left))
    while True:
        (active,) = _keep((left[active] > 0) & (drawn[active] < count[active]), active)
        if not len(active):
            return units.positions(maskable, int(budget.max(initial=1)))
        first = units.number[active, anchors[active, drawn[active]]]
        drawn[active] += 1
        length = 1 + np.searchsorted(limits, rng.random(len(active)), side="right")
        free = ~units.taken[active, first]
        rows, first, length = _keep(free, active, first, length)
        window = np.minimum(first[:, None] + column, units.sizes.shape[1] - 1)
        rows = rows[:, None]
        inside = column < np.minimum(length, units.sizes.shape[1] - first)[:, None]
        inside &= units.exists[rows, window]
        inside &= units.segment[rows, window] == units.segment[rows, first[:, None]]
        tokens = np.where(units.taken[rows, window], 0, units.sizes[rows, window])
        inside &= np.cumsum(tokens, axis=1) <= left[rows]
        units.taken[np.broadcast_to(rows, window.shape)[inside], window[inside]] = True
        left[rows[:, 0]] -= (tokens * inside).sum(axis=1)


class _Units:
    """The units [N, U] of a batch of rows, and the `number` [N, S] of the unit of each token."""

    def __init__(self, maskable: np.ndarray, starts: np.ndarray) -> None:
        self.number = np.cumsum(starts, axis=1, dtype=np.int32) - 1
        counts = self.number[:, -1] + 1 if starts.shape[1] else np.zeros(len(starts), int)
        width = max(1, int(counts.max(initial=0)))
        # False where a row has fewer than U.
        self.exists = np.arange(width) < counts[:, None]
        rows = np.arange(len(starts))[:, None] * width
        cells = (self.number + rows)[maskable]
        sizes = np.bincount(cells, minlength=len(starts) * width)
        self.sizes = sizes.reshape(len(starts), width)
        # It increases where a special token separates units.
        self.segment = np.zeros(self.sizes.shape, np.int32)
        self.segment[self.exists] = np.cumsum(~maskable, axis=1, dtype=np.int32)[starts]
        self.taken = np.zeros(self.sizes.shape, bool)

    def positions(self, maskable: np.ndarray, width: int) -> np.ndarray:
        """Returns the positions [N, width] of the tokens of all taken units."""
        number = np.maximum(self.number, 0)
        chosen = np.take_along_axis(self.taken, number, axis=1) & maskable
        positions = np.full((len(maskable), width), maskable.shape[1])
        row, position = np.nonzero(chosen)
        rank = np.arange(len(row)) - np.searchsorted(row, row)
        positions[row, rank] = position
        return positions


def _random_order(candidates: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Returns [N, L]: the columns of the candidates in random order, padded with L."""
    length = candidates.shape[1]
    assert length < 1 << _POSITION_BITS
    # Random high bits over the column in the low bits: sorting these is far faster than argsort.
    keys = rng.integers(0, 2**64, candidates.shape, np.uint64)
    keys &= ~np.uint64((1 << _POSITION_BITS) - 1)
    keys |= np.arange(length, dtype=np.uint64)
    keys[~candidates] = _NONE
    keys.sort(axis=1)
    order = keys.astype(np.uint16).astype(np.int64)
    order[keys == _NONE] = length
    return order


def _keep(condition: np.ndarray, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(array[condition] for array in arrays)

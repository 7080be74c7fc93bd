"""Masked-LM predictions for a batch of rows.

The algorithm is `create_masked_lm_predictions` of google-research/bert's script. Whole-word masking
differs from it in one point: a continuation piece ("##...") that truncation left at the start of
segment B is a word by itself; the original joins it to the last word of A, across the [SEP].
"""

from dataclasses import dataclass

import numpy as np

_POSITION_BITS = 16


@dataclass(frozen=True)
class Masked:
    """`ids` [N, S] with the replacements; the others [N, P], in order of position, zero-padded."""

    ids: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


def mask_rows(
    ids: np.ndarray,
    maskable: np.ndarray,
    budget: np.ndarray,
    continues_word: np.ndarray | None,
    mask_id: int,
    vocab_size: int,
    rng: np.random.Generator,
) -> Masked:
    """Chooses pieces to predict; 80 % become [MASK], 10 % a random piece, 10 % stay.

    The random piece is from the whole vocabulary, special tokens included.

    Args:
        ids: [N, S] int32.
        maskable: [N, S] bool, False for [CLS], [SEP] and padding.
        budget: [N] from `prediction_budget`.
        continues_word: for whole-word masking, [vocab_size] bool, which pieces begin with "##".
    """
    max_predictions = int(budget.max(initial=1))
    if continues_word is None:
        positions = _choose_pieces(maskable, budget, max_predictions, rng)
    else:
        positions = _choose_words(ids, maskable, budget, max_predictions, continues_word, rng)
    chosen = positions < ids.shape[1]
    positions = np.where(chosen, positions, 0)
    labels = np.where(chosen, np.take_along_axis(ids, positions, axis=1), 0)
    draw = rng.random(positions.shape, np.float32)
    random_ids = rng.integers(0, vocab_size, positions.shape, np.int32)
    replaced = np.where(draw < 0.8, mask_id, np.where(draw < 0.9, labels, random_ids))
    masked_ids = ids.copy()
    rows, _ = np.nonzero(chosen)
    masked_ids[rows, positions[chosen]] = replaced[chosen]
    return Masked(masked_ids, positions, labels, chosen.astype(np.float32))


def prediction_budget(
    lengths: np.ndarray, masked_lm_prob: float, max_predictions_per_seq: int
) -> np.ndarray:
    """How many pieces of rows of `lengths` pieces (special tokens counted) are predicted."""
    # rint rounds halves to even, as the original's round() does.
    wanted = np.rint(lengths * masked_lm_prob).astype(np.int64)
    return np.minimum(max_predictions_per_seq, np.maximum(1, wanted))


def _choose_pieces(
    maskable: np.ndarray, budget: np.ndarray, max_predictions: int, rng: np.random.Generator
) -> np.ndarray:
    """[N, max_predictions] positions in ascending order; the row's length stands for none."""
    rows, length = maskable.shape
    assert length < 1 << _POSITION_BITS
    none = np.uint64(2**64 - 1)
    # A random number above, the position below: sorting such keys is far faster than argsort.
    keys = rng.integers(0, 2**64, maskable.shape, np.uint64) >> np.uint64(_POSITION_BITS)
    keys = keys << np.uint64(_POSITION_BITS) | np.arange(length, dtype=np.uint64)
    keys = np.sort(np.where(maskable, keys, none), axis=1)[:, :max_predictions]
    keys[np.arange(keys.shape[1]) >= budget[:, None]] = none
    positions = (keys & np.uint64((1 << _POSITION_BITS) - 1)).astype(np.int64)
    positions[keys == none] = length
    return np.sort(positions, axis=1)


def _choose_words(
    ids: np.ndarray,
    maskable: np.ndarray,
    budget: np.ndarray,
    max_predictions: int,
    continues_word: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Like `_choose_pieces`, whole words: in random order, each that fits what is left is taken."""
    rows, length = maskable.shape
    begins = maskable.copy()
    begins[:, 1:] &= ~(continues_word[ids[:, 1:]] & maskable[:, :-1])
    word = np.cumsum(begins, axis=1) - 1
    max_words = int(word.max(initial=0)) + 1
    row_of, _ = np.nonzero(maskable)
    cells = row_of * max_words + word[maskable]
    sizes = np.bincount(cells, minlength=rows * max_words).reshape(rows, max_words)
    order = np.argsort(rng.random(sizes.shape, np.float32), axis=1)
    sizes_in_order = np.take_along_axis(sizes, order, axis=1)
    taken = np.zeros(sizes.shape, bool)
    left = budget.copy()
    for turn in range(max_words):
        size = sizes_in_order[:, turn]
        fits = size <= left
        taken[np.arange(rows), order[:, turn]] = fits
        left -= np.where(fits, size, 0)
    chosen = np.take_along_axis(taken, np.maximum(word, 0), axis=1) & maskable
    positions = np.full((rows, max_predictions), length)
    row, position = np.nonzero(chosen)
    rank = (np.cumsum(chosen, axis=1) - 1)[chosen]
    positions[row, rank] = position
    return positions

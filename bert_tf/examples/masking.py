"""Masked-LM predictions for a batch of rows.

Wordpiece and whole-word masking are `create_masked_lm_predictions` of google-research/bert's
script. Whole words differ from it in one point: a continuation piece that truncation left at the
start of segment B is a word by itself; the original joins it to the last word of A, across the
[SEP]. The Model Garden draws what replaces an n-gram once for all its pieces; here, as in the
original, it is drawn for every piece, except with span masking, where it is drawn once a span, as
in SpanBERT (spans that touch are one).
"""

from dataclasses import dataclass

import numpy as np

from bert_tf.examples.rows import Rows
from bert_tf.examples.selection import choose_ngrams, choose_pieces, choose_spans

# What is chosen together: pieces; units; runs of units; nothing yet, the reader masks.
MASKINGS = ("wordpiece", "whole_word", "ngram", "span", "entity", "dynamic")


@dataclass(frozen=True)
class Masked:
    """`ids` [N, S] with the replacements; the others [N, P], in order of position, zero-padded."""

    ids: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


def mask_rows(
    rows: Rows,
    budget: np.ndarray,
    masking: str,
    max_ngram_size: int,
    mask_id: int,
    vocab_size: int,
    rng: np.random.Generator,
) -> Masked:
    """Chooses pieces to predict; 80 % become [MASK], 10 % a random piece, 10 % stay.

    The random piece is from the whole vocabulary, special tokens included.

    Args:
        budget: [N] from `prediction_budget`.
        masking: one of `MASKINGS`, not "dynamic".
        max_ngram_size: for "ngram".
    """
    if masking == "wordpiece":
        positions = choose_pieces(rows.maskable, budget, rng)
    elif masking == "span":
        positions = choose_spans(rows.maskable, rows.unit_starts, budget, rng)
    else:
        # What a unit is, words or phrases, is the chunk's affair.
        size = max_ngram_size if masking == "ngram" else 1
        positions = choose_ngrams(rows.maskable, rows.unit_starts, budget, size, rng)
    return _replace(rows.ids, positions, masking == "span", mask_id, vocab_size, rng)


def prediction_budget(
    lengths: np.ndarray, masked_lm_prob: float, max_predictions_per_seq: int
) -> np.ndarray:
    """How many pieces of rows of `lengths` pieces (special tokens counted) are predicted."""
    # rint rounds halves to even, as the original's round() does.
    wanted = np.rint(lengths * masked_lm_prob).astype(np.int64)
    return np.minimum(max_predictions_per_seq, np.maximum(1, wanted))


def _replace(
    ids: np.ndarray,
    positions: np.ndarray,
    per_span: bool,
    mask_id: int,
    vocab_size: int,
    rng: np.random.Generator,
) -> Masked:
    chosen = positions < ids.shape[1]
    draw = rng.random(positions.shape, np.float32)
    if per_span:
        begins = np.ones(positions.shape, bool)
        begins[:, 1:] = np.diff(positions, axis=1) != 1
        first = np.where(begins, np.arange(positions.shape[1]), 0)
        draw = np.take_along_axis(draw, np.maximum.accumulate(first, axis=1), axis=1)
    positions = np.where(chosen, positions, 0)
    labels = np.where(chosen, np.take_along_axis(ids, positions, axis=1), 0)
    random_ids = rng.integers(0, vocab_size, positions.shape, np.int32)
    replaced = np.where(draw < 0.8, mask_id, np.where(draw < 0.9, labels, random_ids))
    masked_ids = ids.copy()
    rows, _ = np.nonzero(chosen)
    masked_ids[rows, positions[chosen]] = replaced[chosen]
    return Masked(masked_ids, positions, labels, chosen.astype(np.float32))

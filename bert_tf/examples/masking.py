"""Masked-LM predictions for a batch of rows.

Wordpiece and whole-word masking follow `create_masked_lm_predictions` of google-research/bert's
create_pretraining_data.py, with one difference: a continuation token that truncation left at the
start of segment B is a word of its own, whereas the original joins it to the last word of A, across
the [SEP].

The replacement is drawn for every token, as in the original. Span masking draws it once per span,
as SpanBERT does; adjacent spans count as one. (The Model Garden draws once per n-gram.)
"""

from dataclasses import dataclass

import numpy as np

from bert_tf.examples.rows import Rows
from bert_tf.examples.selection import choose_ngrams, choose_spans, choose_tokens


@dataclass(frozen=True)
class MaskedRows:
    """Rows with their predictions.

    Attributes:
        ids: [N, S], with the replacements.
        positions: [N, P], ascending, zero-padded like `labels` and `weights`.
        labels: [N, P], the original tokens.
        weights: [N, P] float32, 1 for a prediction and 0 for padding.
    """

    ids: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


def mask_rows(
    rows: Rows,
    budget: np.ndarray,
    rng: np.random.Generator,
    *,
    masking: str,
    max_ngram_size: int,
    mask_id: int,
    vocab_size: int,
) -> MaskedRows:
    """Chooses tokens to predict: 80% become [MASK], 10% become a random token, 10% stay unchanged.

    The random token is drawn from the whole vocabulary, special tokens included.

    Args:
        rows: the unmasked rows. Their units, words or phrases, were determined when the text was
            tokenized.
        budget: [N] from `prediction_budget`.
        rng: source of randomness.
        masking: one of `choices.MASKINGS` except "dynamic".
        max_ngram_size: for "ngram".
        mask_id: the id of [MASK].
        vocab_size: random tokens are below this id.
    """
    if masking == "wordpiece":
        positions = choose_tokens(rows.maskable, budget, rng)
    elif masking == "span":
        positions = choose_spans(rows.maskable, rows.unit_starts, budget, rng)
    else:
        size = max_ngram_size if masking == "ngram" else 1
        positions = choose_ngrams(rows.maskable, rows.unit_starts, budget, size, rng)
    chosen = positions < rows.ids.shape[1]
    draw = rng.random(positions.shape, np.float32)
    if masking == "span":
        draw = _one_draw_per_span(draw, positions)
    positions = np.where(chosen, positions, 0)
    labels = np.where(chosen, np.take_along_axis(rows.ids, positions, axis=1), 0)
    random_ids = rng.integers(0, vocab_size, positions.shape, np.int32)
    replaced = np.where(draw < 0.8, mask_id, np.where(draw < 0.9, labels, random_ids))
    masked_ids = rows.ids.copy()
    row, _ = np.nonzero(chosen)
    masked_ids[row, positions[chosen]] = replaced[chosen]
    return MaskedRows(masked_ids, positions, labels, chosen.astype(np.float32))


def prediction_budget(
    lengths: np.ndarray, masked_lm_prob: float, max_predictions_per_seq: int
) -> np.ndarray:
    """Returns how many tokens to predict in rows of `lengths` tokens (special tokens included)."""
    # rint rounds halves to even, as the original's round() does.
    wanted = np.rint(lengths * masked_lm_prob).astype(np.int64)
    return np.minimum(max_predictions_per_seq, np.maximum(1, wanted))


def _one_draw_per_span(draw: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Repeats the draw of each span's first token for the whole span."""
    begins = np.ones(positions.shape, bool)
    begins[:, 1:] = np.diff(positions, axis=1) != 1
    first = np.where(begins, np.arange(positions.shape[1]), 0)
    return np.take_along_axis(draw, np.maximum.accumulate(first, axis=1), axis=1)

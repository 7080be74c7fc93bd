"""Masks batches of unmasked records anew, as they are read.

The algorithm is `create_masked_lm_predictions` of google-research/bert's script, as in records that
are masked on disk: pieces (or whole words) in random order, as many as the budget allows; of the
chosen pieces 80 % become [MASK], 10 % a random piece of the whole vocabulary, 10 % stay. What goes
unmasked into an epoch may be masked in the next (RoBERTa, section 4.1).
"""

from dataclasses import dataclass

import tensorflow as tf


@dataclass(frozen=True)
class DynamicMasking:
    """How to mask.

    Attributes:
        mask_id, cls_id, sep_id: of the vocabulary; [CLS] and [SEP] are never masked.
        vocab_size: of the vocabulary; random pieces are below it.
        masked_lm_prob: share of the pieces of a row, special tokens counted, to predict.
        whole_word: mask words, as `word_starts` says where they begin; else single pieces.
        seed: equal seeds give equal masks.
        first_step: of training, where a run goes on: it sees the masks of that step and later.
    """

    mask_id: int
    cls_id: int
    sep_id: int
    vocab_size: int
    masked_lm_prob: float = 0.15
    whole_word: bool = False
    seed: int = 0
    first_step: int = 0


def mask_batch(
    batch: dict[str, tf.Tensor],
    max_predictions_per_seq: int,
    masking: DynamicMasking,
    stream: int,
    number: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Turns a batch of dynamic records into one of masked records.

    Args:
        batch: the features of `dynamic_features`, [B, S] and [B, 1] int32.
        stream, number: which batch this is; with the seed, all that the masks depend on.

    Returns the features of `pretraining_features`, int32 and float32.
    """
    ids = batch["input_word_ids"]
    order_seed, draw_seed, random_seed = tf.unstack(_seeds(masking.seed, stream, number))
    special = (ids == masking.cls_id) | (ids == masking.sep_id)
    maskable = (batch["input_mask"] > 0) & ~special
    budget = prediction_budget(
        tf.reduce_sum(batch["input_mask"], axis=1), masking.masked_lm_prob, max_predictions_per_seq
    )
    starts = maskable & (batch["word_starts"] > 0) if masking.whole_word else maskable
    chosen = _choose_units(maskable, starts, budget, order_seed)
    draw = _uniform(tf.shape(ids), draw_seed)
    random_ids = tf.random.stateless_uniform(
        tf.shape(ids), random_seed, 0, masking.vocab_size, tf.int32, alg="philox"
    )
    replaced = tf.where(draw < 0.8, masking.mask_id, tf.where(draw < 0.9, ids, random_ids))
    positions, weights = _positions(chosen, max_predictions_per_seq)
    labels = tf.gather(ids, positions, batch_dims=1) * tf.cast(weights, tf.int32)
    return {
        "input_word_ids": tf.where(chosen, replaced, ids),
        "input_mask": batch["input_mask"],
        "input_type_ids": batch["input_type_ids"],
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "masked_lm_weights": weights,
        "next_sentence_labels": batch["next_sentence_labels"],
    }


def prediction_budget(
    lengths: tf.Tensor, masked_lm_prob: float, max_predictions_per_seq: int
) -> tf.Tensor:
    """How many pieces of rows of `lengths` [B] pieces, special tokens counted, are predicted."""
    # In float64, and halves to even, as the original's round() on a Python float.
    wanted = tf.round(tf.cast(lengths, tf.float64) * masked_lm_prob)
    return tf.clip_by_value(tf.cast(wanted, tf.int32), 1, max_predictions_per_seq)


def _seeds(seed: int, stream: int, number: tf.Tensor) -> tf.Tensor:
    """Three seeds [3, 2] for what is drawn of a batch."""
    root = tf.random.fold_in([seed, stream], number, alg="philox")
    return tf.random.split(root, num=3, alg="philox")


def _uniform(shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    return tf.random.stateless_uniform(shape, seed, alg="philox")


def _choose_units(
    maskable: tf.Tensor, starts: tf.Tensor, budget: tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """The pieces [B, S] of units in random order, each that fits what is left of the budget taken.

    Args:
        maskable: [B, S] bool.
        starts: [B, S] bool: the maskable pieces at which a unit begins.
    """
    rows, length = tf.shape(starts)[0], starts.shape[1]
    unit = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1, 0)
    cells = unit + length * tf.range(rows)[:, tf.newaxis]
    sizes = tf.math.unsorted_segment_sum(
        tf.cast(maskable, tf.int32), cells, num_segments=rows * length
    )
    sizes = tf.reshape(sizes, [rows, length])
    order = tf.argsort(_uniform([rows, length], seed), axis=1)
    taken = _take_in_order(tf.gather(sizes, order, batch_dims=1), budget)
    taken = tf.gather(taken, tf.argsort(order, axis=1), batch_dims=1)
    return tf.gather(taken, unit, batch_dims=1) & maskable


def _take_in_order(sizes: tf.Tensor, budget: tf.Tensor) -> tf.Tensor:
    """Which of the units [B, U] are taken, from the first to the last, each if it fits [B, U] bool.

    A unit that does not fit once will never fit. So each round takes all units up to the next that
    does not: few rounds instead of one for every unit. Units of size 0, of which there are none,
    count as taken.
    """

    def some_fit(taken: tf.Tensor, left: tf.Tensor) -> tf.Tensor:
        return tf.reduce_any(~taken & (sizes <= left[:, tf.newaxis]))

    def take(taken: tf.Tensor, left: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        left = left[:, tf.newaxis]
        fits = ~taken & (sizes <= left)
        used = tf.cumsum(tf.where(fits, sizes, 0), axis=1)
        now = fits & (used <= left)
        return taken | now, left[:, 0] - tf.reduce_sum(tf.where(now, sizes, 0), axis=1)

    taken, _ = tf.while_loop(some_fit, take, [tf.equal(sizes, 0), budget])
    return taken


def _positions(chosen: tf.Tensor, max_predictions: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Where [B, S] is true, ascending and zero-padded [B, P] int32, and weights [B, P] float32."""
    length = chosen.shape[1]
    rank = tf.where(chosen, tf.range(length, 0, -1), 0)
    found, _ = tf.math.top_k(rank, min(max_predictions, length))
    found = tf.pad(found, [[0, 0], [0, max_predictions - found.shape[1]]])
    return tf.where(found > 0, length - found, 0), tf.cast(found > 0, tf.float32)

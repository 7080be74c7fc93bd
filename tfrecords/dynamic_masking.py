"""Makes the predictions of unmasked records anew, as they are read.

Masking is `create_masked_lm_predictions` of google-research/bert's script, as in records that are
masked on disk: pieces (or whole words) in random order, as many as the budget allows; of the
chosen pieces 80 % become [MASK], 10 % a random piece of the whole vocabulary, 10 % stay. What goes
unmasked into an epoch may be masked in the next (RoBERTa, section 4.1).

The left-to-right objective, the ablation of BERT's Table 5, masks nothing: each piece is predicted
from those before it.
"""

from dataclasses import dataclass

import tensorflow as tf

UNITS = ("wordpiece", "whole_word", "left_to_right")
# Of random numbers: so that training never masks as evaluation does.
EVALUATION, TRAINING = 0, 1


@dataclass(frozen=True)
class DynamicMasking:
    """What to predict.

    Raises:
        ValueError: for a share that is none.

    Attributes:
        mask_id, cls_id, sep_id: of the vocabulary; [CLS] and [SEP] are never masked.
        vocab_size: of the vocabulary; random pieces are below it.
        masked_lm_prob: share of the pieces of a row, special tokens counted, to predict.
        units: "wordpiece": mask single pieces; "whole_word": mask words, as `word_starts` says
            where they begin; "left_to_right": mask nothing and predict every next piece.
        seed: equal seeds give equal masks.
    """

    mask_id: int
    cls_id: int
    sep_id: int
    vocab_size: int
    masked_lm_prob: float = 0.15
    units: str = "wordpiece"
    seed: int = 0

    def __post_init__(self):
        assert self.units in UNITS, self.units
        if not 0 < self.masked_lm_prob <= 1:
            raise ValueError(f"masked_lm_prob is {self.masked_lm_prob}: it must be in (0, 1]")


def mask_batch(
    batch: dict[str, tf.Tensor],
    max_predictions_per_seq: int,
    masking: DynamicMasking,
    stream: int,
    number: tf.Tensor,
    first_row: tf.Tensor | int,
) -> dict[str, tf.Tensor]:
    """Turns a batch of dynamic records into one of records with predictions.

    Args:
        batch: the features of `dynamic_features`, [B, S] and [B, 1] int32.
        stream: EVALUATION or TRAINING.
        number: int64: which batch the rows are of.
        first_row: int64: where in that batch they begin. On these three and the masking's seed
            alone the masks depend: rows are masked alike together and one by one.

    Returns the features of `pretraining_features`, int32 and float32.
    """
    ids = batch["input_word_ids"]
    if masking.units == "left_to_right":
        assert max_predictions_per_seq == ids.shape[1] - 1
        return _batch(batch, ids, *_next_pieces(ids, batch["input_mask"]))
    keys, draws, random = _random_numbers(
        [ids.shape[1], max_predictions_per_seq, max_predictions_per_seq],
        tf.shape(ids, tf.int64)[0],
        [masking.seed, stream],
        number,
        first_row,
    )
    special = (ids == masking.cls_id) | (ids == masking.sep_id)
    maskable = (batch["input_mask"] > 0) & ~special
    budget = prediction_budget(
        tf.reduce_sum(batch["input_mask"], axis=1), masking.masked_lm_prob, max_predictions_per_seq
    )
    if masking.units == "wordpiece":
        positions, real = _choose_pieces(maskable, budget, keys, max_predictions_per_seq)
    else:
        starts = maskable & (batch["word_starts"] > 0)
        chosen = _choose_units(maskable, starts, budget, keys)
        positions, real = _positions(chosen, max_predictions_per_seq)
    labels = tf.gather(ids, positions, batch_dims=1)
    # Of ten draws eight are for [MASK], one for the piece itself and one for any piece.
    draws = tf.math.floormod(draws, 10)
    shown = tf.where(draws == 8, labels, tf.math.floormod(random, masking.vocab_size))
    shown = tf.where(draws < 8, masking.mask_id, shown)
    masked = _add_at(ids, positions, tf.where(real, shown - labels, 0))
    return _batch(batch, masked, positions, tf.where(real, labels, 0), real)


def prediction_budget(
    lengths: tf.Tensor, masked_lm_prob: float, max_predictions_per_seq: int
) -> tf.Tensor:
    """How many pieces of rows of `lengths` [B] pieces, special tokens counted, are predicted."""
    # In float64, and halves to even, as the original's round() on a Python float.
    wanted = tf.round(tf.cast(lengths, tf.float64) * masked_lm_prob)
    return tf.clip_by_value(tf.cast(wanted, tf.int32), 1, max_predictions_per_seq)


def _batch(
    batch: dict[str, tf.Tensor],
    ids: tf.Tensor,
    positions: tf.Tensor,
    labels: tf.Tensor,
    real: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """The features of records with predictions, of which those not `real` are padding."""
    return {
        "input_word_ids": ids,
        "input_mask": batch["input_mask"],
        "input_type_ids": batch["input_type_ids"],
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "masked_lm_weights": tf.cast(real, tf.float32),
        "next_sentence_labels": batch["next_sentence_labels"],
    }


def _next_pieces(ids: tf.Tensor, mask: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Positions [B, S-1], the pieces that follow them, and whether one does.

    [CLS] predicts the first piece. Each [SEP] is predicted like any piece: where a text ends is
    part of what a left-to-right model has to know.
    """
    real = mask[:, 1:] > 0
    positions = tf.broadcast_to(tf.range(ids.shape[1] - 1), tf.shape(real))
    return positions, tf.where(real, ids[:, 1:], 0), real


def _random_numbers(
    columns: list[int],
    rows: tf.Tensor,
    seed: list[int],
    number: tf.Tensor,
    first_row: tf.Tensor | int,
) -> list[tf.Tensor]:
    """Uniform int32 of the whole range: [rows, columns[0]], [rows, columns[1]] and so on.

    Rows `first_row` and after of an endless table, which seed and number make: each row has its
    place in Philox' counter, so that no row before it has to be drawn.
    """
    groups = -(-sum(columns) // 4)  # a counter gives four numbers
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=tf.constant(seed, tf.int64))
    counter += tf.cast(tf.stack([first_row * groups, number]), tf.uint64)
    table = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[rows, 4 * groups], key=key, counter=counter, alg=1, dtype=tf.int32
    )
    return tf.split(table[:, : sum(columns)], columns, axis=1)


def _choose_pieces(
    maskable: tf.Tensor, budget: tf.Tensor, keys: tf.Tensor, max_predictions: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """As many random pieces [B, S] as the budget [B] allows, in the form of `_positions`."""
    length = maskable.shape[1]
    count = tf.minimum(budget, tf.reduce_sum(tf.cast(maskable, tf.int32), axis=1))
    # Halved, so that no key is as low as that of what must not be masked.
    keys = tf.where(maskable, tf.bitwise.right_shift(keys, 1), tf.int32.min)
    _, found = tf.math.top_k(keys, min(max_predictions, length))
    found = tf.pad(found, [[0, 0], [0, max_predictions - found.shape[1]]])
    real = tf.range(max_predictions) < count[:, tf.newaxis]
    return tf.where(real, tf.sort(tf.where(real, found, length), axis=1), 0), real


def _choose_units(
    maskable: tf.Tensor, starts: tf.Tensor, budget: tf.Tensor, keys: tf.Tensor
) -> tf.Tensor:
    """The pieces [B, S] of units in random order, each that fits what is left of the budget taken.

    Args:
        maskable: [B, S] bool.
        starts: [B, S] bool: the maskable pieces at which a unit begins.
        keys: [B, S] random.
    """
    rows, length = tf.shape(starts)[0], starts.shape[1]
    unit = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1, 0)
    first_cell = length * tf.range(rows)[:, tf.newaxis]
    sizes = tf.math.unsorted_segment_sum(
        tf.cast(maskable, tf.int32), unit + first_cell, num_segments=rows * length
    )
    order = tf.argsort(keys, axis=1) + first_cell
    taken = _take_in_order(tf.gather(sizes, order), budget)
    # A sum of one each: faster than a scatter.
    taken = tf.math.unsorted_segment_sum(tf.cast(taken, tf.int32), order, rows * length)
    return (tf.gather(taken, unit + first_cell) > 0) & maskable


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
    """Where [B, S] is true, ascending and zero-padded [B, P] int32, and which are real [B, P]."""
    count = tf.reduce_sum(tf.cast(chosen, tf.int32), axis=1)
    columns = tf.cast(tf.where(chosen)[:, 1], tf.int32)
    found = tf.RaggedTensor.from_row_lengths(columns, count, validate=False)
    real = tf.range(max_predictions) < count[:, tf.newaxis]
    return found.to_tensor(shape=[None, max_predictions]), real


def _add_at(values: tf.Tensor, positions: tf.Tensor, changes: tf.Tensor) -> tf.Tensor:
    """Values [B, S] with changes [B, P] added at positions [B, P]."""
    rows = tf.range(tf.shape(values)[0])[:, tf.newaxis]
    cells = tf.stack([tf.broadcast_to(rows, tf.shape(positions)), positions], axis=-1)
    return tf.tensor_scatter_nd_add(values, cells, changes)

"""Masks dynamic records while reading, differently in every epoch (RoBERTa, section 4.1).

Masking follows `create_masked_lm_predictions` of google-research/bert's
create_pretraining_data.py, as for records that are masked on disk.

The left-to-right objective, an ablation in Table 5 of the BERT paper, masks nothing: each token is
predicted from the tokens before it.
"""

from dataclasses import dataclass

import tensorflow as tf

# Streams of random numbers, so that training and evaluation never share masks.
EVALUATION, TRAINING = 0, 1


@dataclass(frozen=True)
class DynamicMasking:
    """How to mask dynamic records.

    Attributes:
        mask_id, cls_id, sep_id: ids of special tokens. [CLS] and [SEP] are never masked.
        vocab_size: random tokens are below this id.
        masked_lm_prob: share of a row's tokens to predict, counting special tokens.
        units: "wordpiece" masks single tokens, "whole_word" masks the words that begin at
            `word_starts`, "left_to_right" masks nothing and predicts every next token.
        seed: equal seeds give equal masks.
        tenths: how many of ten predicted tokens become [MASK], stay unchanged and become random.
    """

    mask_id: int
    cls_id: int
    sep_id: int
    vocab_size: int
    masked_lm_prob: float = 0.15
    units: str = "wordpiece"
    seed: int = 0
    tenths: tuple[int, int, int] = (8, 1, 1)


def mask_batch(
    batch: dict[str, tf.Tensor],
    max_predictions_per_seq: int,
    masking: DynamicMasking,
    stream: int,
    number: tf.Tensor,
    first_row: tf.Tensor | int,
) -> dict[str, tf.Tensor]:
    """Masks a batch of dynamic records.

    The masks depend only on the seed of the masking, the stream, the batch number and the row. Rows
    get the same masks whether they are masked together or one by one.

    Args:
        batch: the features of dynamic records, [B, S] and [B, 1] int32.
        stream: EVALUATION or TRAINING.
        number: number of the batch, int64.
        first_row: index in the batch of the first row given, int64.

    Returns:
        the features of masked records, int32 and float32.
    """
    ids = batch["input_word_ids"]
    if masking.units == "left_to_right":
        assert max_predictions_per_seq == ids.shape[1] - 1
        # Each token predicts the one after it, [SEP] included.
        real = batch["input_mask"][:, 1:] > 0
        positions = tf.broadcast_to(tf.range(ids.shape[1] - 1), tf.shape(real))
        return _with_predictions(batch, ids, positions, tf.where(real, ids[:, 1:], 0), real)
    keys, draws, random = _random_numbers(
        [ids.shape[1], max_predictions_per_seq, max_predictions_per_seq],
        tf.shape(ids, tf.int64)[0],
        [masking.seed, stream],
        number,
        first_row,
    )
    special = (ids == masking.cls_id) | (ids == masking.sep_id)
    maskable = (batch["input_mask"] > 0) & ~special
    budget = graph_budget(
        tf.reduce_sum(batch["input_mask"], axis=1), masking.masked_lm_prob, max_predictions_per_seq
    )
    if masking.units == "wordpiece":
        positions, real = _choose_tokens(maskable, budget, keys, max_predictions_per_seq)
    elif masking.units == "whole_word":
        starts = maskable & (batch["word_starts"] > 0)
        chosen = _choose_units(maskable, starts, budget, keys)
        positions, real = _positions(chosen, max_predictions_per_seq)
    else:
        raise ValueError(f"cannot mask in units of {masking.units!r}")
    labels = tf.gather(ids, positions, batch_dims=1)
    draws = tf.math.floormod(draws, 10)
    mask, same, _ = masking.tenths
    shown = tf.where(draws < mask + same, labels, tf.math.floormod(random, masking.vocab_size))
    shown = tf.where(draws < mask, masking.mask_id, shown)
    masked = add_at(ids, positions, tf.where(real, shown - labels, 0))
    return _with_predictions(batch, masked, positions, tf.where(real, labels, 0), real)


def graph_budget(
    lengths: tf.Tensor, masked_lm_prob: float, max_predictions_per_seq: int
) -> tf.Tensor:
    """Returns how many tokens to predict in rows of `lengths` [B], counting special tokens."""
    # In float64 and with halves rounded to even, like the original's round() of a Python float.
    wanted = tf.round(tf.cast(lengths, tf.float64) * masked_lm_prob)
    return tf.clip_by_value(tf.cast(wanted, tf.int32), 1, max_predictions_per_seq)


def _with_predictions(
    batch: dict[str, tf.Tensor],
    ids: tf.Tensor,
    positions: tf.Tensor,
    labels: tf.Tensor,
    real: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Returns the features of masked records; predictions that are not `real` are padding."""
    others = {name: values for name, values in batch.items() if name != "word_starts"}
    return others | {
        "input_word_ids": ids,
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "masked_lm_weights": tf.cast(real, tf.float32),
    }


def _random_numbers(
    columns: list[int],
    rows: tf.Tensor,
    seed: list[int],
    number: tf.Tensor,
    first_row: tf.Tensor | int,
) -> list[tf.Tensor]:
    """Returns uniform int32, [rows, columns[0]], [rows, columns[1]] ..., from `first_row` on."""
    # Rows of an endless table: each has a fixed position in Philox's counter.
    groups = -(-sum(columns) // 4)  # Each counter value yields four numbers.
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=tf.constant(seed, tf.int64))
    counter += tf.cast(tf.stack([first_row * groups, number]), tf.uint64)
    table = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[rows, 4 * groups], key=key, counter=counter, alg=1, dtype=tf.int32
    )
    return tf.split(table[:, : sum(columns)], columns, axis=1)


def _choose_tokens(
    maskable: tf.Tensor, budget: tf.Tensor, keys: tf.Tensor, max_predictions: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Chooses as many random tokens as the budget [B] allows; returns them like `_positions`."""
    length = maskable.shape[1]
    count = tf.minimum(budget, tf.reduce_sum(tf.cast(maskable, tf.int32), axis=1))
    # Halved, so that the keys of maskable tokens are above those of all others.
    keys = tf.where(maskable, tf.bitwise.right_shift(keys, 1), tf.int32.min)
    _, found = tf.math.top_k(keys, min(max_predictions, length))
    found = tf.pad(found, [[0, 0], [0, max_predictions - found.shape[1]]])
    real = tf.range(max_predictions) < count[:, tf.newaxis]
    return tf.where(real, tf.sort(tf.where(real, found, length), axis=1), 0), real


def _choose_units(
    maskable: tf.Tensor, starts: tf.Tensor, budget: tf.Tensor, keys: tf.Tensor
) -> tf.Tensor:
    """Takes units in the order of random `keys` while they fit in the budget [B]; bool [B, S]."""
    rows, length = tf.shape(starts)[0], starts.shape[1]
    unit = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1, 0)
    first_cell = length * tf.range(rows)[:, tf.newaxis]
    sizes = tf.math.unsorted_segment_sum(
        tf.cast(maskable, tf.int32), unit + first_cell, num_segments=rows * length
    )
    order = tf.argsort(keys, axis=1) + first_cell
    taken = _take_in_order(tf.gather(sizes, order), budget)
    # Each sum has a single term; this is faster than a scatter.
    taken = tf.math.unsorted_segment_sum(tf.cast(taken, tf.int32), order, rows * length)
    return (tf.gather(taken, unit + first_cell) > 0) & maskable


def _take_in_order(sizes: tf.Tensor, budget: tf.Tensor) -> tf.Tensor:
    """Returns which units [B, U] bool to take: from first to last, each one that still fits."""
    # A unit that does not fit never fits later. Each round therefore takes all units up to the
    # next one that does not fit. Units of size 0 do not exist and count as taken.

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
    """Returns where [B, S] is true, ascending and zero-padded [B, P], and which are real [B, P]."""
    count = tf.reduce_sum(tf.cast(chosen, tf.int32), axis=1)
    columns = tf.cast(tf.where(chosen)[:, 1], tf.int32)
    found = tf.RaggedTensor.from_row_lengths(columns, count, validate=False)
    real = tf.range(max_predictions) < count[:, tf.newaxis]
    return found.to_tensor(shape=[None, max_predictions]), real


def add_at(values: tf.Tensor, positions: tf.Tensor, changes: tf.Tensor) -> tf.Tensor:
    """Returns values [B, S] with changes [B, P] added at positions [B, P]."""
    rows = tf.range(tf.shape(values)[0])[:, tf.newaxis]
    cells = tf.stack([tf.broadcast_to(rows, tf.shape(positions)), positions], axis=-1)
    return tf.tensor_scatter_nd_add(values, cells, changes)

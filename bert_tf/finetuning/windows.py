"""Overlapping windows over long texts, for outputs per token."""

import tensorflow as tf


def make_windows(row_splits: tf.Tensor, size: int) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Lays windows of `size` tokens over texts; neighbors overlap by half or more.

    A text of up to `size` tokens is one window. Works eagerly and in graphs.

    Args:
        row_splits: where the texts begin among all tokens, and the end; int64 [texts + 1].

    Returns:
        the tokens of each window, int64 [W, (tokens)], as indices into all tokens of all texts; and
        for which of them it has the `most_context`, bool [W, (tokens)]: once for every token, so
        that they are all tokens in order.
    """
    stride = max(1, size // 2)
    lengths = row_splits[1:] - row_splits[:-1]
    last = tf.maximum(-((size - lengths) // stride), 0)  # number of the last window of each text
    numbers = tf.ragged.range(last + 1)
    text = numbers.value_rowids()
    length = tf.gather(lengths, text)
    start = tf.minimum(numbers.values * stride, tf.maximum(length - size, 0))
    begin, length = tf.gather(row_splits, text) + start, tf.minimum(length, size)
    return tf.ragged.range(begin, begin + length), most_context(begin, length)


def most_context(begin: tf.Tensor, length: tf.Tensor) -> tf.RaggedTensor:
    """Returns for each token of each window whether no other window serves better.

    Among the windows with a token, the best one has the most context on the smaller side of it; the
    first one counts if there are several. Works eagerly and in graphs.

    Args:
        begin, length: the first of the numbered tokens in each window, and how many it has, int64
            [W].

    Returns:
        bool [W, (length)].

    Source: google-research/bert run_squad.py `_check_is_max_context`.
    """
    position = tf.ragged.range(length)
    window = position.value_rowids()
    size, token = tf.gather(length, window), tf.gather(begin, window) + position.values
    # The original's min(left, right) + 0.01 * length, times 100.
    score = 100 * tf.minimum(position.values, size - 1 - position.values) + size
    count = tf.reduce_max(tf.concat([[0], begin + length], axis=0))
    best = score == tf.gather(tf.math.unsorted_segment_max(score, token, count), token)
    candidate = tf.where(best, window, tf.int64.max)
    chosen = tf.gather(tf.math.unsorted_segment_min(candidate, token, count), token)
    return position.with_values(chosen == window)

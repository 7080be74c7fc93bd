"""Overlapping windows over long texts, for outputs per token."""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.text.preprocessor import column_of, join_rows


class Windows(NamedTuple):
    """Windows over the tokens of texts, in order.

    Attributes:
        positions: the tokens of each window, int64 [W, (tokens)]: indices into all tokens of all
            texts.
        central: bool [W, (tokens)], whether this window is the one in which the token has the most
            context on both sides. Every token is central in exactly one window, so that the central
            tokens of all windows are all tokens in order.
    """

    positions: tf.RaggedTensor
    central: tf.RaggedTensor


def make_windows(row_splits: tf.Tensor, size: int) -> Windows:
    """Lays windows of `size` tokens over texts; neighbors overlap by half or more.

    A text of up to `size` tokens is one window. Works eagerly and in graphs.

    Args:
        row_splits: where the texts begin among all tokens, and the end; int64 [texts + 1].
    """
    stride = max(1, size // 2)
    lengths = row_splits[1:] - row_splits[:-1]
    last = tf.maximum(-((size - lengths) // stride), 0)  # number of the last window of each text
    numbers = tf.ragged.range(last + 1)
    text, number = numbers.value_rowids(), numbers.values
    length, last = tf.gather(lengths, text), tf.gather(last, text)

    def start(number):
        return tf.minimum(number * stride, tf.maximum(length - size, 0))

    def boundary(number):  # halfway between the centers of a window and the one before
        return (start(number - 1) + start(number) + size - 1) // 2 + 1

    first = tf.where(number == 0, tf.zeros_like(number), boundary(number))
    limit = tf.where(number == last, length, boundary(number + 1))
    base = tf.gather(row_splits, text)
    begin = base + start(number)
    positions = tf.ragged.range(begin, begin + tf.minimum(length, size))
    window = positions.value_rowids()
    token = positions.values - tf.gather(base, window)
    central = (token >= tf.gather(first, window)) & (token < tf.gather(limit, window))
    return Windows(positions, positions.with_values(central))


def surround(values: tf.RaggedTensor, left: object, right: object) -> tf.RaggedTensor:
    """Puts one value before and one after every row of values [W, (tokens)]."""
    return join_rows(column_of(left, values), values, column_of(right, values))

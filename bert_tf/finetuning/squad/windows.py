"""Windows: [CLS] question [SEP] part of the context [SEP], so that contexts may be of any length.

All functions work eagerly and in the graph.

Source: google-research/bert run_squad.py `convert_examples_to_features`.
"""

from typing import NamedTuple

import tensorflow as tf

from tfrecords.vocabulary import Vocabulary

# [CLS], and [SEP] after the question and after the context.
_SPECIAL_TOKENS = 3


class Windows(NamedTuple):
    """Where windows lie, int64 [W] each.

    Attributes:
        question: the index of the question; ascending.
        offset: which token of the context is the first in the window.
        first: the position of that token in the window.
        length: the number of tokens of the context in the window.
    """

    question: tf.Tensor
    offset: tf.Tensor
    first: tf.Tensor
    length: tf.Tensor


def check_lengths(max_seq_length: int, max_query_length: int) -> None:
    """Checks that a window has room for the context."""
    if max_seq_length <= max_query_length + _SPECIAL_TOKENS:
        raise ValueError(
            f"--max_seq_length={max_seq_length} leaves no room for the context beside questions of "
            f"--max_query_length={max_query_length} and {_SPECIAL_TOKENS} special tokens: 384 is "
            "usual for SQuAD"
        )


def make_windows(
    questions: tf.RaggedTensor,
    contexts: tf.RaggedTensor,
    max_seq_length: int,
    doc_stride: int,
    vocab: Vocabulary,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor, Windows]:
    """Splits contexts into overlapping windows; a context without tokens has one empty window.

    Args:
        questions, contexts: token ids, int32 [Q, (tokens)]; a question leaves room for at least one
            token of the context.
        doc_stride: tokens between the starts of neighboring windows, or less where windows are
            shorter.

    Returns:
        ids and types, int32 [W, (length)], and where the windows lie.
    """
    query_lengths, lengths = questions.row_lengths(), contexts.row_lengths()
    room = max_seq_length - _SPECIAL_TOKENS - query_lengths
    stride = tf.minimum(tf.constant(doc_stride, tf.int64), room)
    counts = 1 + tf.maximum(lengths - room + stride - 1, 0) // stride
    numbers = tf.ragged.range(counts)
    question = numbers.value_rowids()
    offset = numbers.values * tf.gather(stride, question)
    windows = Windows(
        question,
        offset,
        tf.gather(query_lengths, question) + 2,
        tf.minimum(tf.gather(room, question), tf.gather(lengths, question) - offset),
    )
    begin = tf.gather(contexts.row_starts(), question) + offset
    parts = tf.gather(contexts.values, tf.ragged.range(begin, begin + windows.length))
    row = tf.ones_like(question, tf.int32)[:, tf.newaxis]
    sep = vocab.sep_id * row
    head = tf.concat([vocab.cls_id * row, tf.gather(questions, question), sep], 1)
    tail = tf.concat([parts, sep], 1)
    types = tf.concat([tf.zeros_like(head), tf.ones_like(tail)], 1)
    return tf.concat([head, tail], 1), types, windows


def has_most_context(windows: Windows) -> tf.RaggedTensor:
    """Returns for each token of the context in each window whether no other window serves better.

    Among the windows with a token, the best one has the most context on the smaller side of it.

    Returns:
        bool [W, (length)].
    """
    position = tf.ragged.range(windows.length)
    window = position.value_rowids()
    length = tf.gather(windows.length, window)
    # The original's min(left, right) + 0.01 * length, times 100.
    score = 100 * tf.minimum(position.values, length - 1 - position.values) + length
    # All tokens of all contexts, numbered.
    context_lengths = tf.math.segment_max(windows.offset + windows.length, windows.question)
    begin = tf.cumsum(context_lengths, exclusive=True)
    begin = tf.gather(begin, windows.question) + windows.offset
    token = tf.gather(begin, window) + position.values
    count = tf.reduce_sum(context_lengths)
    best = score == tf.gather(tf.math.unsorted_segment_max(score, token, count), token)
    # The first of several.
    candidate = tf.where(best, window, tf.int64.max)
    chosen = tf.gather(tf.math.unsorted_segment_min(candidate, token, count), token)
    return position.with_values(chosen == window)

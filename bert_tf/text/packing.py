"""Packs tokenized segments for the model: [CLS] a [SEP] or [CLS] a [SEP] b [SEP]."""

from collections.abc import Sequence

import tensorflow as tf
import tensorflow_text as tf_text

from tfrecords.vocabulary import Vocabulary


def pack_segments(
    segments: Sequence[tf.RaggedTensor], seq_length: int | tf.Tensor, vocab: Vocabulary
) -> dict[str, tf.Tensor]:
    """Joins, truncates and pads one or two segments.

    Truncation removes tokens from the end of the longer segment until both have the same length,
    then from both in turn (`_truncate_seq_pair` of google-research/bert).

    Args:
        segments: one or two ragged tensors, int32 [B, (tokens)] or [B, (words), (tokens)].
        seq_length: int or int32 scalar; must leave room for one token of each segment.
        vocab: the vocabulary, which has the ids of [PAD], [CLS] and [SEP].

    Returns:
        `input_word_ids`, `input_mask` (1 for tokens, 0 for padding) and `input_type_ids` (1 in the
        second segment, including its [SEP]), all int32 [B, seq_length].

    Raises:
        ValueError: there are not one or two segments, or `seq_length` is too small.
        tf.errors.InvalidArgumentError: `seq_length` is too small and known only at run time, or the
            segments have different numbers of rows.
    """
    if len(segments) not in (1, 2):
        raise ValueError(f"got {len(segments)} segments, expected one or two")
    special = len(segments) + 1
    _check_length(seq_length, special + len(segments))
    segments = [x if x.shape.rank == 2 else x.merge_dims(1, -1) for x in segments]
    # Given different numbers of rows, the trimmer drops rows or ends the process.
    segments = with_equal_rows(*segments)
    trimmed = tf_text.RoundRobinTrimmer(seq_length - special).trim(segments)
    ids, types = tf_text.combine_segments(trimmed, vocab.cls_id, vocab.sep_id)
    ids, mask = tf_text.pad_model_inputs(ids, seq_length, pad_value=vocab.pad_id)
    types, _ = tf_text.pad_model_inputs(types, seq_length)
    packed = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": types}
    return {name: tf.cast(values, tf.int32) for name, values in packed.items()}


def with_equal_rows(*values: tf.Tensor | tf.RaggedTensor) -> list[tf.Tensor | tf.RaggedTensor]:
    """Returns the values, and first checks that their numbers of rows are equal."""
    rows = [
        x.nrows() if isinstance(x, tf.RaggedTensor) else tf.shape(x, tf.int64)[0] for x in values
    ]
    message = "the inputs have different numbers of rows"
    checks = [tf.debugging.assert_equal(rows[0], other, message) for other in rows[1:]]
    with tf.control_dependencies(checks):
        return [tf.identity(x) for x in values]


def _check_length(seq_length: int | tf.Tensor, least: int) -> None:
    static = tf.get_static_value(seq_length) if tf.is_tensor(seq_length) else seq_length
    message = f"the special tokens and one token per segment need a length of at least {least}"
    if static is None:
        tf.debugging.assert_greater_equal(seq_length, least, message)
    elif static < least:
        raise ValueError(f"seq_length {static} is too small: {message}")

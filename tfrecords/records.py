"""Single records: reads them one by one, and says what is wrong with one."""

import re
from collections.abc import Iterator, Sequence

import tensorflow as tf
from google.protobuf.message import DecodeError

from tfrecords.features import Layout


def plain_message(error: tf.errors.OpError) -> str:
    """TensorFlow's message without the names of its graph nodes."""
    return re.sub(r"^\{\{.*?\}\} | \[Op:.*$", "", error.message)


def compression_of(file: str) -> str:
    """What TensorFlow calls the compression of a file, by its content."""
    with tf.io.gfile.GFile(file, "rb") as stream:
        return "GZIP" if stream.read(2) == b"\x1f\x8b" else ""


def open_records(file: tf.Tensor, compression: tf.Tensor) -> tf.data.Dataset:
    """The serialized records of a file."""
    return tf.data.TFRecordDataset(file, compression_type=compression)


def serialized_records(file: str) -> Iterator[bytes]:
    """The serialized records of a file.

    Raises:
        tf.errors.OpError: while reading, where the file is damaged.
    """
    return open_records(file, compression_of(file)).as_numpy_iterator()


def layout_of(serialized: bytes) -> Layout:
    """The layout of a record; of what is none, `problem_of_record` says so."""
    return Layout.of(_example(serialized) or tf.train.Example())


def problem_of_record(
    serialized: bytes, layout: Layout, vocab_size: int | None = None
) -> str | None:
    """What is wrong with one record, or None.

    Args:
        layout: what it must be.
        vocab_size: where it is known, ids must be below it.
    """
    example = _example(serialized)
    if example is None:
        return "not a tf.train.Example"
    vocab_size = vocab_size or 2**31
    for name, (kind, length) in layout.features.items():
        stored = layout.stored_name(name)
        if stored not in example.features.feature:
            return f"no feature {stored!r}: not made by create_pretraining_data?"
        feature = example.features.feature[stored]
        values = (feature.float_list if kind is float else feature.int64_list).value
        if len(values) != length:
            flag = "max_predictions_per_seq" if name.startswith("masked_lm") else "max_seq_length"
            return (
                f"{stored} has {len(values)} values where --{flag}={length} was asked for: pass "
                "the value that the records were made with"
            )
        if problem := _problem_of_values(name, stored, values, layout, vocab_size):
            return problem
    return None


def _problem_of_values(
    name: str, stored: str, values: Sequence, layout: Layout, vocab_size: int
) -> str | None:
    if name in ("input_word_ids", "masked_lm_ids") and _outside(values, vocab_size):
        return (
            f"{stored} has id {_outside(values, vocab_size)[0]}, outside the vocabulary of "
            f"{vocab_size}: the records were made with another vocabulary than the model's"
        )
    if name in ("input_type_ids", "word_starts", "next_sentence_labels") and _outside(values, 2):
        return f"{stored} has {_outside(values, 2)[0]}, where only 0 and 1 have a meaning"
    length = layout.max_seq_length
    if name == "masked_lm_positions" and _outside(values, length):
        return f"{stored} has {_outside(values, length)[0]}, beyond the {length} ids"
    return None


def _example(serialized: bytes) -> tf.train.Example | None:
    try:
        return tf.train.Example.FromString(serialized)
    except DecodeError:
        return None


def _outside(values: Sequence[int], limit: int) -> list[int]:
    return [value for value in values if not 0 <= value < limit]

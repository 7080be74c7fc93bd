"""Writes TFRecord files atomically."""

from collections.abc import Iterable

import tensorflow as tf

from bert_tf.base.output_files import whole_file


def write_records(path: str, records: Iterable[bytes], compression: str = "") -> None:
    """Writes serialized records to a TFRecord file atomically.

    Args:
        compression: "" or "GZIP".

    Example:
        arrays = {"input_ids": np.array([[101, 7592, 102]]), "input_mask": np.ones([1, 3], int)}
        write_records("train.tfrecord", serialize_examples(arrays))
    """
    options = tf.io.TFRecordOptions(compression_type=compression)
    with whole_file(path) as temporary, tf.io.TFRecordWriter(temporary, options) as writer:
        for record in records:
            writer.write(record)

"""Serialization. Oracle: `tf.train.Example`, byte for byte."""

import numpy as np
import pytest
import tensorflow as tf

from tfrecords.features import serialize_examples


def _protobuf_bytes(arrays: dict[str, np.ndarray], row: int) -> bytes:
    example = tf.train.Example()
    for name, values in arrays.items():
        feature = example.features.feature[name]
        is_float = np.issubdtype(values.dtype, np.floating)
        (feature.float_list if is_float else feature.int64_list).value.extend(values[row].tolist())
    return example.SerializeToString(deterministic=True)  # sorted by name


@pytest.mark.parametrize("largest", [127, 128, 16_384, 2**40])
def test_equals_protobuf_byte_for_byte(largest):
    rng = np.random.default_rng(largest)
    # Small and large numbers, so that the rows have different lengths in bytes.
    ceilings = rng.choice([1, 2, 200, largest + 1], (50, 1))
    arrays = {
        "a": np.minimum(rng.integers(0, ceilings, (50, 128)), largest),
        "b": rng.normal(size=(50, 20)).astype(np.float32),
        "c": np.full((50, 1), largest),
    }
    assert serialize_examples(arrays) == [_protobuf_bytes(arrays, row) for row in range(50)]


@pytest.mark.parametrize("rows", [0, 2])
def test_long_rows_need_longer_length_fields(rows):
    long = np.arange(rows * 20_000).reshape(rows, 20_000)
    arrays = {"a": long, "b": np.zeros((rows, 3), np.float32)}
    assert serialize_examples(arrays) == [_protobuf_bytes(arrays, row) for row in range(rows)]

"""Names, types and lengths of the features of a pre-training record, and records made from arrays.

A record is a `tf.train.Example` with the fixed-length features that google-research/bert's
create_pretraining_data.py writes. Inside this project a feature always goes by its newer name, that
of the TensorFlow Model Garden (`input_word_ids`, `input_type_ids`); on disk both sets occur.
"""

from functools import lru_cache

import numpy as np

# Our name: the name in files by google-research/bert. The Model Garden's "v2" files use ours.
ORIGINAL_NAMES = {"input_word_ids": "input_ids", "input_type_ids": "segment_ids"}


def pretraining_features(
    max_seq_length: int, max_predictions_per_seq: int
) -> dict[str, tuple[type, int]]:
    """The features of one pre-training record: name -> (int or float, number of values)."""
    return {
        "input_word_ids": (int, max_seq_length),
        "input_mask": (int, max_seq_length),
        "input_type_ids": (int, max_seq_length),
        "masked_lm_positions": (int, max_predictions_per_seq),
        "masked_lm_ids": (int, max_predictions_per_seq),
        "masked_lm_weights": (float, max_predictions_per_seq),
        "next_sentence_labels": (int, 1),
    }


def serialize_examples(arrays: dict[str, np.ndarray]) -> list[bytes]:
    """Encodes row n of all arrays as the n-th `tf.train.Example`.

    A whole batch is encoded at once, which is many times faster than one protobuf object a row.
    The features stand in the order of the dict, so that equal arrays always give equal bytes.

    Args:
        arrays: feature name -> [N, length]: non-negative integers become an `int64_list`, floats
            a `float_list`.
    """
    columns = []
    for name, values in arrays.items():
        is_float = np.issubdtype(values.dtype, np.floating)
        payload, ends = _floats(values) if is_float else _varints(values)
        limits = [0, *ends.tolist()]
        columns.append(
            [
                _feature_header(name, is_float, end - start) + payload[start:end]
                for start, end in zip(limits, limits[1:], strict=False)
            ]
        )
    rows = map(b"".join, zip(*columns, strict=True))
    return [_length_delimited(1, len(row)) + row for row in rows]


def _floats(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Little-endian float32 of [N, L], all rows joined, and the end of each row in it [N]."""
    rows, length = values.shape
    return values.astype("<f4").tobytes(), 4 * length * np.arange(1, rows + 1)


def _varints(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Protobuf's base-128 numbers of [N, L], all rows joined, and the end of each row in it [N]."""
    assert values.min(initial=0) >= 0, "negative numbers would need ten bytes each"
    width = max(1, -(-int(values.max(initial=0)).bit_length() // 7))
    if width == 1:
        return values.astype(np.uint8).tobytes(), values.shape[1] * np.arange(1, len(values) + 1)
    rest = values.astype(np.uint32 if width <= 4 else np.uint64)
    groups = np.empty((*values.shape, width), np.uint8)
    kept = np.ones(groups.shape, bool)
    for k in range(width):
        groups[..., k] = rest & 0x7F
        if k:
            kept[..., k] = rest > 0
        rest >>= 7
        groups[..., k] |= (rest > 0).astype(np.uint8) << 7
    sizes = np.count_nonzero(kept.reshape(len(values), -1), axis=1)
    return groups[kept].tobytes(), np.cumsum(sizes)


@lru_cache(maxsize=100_000)
def _feature_header(name: str, is_float: bool, length: int) -> bytes:
    """What precedes the values of one feature in `tf.train.Features`: its name and the lengths.

    Field numbers: tensorflow/core/example/{example,feature}.proto.
    """
    header = _length_delimited(1, length)
    header = _length_delimited(2 if is_float else 3, len(header) + length) + header
    key = name.encode()
    key = _length_delimited(1, len(key)) + key
    header = key + _length_delimited(2, len(header) + length) + header
    return _length_delimited(1, len(header) + length) + header


def _length_delimited(field: int, length: int) -> bytes:
    """The tag and length before a string, message or packed list of `length` bytes."""
    out = [field << 3 | 2]
    while length > 0x7F:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*out, length])

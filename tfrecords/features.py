"""Names, types and lengths of the features of a pre-training record, and records made from arrays.

A record is a `tf.train.Example` with the fixed-length features that google-research/bert's
create_pretraining_data.py writes. Inside this project a feature always goes by its newer name, that
of the TensorFlow Model Garden (`input_word_ids`, `input_type_ids`); on disk both sets occur.

A second kind of record, the dynamic one, holds the ids unmasked, and where words begin
(`word_starts`) in place of the predictions: who reads it masks it anew in every epoch.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import tensorflow as tf

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


def dynamic_features(max_seq_length: int) -> dict[str, tuple[type, int]]:
    """The features of one dynamic record: name -> (int or float, number of values).

    `word_starts` is 1 where a word, or whatever is to be masked as a whole, begins; 0 at its other
    pieces, at [CLS] and [SEP], and in the padding.
    """
    return {
        "input_word_ids": (int, max_seq_length),
        "input_mask": (int, max_seq_length),
        "input_type_ids": (int, max_seq_length),
        "word_starts": (int, max_seq_length),
        "next_sentence_labels": (int, 1),
    }


@dataclass(frozen=True)
class Layout:
    """How records are laid out; dynamic ones have no predictions (0 of them)."""

    dynamic: bool
    original_names: bool
    max_seq_length: int
    max_predictions_per_seq: int

    @classmethod
    def of(cls, example: tf.train.Example) -> "Layout":
        """The layout of a record, as far as it has one: a feature that it lacks has length 0."""
        found = example.features.feature

        def length(name: str) -> int:
            return len(found[name].int64_list.value) if name in found else 0

        original = "input_ids" in found
        return cls(
            dynamic="word_starts" in found,
            original_names=original,
            max_seq_length=length("input_ids" if original else "input_word_ids"),
            max_predictions_per_seq=length("masked_lm_positions"),
        )

    def __str__(self) -> str:
        kind = "no" if self.dynamic else f"{self.max_predictions_per_seq}"
        names = "input_ids" if self.original_names else "input_word_ids"
        return f"{self.max_seq_length} {names} and {kind} predictions"

    @property
    def features(self) -> dict[str, tuple[type, int]]:
        """Our name of every feature -> (int or float, number of values)."""
        if self.dynamic:
            return dynamic_features(self.max_seq_length)
        return pretraining_features(self.max_seq_length, self.max_predictions_per_seq)

    def stored_name(self, name: str) -> str:
        """What a feature is called in the file."""
        return ORIGINAL_NAMES.get(name, name) if self.original_names else name

    def parse(self, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        """Records [B] to our name -> [B, length], int32 or float32.

        Raises:
            tf.errors.InvalidArgumentError: a record is laid out in another way.
        """
        description = {
            self.stored_name(name): tf.io.FixedLenFeature(
                [length], tf.float32 if kind is float else tf.int64
            )
            for name, (kind, length) in self.features.items()
        }
        parsed = tf.io.parse_example(serialized, description)
        return {
            name: tf.cast(parsed[self.stored_name(name)], tf.float32 if kind is float else tf.int32)
            for name, (kind, _) in self.features.items()
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

"""Defines the features of a pre-training record and serializes arrays as records.

A record is a `tf.train.Example` with the fixed-length features that google-research/bert's
create_pretraining_data.py writes, under its names or those of the TensorFlow Model Garden. A
dynamic record contains the unmasked ids and `word_starts` instead of the predictions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from bert_tf.base.output_files import whole_file

# Maps our names to those in files by google-research/bert. "v2" files of the Model Garden use ours.
ORIGINAL_NAMES = {"input_word_ids": "input_ids", "input_type_ids": "segment_ids"}

_INPUTS = ("input_word_ids", "input_mask", "input_type_ids")
_INT32 = tf.int32.min, tf.int32.max


@dataclass(frozen=True)
class Layout:
    """The layout of a record.

    Attributes:
        dynamic: whether the record is dynamic.
        original_names: whether its features have the names of google-research/bert.
        max_seq_length: number of tokens, including padding.
        max_predictions_per_seq: number of predictions, including padding; 0 for dynamic records.
    """

    dynamic: bool
    original_names: bool
    max_seq_length: int
    max_predictions_per_seq: int

    @classmethod
    def of(cls, serialized: bytes) -> "Layout":
        """Returns the layout of a record. A missing feature has length 0.

        The layout of anything but a `tf.train.Example` is empty.
        """
        found = (parse_example(serialized) or tf.train.Example()).features.feature

        def length(name: str) -> int:
            return len(found[name].int64_list.value) if name in found else 0

        original = "input_ids" in found
        return cls(
            dynamic="word_starts" in found,
            original_names=original,
            max_seq_length=length("input_ids" if original else "input_word_ids"),
            max_predictions_per_seq=length("masked_lm_positions"),
        )

    def differs_from(self, expected: "Layout") -> str:
        """Returns what differs from the expected layout, as the end of a sentence."""
        pairs = zip(self._facts(), expected._facts(), strict=True)
        found, wanted = zip(*(pair for pair in pairs if pair[0] != pair[1]), strict=True)
        return f"{' and '.join(found)}, expected {' and '.join(wanted)}"

    def _facts(self) -> tuple[str, str, str]:
        dynamic = " (--masking=dynamic)" if self.dynamic else ""
        predictions = f"{self.max_predictions_per_seq} predictions{dynamic}"
        names = "input_ids" if self.original_names else "input_word_ids (--use_v2_feature_names)"
        return f"{self.max_seq_length} tokens", predictions, names

    @property
    def features(self) -> dict[str, tuple[type, int]]:
        """The type (int or float) and number of values of each feature, by our names.

        `word_starts` is 1 at the first token of each unit, which is a word or anything else masked
        as one. It is 0 at the unit's other tokens, at [CLS] and [SEP], and in the padding.
        """
        if self.dynamic:
            own = {"word_starts": (int, self.max_seq_length)}
        else:
            own = {
                "masked_lm_positions": (int, self.max_predictions_per_seq),
                "masked_lm_ids": (int, self.max_predictions_per_seq),
                "masked_lm_weights": (float, self.max_predictions_per_seq),
            }
        inputs = dict.fromkeys(_INPUTS, (int, self.max_seq_length))
        return {**inputs, **own, "next_sentence_labels": (int, 1)}

    def stored_name(self, name: str) -> str:
        """Returns the name of a feature in the file."""
        return ORIGINAL_NAMES.get(name, name) if self.original_names else name

    def parse(self, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        """Parses serialized records [B] into features [B, length] by name, int32 or float32."""
        description = {
            self.stored_name(name): tf.io.FixedLenFeature(
                [length], tf.float32 if kind is float else tf.int64
            )
            for name, (kind, length) in self.features.items()
        }
        parsed = tf.io.parse_example(serialized, description)
        return {
            name: parsed[self.stored_name(name)]
            if kind is float
            # A cast alone would turn an id that is too large into a valid one.
            else tf.cast(tf.clip_by_value(parsed[self.stored_name(name)], *_INT32), tf.int32)
            for name, (kind, _) in self.features.items()
        }


def parse_example(serialized: bytes) -> tf.train.Example | None:
    try:
        return tf.train.Example.FromString(serialized)
    except DecodeError:
        return None


def serialize_example(values: Mapping[str, list]) -> bytes:
    """Serializes lists of integers, floats or bytes as a `tf.train.Example`."""
    example = tf.train.Example()
    for name, items in values.items():
        kind = {int: "int64_list", float: "float_list"}.get(type(next(iter(items), b"")))
        getattr(example.features.feature[name], kind or "bytes_list").value.extend(items)
    return example.SerializeToString(deterministic=True)


def serialize_examples(arrays: dict[str, np.ndarray]) -> list[bytes]:
    """Serializes row n of all arrays as the n-th `tf.train.Example`.

    Encoding a whole batch at once is many times faster than one protobuf object per row. The
    features are in the order of the dict, so that equal arrays always give equal bytes.

    Args:
        arrays: values by feature name, [N, length]. Integers become an `int64_list`,
            floats a `float_list`.
    """
    columns = [_encoded_rows(name, values) for name, values in arrays.items()]
    rows = map(b"".join, zip(*columns, strict=True))
    return [length_delimited(1, len(row)) + row for row in rows]


def _encoded_rows(name: str, values: np.ndarray) -> list[bytes]:
    """Encodes the feature of each row, with its header."""
    is_float = np.issubdtype(values.dtype, np.floating)
    if is_float:
        data, sizes = values.astype("<f4").tobytes(), np.full(len(values), 4 * values.shape[1])
    else:
        data, sizes = _varints(values)
    ends = np.cumsum(sizes).tolist()
    return [
        _feature_header(name, is_float, end - start) + data[start:end]
        for start, end in zip([0, *ends], ends, strict=False)
    ]


def _varints(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Encodes [N, L] as protobuf varints: the bytes of all rows joined, and each row's size [N]."""
    largest = values.max(initial=0) if values.min(initial=0) >= 0 else 2**64 - 1
    width = max(1, -(-int(largest).bit_length() // 7))
    if width == 1:
        return values.astype(np.uint8).tobytes(), np.full(len(values), values.shape[1])
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
    # Three times as fast as groups[kept].
    return np.compress(kept.ravel(), groups.ravel()).tobytes(), sizes


@lru_cache(maxsize=100_000)
def _feature_header(name: str, is_float: bool, length: int) -> bytes:
    """Returns what precedes the values of a feature in `tf.train.Features`: name and lengths."""
    # The field numbers are those of tensorflow/core/example/{example,feature}.proto.
    header = length_delimited(1, length)
    header = length_delimited(2 if is_float else 3, len(header) + length) + header
    key = name.encode()
    key = length_delimited(1, len(key)) + key
    header = key + length_delimited(2, len(header) + length) + header
    return length_delimited(1, len(header) + length) + header


@lru_cache(maxsize=100_000)
def length_delimited(field: int, length: int) -> bytes:
    """Returns the tag and length that precede a string, message or packed list."""
    out = [field << 3 | 2]
    while length > 0x7F:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*out, length])


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

"""Reads serialized records and checks single records and whole batches.

The rules for batches are those that google-research/bert's create_pretraining_data.py follows:
values in range, zeros in the padding, predictions sorted by position, [CLS] A [SEP] B [SEP].
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from bert_tf.base.files import plain_message, reading
from tfrecords.dynamic_masking import add_at
from tfrecords.features import Layout, parse_example
from tfrecords.vocabulary import Vocabulary

# Features of several records by name, [B, length].
FeatureBatch = dict[str, np.ndarray]
# What breaks a rule, bool [B, 1] or [B, length], and a message that says which rule.
Violations = Iterator[tuple[tf.Tensor, str]]
_Tensors = Mapping[str, tf.Tensor]

BATCH_RECORDS = 1024
# In the file, the length and its checksum precede each record; the record's checksum follows it.
FRAME_BYTES = 8 + 4 + 4
# What to do about values that are too large.
_OTHER_VOCABULARY = ": give the vocabulary that the records were created with"
_ADVICE = {
    "input_word_ids": _OTHER_VOCABULARY,
    "masked_lm_ids": _OTHER_VOCABULARY,
    "input_type_ids": ": the type_vocab_size of the configuration is the limit",
}


def compression_of(file: str) -> str:
    """Returns TensorFlow's name for the compression of a file, judged by its first bytes."""
    with reading(file) as stream:
        return "GZIP" if stream.read(2) == b"\x1f\x8b" else ""


def open_records(file: str | tf.Tensor, compression: str | tf.Tensor) -> tf.data.Dataset:
    """Returns the serialized records of a file."""
    return tf.data.TFRecordDataset(file, compression_type=compression)


def files_to_open(files: Sequence[str]) -> tf.data.Dataset:
    """Returns the files and their compressions, as `open_records` takes them."""
    compressions = [compression_of(file) for file in files]
    return tf.data.Dataset.from_tensor_slices((list(files), compressions))


def first_records(files: Sequence[str]) -> Iterator[bytes]:
    """Yields the first serialized record of each file; raises an error that names the file.

    Making a dataset takes milliseconds, so one reads all files.
    """

    @tf.autograph.experimental.do_not_convert
    def first(file: tf.Tensor, compression: tf.Tensor) -> tf.Tensor:
        none = tf.data.Dataset.from_tensors(tf.zeros([0], tf.string))
        records = open_records(file, compression).take(1).batch(1)
        return records.concatenate(none).take(1).get_single_element()

    records = files_to_open(files).map(first, num_parallel_calls=16).as_numpy_iterator()
    for file in files:
        try:
            record = next(records)
        except tf.errors.DataLossError:
            raise ValueError(f"{file} is damaged or not a TFRecord file") from None
        except tf.errors.OpError as error:
            raise OSError(f"cannot read {file}: {plain_message(error)}") from None
        if not record.size:
            raise ValueError(f"{file} contains no records: leave it out")
        yield record[0]


def serialized_records(file: str) -> Iterator[bytes]:
    """Returns an iterator over the serialized records of a file."""
    return open_records(file, compression_of(file)).as_numpy_iterator()


# For a record that is not UTF-8, TensorFlow's error may be that it cannot decode its own message.
_READING_ERRORS = (tf.errors.OpError, UnicodeDecodeError)


@dataclass(frozen=True)
class Rules:
    """The rules that records of a layout follow, in files and while a model trains on them.

    Token ids are below `vocab_size`, and segment ids below `num_types`. With a vocabulary, the
    places of [CLS] and [SEP] are checked, too.
    """

    layout: Layout
    vocab_size: int = tf.int32.max
    num_types: int = 2
    vocab: Vocabulary | None = None

    def broken(self, batch: _Tensors) -> tf.Tensor:
        """Returns the first rule that each record of a batch breaks, or "", as strings [B]."""
        wrong, messages = zip(*self._violations(batch), strict=True)
        # Each rule assumes that the record obeys all earlier ones.
        numbers = [
            tf.where(tf.reduce_any(x, axis=1), number, len(messages))
            for number, x in enumerate(wrong)
        ]
        return tf.gather([*messages, ""], tf.reduce_min(numbers, axis=0))

    def check(self, serialized: Sequence[bytes]) -> tuple[FeatureBatch, dict[int, str]]:
        """Returns the features of the good records, and the problem of each other by its index."""
        problems: dict[int, str | None] = dict.fromkeys(range(len(serialized)))
        try:
            batch = self.layout.parse(tf.constant(serialized, tf.string))
        except _READING_ERRORS:
            # At least one record cannot be read.
            problems = {row: self.problem_of(record) for row, record in enumerate(serialized)}
            readable = [serialized[row] for row in problems if not problems[row]]
            batch = self.layout.parse(tf.constant(readable, tf.string))
        broken = self.broken(batch).numpy()
        rows = [row for row in problems if not problems[row]]
        for row, rule in zip(rows, broken, strict=True):
            if rule:
                problems[row] = self.problem_of(serialized[row]) or rule.decode()
        good = {name: values.numpy()[broken == b""] for name, values in batch.items()}
        return good, {row: problem for row, problem in problems.items() if problem}

    def problem_of(self, serialized: bytes) -> str | None:
        """Returns what makes a record unreadable, or the value that is out of range, or None."""
        example, found = parse_example(serialized), Layout.of(serialized)
        if example is None:
            return "not a tf.train.Example"
        for name, (kind, length) in found.features.items():
            stored = found.stored_name(name)
            if stored not in example.features.feature:
                return f"no feature {stored!r}: use records that create_pretraining_data wrote"
            feature = example.features.feature[stored]
            values = (feature.float_list if kind is float else feature.int64_list).value
            if len(values) != length:
                return f"{stored} has {len(values)} values, expected {length}"
            # NaN fails this test, too.
            if bad := [value for value in values if not 0 <= value <= self._largest(name)]:
                advice = _ADVICE.get(name, "") if bad[0] > 0 else ""
                return f"{stored} has {bad[0]}, outside 0 to {self._largest(name)}{advice}"
        return found.differs_from(self.layout) if found != self.layout else None

    def _largest(self, name: str) -> int:
        """Returns the largest valid value of a feature; the smallest is 0."""
        limits = {
            "input_word_ids": self.vocab_size,
            "masked_lm_ids": self.vocab_size,
            "masked_lm_positions": self.layout.max_seq_length,
            "input_type_ids": self.num_types,
        }
        return limits.get(name, 2) - 1

    def _violations(self, batch: _Tensors) -> Violations:
        mask, types, ids = batch["input_mask"], batch["input_type_ids"], batch["input_word_ids"]
        columns = tf.range(mask.shape[1])
        lengths = _count(mask != 0)
        inside = columns < lengths
        yield mask != tf.cast(inside, mask.dtype), "input_mask is not ones followed by zeros"
        yield lengths < 2, "fewer than two tokens"
        for name in self.layout.features:
            wrong = ~((batch[name] >= 0) & (batch[name] <= self._largest(name)))
            yield wrong, f"{name} has a value outside 0 to {self._largest(name)}"
        yield (ids != 0) & ~inside, "an id in the padding is not 0"
        yield (types != 0) & ~inside, "a segment id in the padding is not 0"
        in_a = lengths - _count(types != 0)
        expected = (columns >= in_a) & inside
        yield (types != 0) != expected, "the segment ids are not zeros followed by ones"
        if not self.layout.dynamic:
            yield from self._violations_of_predictions(batch, lengths)
        if self.vocab:
            yield from self._violations_of_special_tokens(batch, in_a, lengths)
        if self.layout.dynamic:
            yield from self._violations_of_word_starts(batch, in_a, lengths)

    def _violations_of_predictions(self, batch: _Tensors, lengths: tf.Tensor) -> Violations:
        positions, labels = batch["masked_lm_positions"], batch["masked_lm_ids"]
        predicted = batch["masked_lm_weights"] > 0
        real = tf.range(predicted.shape[1]) < _count(predicted)
        yield predicted != real, "masked_lm_weights is not positive numbers followed by zeros"
        yield (positions != 0) & ~real, "a masked position in the padding is not 0"
        yield (labels != 0) & ~real, "a label in the padding is not 0"
        outside = (positions < 1) | (positions >= lengths)
        yield outside & real, "a masked position is not that of a token after [CLS]"
        unordered = (positions[:, 1:] <= positions[:, :-1]) & real[:, 1:]
        yield unordered, "the masked positions are not strictly ascending"
        if vocab := self.vocab:
            special = (labels == vocab.pad_id) | (labels == vocab.cls_id) | (labels == vocab.sep_id)
            yield special & real, "a label is [PAD], [CLS] or [SEP]"

    def _violations_of_special_tokens(
        self, batch: _Tensors, in_a: tf.Tensor, lengths: tf.Tensor
    ) -> Violations:
        ids = _unmasked_ids(batch)
        columns, is_sep = tf.range(ids.shape[1]), ids == self.vocab.sep_id
        yield ids[:, :1] != self.vocab.cls_id, "the first token is not [CLS]"
        yield _count(ids == self.vocab.cls_id) > 1, "[CLS] occurs more than once"
        yield (columns == lengths - 1) & ~is_sep, "the last token is not [SEP]"
        yield (columns == in_a - 1) & ~is_sep, "the first segment does not end with [SEP]"
        # In a row with one segment, each [SEP] may end a document.
        yield (in_a < lengths) & (_count(is_sep) != 2), "[SEP] occurs inside a segment"

    def _violations_of_word_starts(
        self, batch: _Tensors, in_a: tf.Tensor, lengths: tf.Tensor
    ) -> Violations:
        starts, ids = batch["word_starts"], batch["input_word_ids"]
        columns = tf.range(starts.shape[1])
        special = (columns == 0) | (columns >= lengths - 1) | (columns == in_a - 1)
        if self.vocab:
            special |= (ids == self.vocab.cls_id) | (ids == self.vocab.sep_id)
        yield (starts != 0) & special, "a word starts at [CLS], [SEP] or in the padding"
        missing = special[:, :-1] & ~special[:, 1:] & (starts[:, 1:] != 1)
        yield missing, "no word starts at the first token of a segment"


def checked_batches(file: str, rules: Rules) -> Iterator[tuple[FeatureBatch, dict[int, str], int]]:
    """Yields, for each batch of a file, the good records, the problems of the others, and its size.

    The problems are by the number of the record, counted from 1. The size is in bytes, as in the
    file. Raises a ValueError where the file is damaged.
    """
    compression = compression_of(file)
    records, done, consumed = open_records(file, compression), 0, 0
    damage, batches = None, iter(records.batch(BATCH_RECORDS).prefetch(4).as_numpy_iterator())
    while not damage:
        try:
            serialized = next(batches, None)
        except tf.errors.OpError as error:
            # The batch is lost, so the records before the damage are read one by one.
            rest = records.skip(done).ignore_errors().as_numpy_iterator()
            serialized, damage = [*rest], plain_message(error)
        if serialized is None:
            break
        size = sum(map(len, serialized)) + FRAME_BYTES * len(serialized)
        good, problems = rules.check(serialized)
        yield good, {done + row + 1: problem for row, problem in problems.items()}, size
        done += len(serialized)
        consumed += size
    if damage:
        raise ValueError(f"{file}, record {done + 1}: truncated or corrupt ({damage})")
    # TensorFlow mistakes the first bytes of a truncated record for the end of the file.
    if not compression and consumed != tf.io.gfile.stat(file).length:
        raise ValueError(f"{file}, record {done + 1}: truncated in its first bytes")


def _count(values: tf.Tensor) -> tf.Tensor:
    """Returns how many values [B, L] are true in each row, [B, 1]."""
    return tf.math.count_nonzero(values, axis=1, keepdims=True, dtype=tf.int32)


def _unmasked_ids(batch: _Tensors) -> tf.Tensor:
    """Returns the ids [B, S] with the labels in place of the masked tokens."""
    ids = batch["input_word_ids"]
    if "masked_lm_ids" not in batch:
        return ids
    # Positions out of range break a rule.
    positions = tf.clip_by_value(batch["masked_lm_positions"], 0, ids.shape[1] - 1)
    changes = batch["masked_lm_ids"] - tf.gather(ids, positions, batch_dims=1)
    return add_at(ids, positions, tf.where(batch["masked_lm_weights"] > 0, changes, 0))

"""Reads serialized records and checks single records and whole batches.

The rules for batches are those that google-research/bert's create_pretraining_data.py follows:
values in range, zeros in the padding, predictions sorted by position, [CLS] A [SEP] B [SEP].
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from tfrecords.features import Layout, parse_example
from tfrecords.files import named_errors, plain_message
from tfrecords.vocabulary import Vocabulary

# Features of several records by name, [B, length].
Batch = dict[str, np.ndarray]
# What breaks a rule, bool [B] or [B, length], and a message that says which rule.
Violation = tuple[np.ndarray, str]

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
    with named_errors(f"cannot read {file}"), tf.io.gfile.GFile(file, "rb") as stream:
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
        none = tf.data.Dataset.from_tensors(b"")
        return open_records(file, compression).concatenate(none).take(1).get_single_element()

    records = files_to_open(files).map(first, num_parallel_calls=16).as_numpy_iterator()
    for file in files:
        try:
            record = next(records)
        except tf.errors.DataLossError:
            raise ValueError(f"{file} is damaged or not a TFRecord file") from None
        except tf.errors.OpError as error:
            raise OSError(f"cannot read {file}: {plain_message(error)}") from None
        if not record:
            raise ValueError(f"{file} contains no records: leave it out")
        yield record


def serialized_records(file: str, skip: int = 0) -> Iterator[bytes]:
    """Returns an iterator over the serialized records of a file after the first `skip`."""
    return open_records(file, compression_of(file)).skip(skip).as_numpy_iterator()


def first_bad_record(
    file: str, problem_of: Callable[[bytes], str | None], skip: int = 0
) -> str | None:
    """Returns the first record of a file with a problem, as "FILE, record N: problem", or None.

    `problem_of` says what is wrong with a serialized record. The first `skip` records are good.
    """
    number = skip
    try:
        for number, serialized in enumerate(serialized_records(file, skip), start=skip + 1):
            if problem := problem_of(serialized):
                return f"{file}, record {number}: {problem}"
    except tf.errors.OpError as error:
        return f"{file}, record {number + 1}: truncated or corrupt ({plain_message(error)})"
    return None


# For a record that is not UTF-8, TensorFlow's error may be that it cannot decode its own message.
READING_ERRORS = (tf.errors.OpError, UnicodeDecodeError)


def largest_values(
    names: Iterable[str], max_seq_length: int, vocab_size: int, num_types: int = 2
) -> dict[str, int]:
    """Returns the largest valid value of each feature; the smallest is 0."""
    limits = {
        "input_word_ids": vocab_size,
        "masked_lm_ids": vocab_size,
        "masked_lm_positions": max_seq_length,
        "input_type_ids": num_types,
    }
    return {name: limits.get(name, 2) - 1 for name in names}


def problem_of_record(
    serialized: bytes, layout: Layout, vocab_size: int = 2**31, num_types: int = 2
) -> str | None:
    """Returns what is wrong with one record, or None; the sizes are limits of its ids."""
    example = parse_example(serialized)
    if example is None:
        return "not a tf.train.Example"
    largest = largest_values(layout.features, layout.max_seq_length, vocab_size, num_types)
    for name, (kind, length) in layout.features.items():
        stored = layout.stored_name(name)
        if stored not in example.features.feature:
            return f"no feature {stored!r}: use records that create_pretraining_data wrote"
        feature = example.features.feature[stored]
        values = (feature.float_list if kind is float else feature.int64_list).value
        if len(values) != length:
            flag = "max_predictions_per_seq" if name.startswith("masked_lm") else "max_seq_length"
            return (
                f"{stored} has {len(values)} values instead of --{flag}={length}: pass the value "
                "that the records were created with"
            )
        # NaN fails this test, too.
        if bad := [value for value in values if not 0 <= value <= largest[name]]:
            advice = _ADVICE.get(name, "")
            return f"{stored} has {bad[0]}, outside 0 to {largest[name]}{advice}"
    return None


def first_violation(batch: Batch, vocab: Vocabulary | None) -> tuple[int, str] | None:
    """Returns the first row of a batch that breaks a rule, and which rule, or None.

    If a vocabulary is given, it also checks ids against it.
    """
    # Each rule assumes that the row obeys all earlier ones, so only the first broken rule counts.
    first: tuple[int, str] | None = None
    for wrong, message in _violations(batch, vocab):
        broken = wrong.reshape(len(wrong), -1).any(axis=1)
        row = int(np.argmax(broken))
        if broken[row] and (first is None or row < first[0]):
            first = row, message
    return first


def _violations(batch: Batch, vocab: Vocabulary | None) -> Iterator[Violation]:
    mask, types, ids = batch["input_mask"], batch["input_type_ids"], batch["input_word_ids"]
    columns = np.arange(mask.shape[1], dtype=np.int32)
    lengths = np.count_nonzero(mask, axis=1)
    inside = columns < lengths[:, None]
    yield mask != inside, "input_mask is not ones followed by zeros"
    yield lengths < 2, "fewer than two tokens"
    vocab_size = len(vocab) if vocab else 2**31
    for name, largest in largest_values(batch, mask.shape[1], vocab_size).items():
        message = f"{name} has a value outside 0 to {largest}"
        yield (batch[name] < 0) | (batch[name] > largest), message
    yield (ids != 0) & ~inside, "an id in the padding is not 0"
    yield (types != 0) & ~inside, "a segment id in the padding is not 0"
    in_a = lengths - np.count_nonzero(types, axis=1)
    expected = (columns >= in_a[:, None]) & inside
    yield types != expected, "the segment ids are not zeros followed by ones"
    if "masked_lm_ids" in batch:
        yield from _violations_of_predictions(batch, lengths, vocab)
    if vocab:
        yield from _violations_of_special_tokens(_unmasked_ids(batch), in_a, lengths, vocab)
    if "word_starts" in batch:
        yield from _violations_of_word_starts(batch, in_a, lengths, vocab)


def _violations_of_predictions(
    batch: Batch, lengths: np.ndarray, vocab: Vocabulary | None
) -> Iterator[Violation]:
    positions, labels = batch["masked_lm_positions"], batch["masked_lm_ids"]
    weights = batch["masked_lm_weights"]
    count = np.count_nonzero(weights, axis=1)
    real = np.arange(weights.shape[1]) < count[:, None]
    yield weights != real, "masked_lm_weights is not ones followed by zeros"
    yield (positions != 0) & ~real, "a masked position in the padding is not 0"
    yield (labels != 0) & ~real, "a label in the padding is not 0"
    outside = (positions < 1) | (positions >= lengths[:, None])
    yield outside & real, "a masked position is not that of a token after [CLS]"
    unordered = (np.diff(positions, axis=1) <= 0) & real[:, 1:]
    yield unordered, "the masked positions are not strictly ascending"
    if vocab:
        special = np.isin(labels, (vocab.pad_id, vocab.cls_id, vocab.sep_id))
        yield special & real, "a label is [PAD], [CLS] or [SEP]"


def _violations_of_special_tokens(
    ids: np.ndarray, in_a: np.ndarray, lengths: np.ndarray, vocab: Vocabulary
) -> Iterator[Violation]:
    rows = np.arange(len(ids))
    yield ids[:, 0] != vocab.cls_id, "the first token is not [CLS]"
    yield np.count_nonzero(ids == vocab.cls_id, axis=1) > 1, "[CLS] occurs more than once"
    is_sep = ids == vocab.sep_id
    yield ~is_sep[rows, lengths - 1], "the last token is not [SEP]"
    yield ~is_sep[rows, in_a - 1], "the first segment does not end with [SEP]"
    # In a row with one segment, each [SEP] may end a document.
    extra = (in_a < lengths) & (np.count_nonzero(is_sep, axis=1) != 2)
    yield extra, "[SEP] occurs inside a segment"


def _violations_of_word_starts(
    batch: Batch, in_a: np.ndarray, lengths: np.ndarray, vocab: Vocabulary | None
) -> Iterator[Violation]:
    starts, ids = batch["word_starts"], batch["input_word_ids"]
    columns = np.arange(starts.shape[1], dtype=np.int32)
    special = (columns == 0) | (columns >= lengths[:, None] - 1) | (columns == in_a[:, None] - 1)
    if vocab:
        special |= (ids == vocab.cls_id) | (ids == vocab.sep_id)
    yield (starts != 0) & special, "a word starts at [CLS], [SEP] or in the padding"
    missing = special[:, :-1] & ~special[:, 1:] & (starts[:, 1:] != 1)
    yield missing, "no word starts at the first token of a segment"


def _unmasked_ids(batch: Batch) -> np.ndarray:
    """Returns the ids [B, S] with the labels in place of the masked tokens."""
    ids = batch["input_word_ids"]
    if "masked_lm_ids" not in batch:
        return ids
    ids = ids.copy()
    rows, slots = np.nonzero(batch["masked_lm_weights"])
    positions = np.clip(batch["masked_lm_positions"], 0, ids.shape[1] - 1)
    ids[rows, positions[rows, slots]] = batch["masked_lm_ids"][rows, slots]
    return ids

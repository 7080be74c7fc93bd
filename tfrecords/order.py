"""Which records to read, in which order in training, and which of them are held out.

The order of an epoch depends only on the seed and the epoch number. A run that resumes at any step,
on any number of machines, therefore finds the records of that step without any saved state.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import tensorflow as tf

from bert_tf.base.input_files import normalized
from tfrecords.dynamic_masking import DynamicMasking
from tfrecords.manifest import find_manifests, listed_files
from tfrecords.records import compression_of, files_to_open, open_records
from tfrecords.vocabulary import Vocabulary

# Serialized records in the shuffle buffer: about 15 MB at length 128 and 60 MB at 512.
SHUFFLE_BUFFER_RECORDS = 16_384
FILES_READ_AT_ONCE = 8
HELD_OUT_EVERY = 100

OpenFile = Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]


@dataclass(frozen=True, kw_only=True)
class RecordSet:
    """Pre-training records to read.

    Attributes:
        files: TFRecord files, as returned by `input_files.expand_files`.
        max_seq_length: S, the number of tokens per record.
        max_predictions_per_seq: P, the number of predictions per record; S - 1 for the dynamic
            masking "left_to_right".
        vocab_size: upper bound of all token ids.
        num_types: upper bound of all segment ids.
        vocab: if given, the places of [CLS] and [SEP] are checked.
        seed: seed of the training order.
        part: "all"; "held_out" for the first of every 100 records of each file; "train" for the
            others.
        masking: how to mask dynamic records; None for records that are already masked.

    Example:
        records = RecordSet(files=("data/train.tfrecord",), max_seq_length=128,
                            max_predictions_per_seq=20, vocab_size=30522)
        batches = training_batches(records, batch_size=32)
    """

    files: tuple[str, ...]
    max_seq_length: int
    max_predictions_per_seq: int
    vocab_size: int
    num_types: int = 2
    vocab: Vocabulary | None = None
    seed: int = 0
    part: str = "all"
    masking: DynamicMasking | None = None


@tf.autograph.experimental.do_not_convert
def records_in_order(records: RecordSet) -> tf.data.Dataset:
    """Returns the serialized records once, in file order."""
    open_part = partial(_open_part, open_records, records.part)
    return files_to_open(records.files).flat_map(open_part)


@tf.autograph.experimental.do_not_convert
def training_records(
    records: RecordSet, first_record: int = 0, open_file: OpenFile = open_records
) -> tf.data.Dataset:
    """Returns the serialized records, shuffled, for endless epochs.

    Skips the first `first_record` of them: whole epochs without reading them, given the number of
    records; files without a manifest are counted. `open_file` returns what stands for the records
    of a file, given its name and compression.
    """
    files, part = records.files, records.part
    if not any(True for _ in records_in_order(records).take(1)):
        # An endless sequence of empty epochs would never yield a record.
        raise ValueError(
            f"{', '.join(files)}: no records are left to train on, because the first of every "
            f"{HELD_OUT_EVERY} records of each file is held out: use files with more records"
        )
    first_epoch = skipped = 0
    if first_record:
        counts = count_records(files)
        held_out = sum(-(-count // HELD_OUT_EVERY) for count in counts)
        size = {"all": sum(counts), "held_out": held_out, "train": sum(counts) - held_out}[part]
        first_epoch, skipped = divmod(first_record, size)
    sources = files_to_open(files)

    def read_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        # In a function of a dataset, this sets the seed of the function's graph. Without it, the
        # order would also depend on the global seed of the program.
        tf.compat.v1.set_random_seed(1)
        root = tf.stack([tf.constant(records.seed, tf.int64), epoch])
        seeds = tf.random.stateless_uniform([2], root, 1, 2**31 - 1, tf.int64, alg="philox")
        shuffled = sources.shuffle(len(files), seeds[0], reshuffle_each_iteration=False).interleave(
            partial(_open_part, open_file, part),
            cycle_length=FILES_READ_AT_ONCE,
            num_parallel_calls=2,
            deterministic=True,
        )
        return shuffled.shuffle(SHUFFLE_BUFFER_RECORDS, seeds[1], reshuffle_each_iteration=False)

    return tf.data.Dataset.counter(first_epoch).flat_map(read_epoch).skip(skipped)


@tf.autograph.experimental.do_not_convert
def records_of_step(records: RecordSet, batch_size: int, step: int) -> list[tuple[str, int]]:
    """Returns the file and record number (starting at 1) of each row of a training batch.

    Args:
        batch_size: the global batch size, over all replicas.
        step: number of steps already taken.
    """
    places = training_records(records, step * batch_size, _numbered_records)
    rows = places.take(batch_size).as_numpy_iterator()
    return [(row["file"].decode(), int(row["number"])) for row in rows]


def count_records(files: Sequence[str]) -> list[int]:
    """Returns the number of records of each file, from its manifest or by reading it.

    The manifest is used only if it lists the file with its current size.
    """
    listed, counts = listed_files(find_manifests(files)), []
    for file in files:
        entry = listed.get(normalized(file))
        if entry and entry["bytes"] == tf.io.gfile.stat(file).length:
            counts.append(entry["records"])
        else:
            batches = open_records(file, compression_of(file)).batch(1024)
            zero = tf.constant(0, tf.int64)
            count = batches.reduce(zero, lambda n, batch: n + tf.size(batch, tf.int64))
            counts.append(int(count))
    return counts


def _numbered_records(file: tf.Tensor, compression: tf.Tensor) -> tf.data.Dataset:
    """Returns the file, number and content of each record as a dict."""
    numbers = tf.data.Dataset.counter(1)
    names = tf.data.Dataset.from_tensors(file).repeat()
    records = open_records(file, compression)
    return tf.data.Dataset.zip({"file": names, "number": numbers, "record": records})


def _open_part(
    open_file: OpenFile, part: str, file: tf.Tensor, compression: tf.Tensor
) -> tf.data.Dataset:
    records = open_file(file, compression)
    if part == "held_out":
        return records.shard(HELD_OUT_EVERY, 0)
    if part == "train":
        # Many times faster than a filter, which calls a function for every record.
        hundreds = records.batch(HELD_OUT_EVERY)
        return hundreds.map(partial(tf.nest.map_structure, lambda values: values[1:])).unbatch()
    assert part == "all", part
    return records

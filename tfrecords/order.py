"""Which records to read, in which order in training, and which of them are held out.

The order of an epoch depends only on the seed and the epoch number. A run that resumes at any step,
on any number of machines, therefore finds the records of that step without any saved state.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import tensorflow as tf

from tfrecords.dynamic_masking import DynamicMasking
from tfrecords.manifest import manifest_path, read_manifest
from tfrecords.records import compression_of, open_records

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
        seed: seed of the training order.
        part: "all"; "held_out" for the first of every 100 records of each file; "train" for the
            others.
        masking: how to mask dynamic records; None for records that are already masked.
    """

    files: tuple[str, ...]
    max_seq_length: int
    max_predictions_per_seq: int
    vocab_size: int
    num_types: int = 2
    seed: int = 0
    part: str = "all"
    masking: DynamicMasking | None = None


@tf.autograph.experimental.do_not_convert
def records_in_order(files: Sequence[str], part: str = "all") -> tf.data.Dataset:
    """Returns the serialized records of a part of the files once, in file order."""
    return _sources(files).flat_map(partial(_open_part, open_records, part))


@tf.autograph.experimental.do_not_convert
def training_records(
    files: Sequence[str], seed: int, part: str = "all", first_record: int = 0
) -> tf.data.Dataset:
    """Returns the serialized records of a part of the files, shuffled, for endless epochs.

    Args:
        first_record: how many records to skip at the start. Whole epochs are skipped without
            reading them, given the number of records; files without a manifest are counted.
    """
    return _epochs(files, seed, part, first_record, open_records)


@tf.autograph.experimental.do_not_convert
def records_of_step(records: RecordSet, batch_size: int, step: int) -> list[tuple[str, int]]:
    """Returns the file and record number (starting at 1) of each row of a training batch.

    Args:
        batch_size: the global batch size, over all replicas.
        step: number of steps already taken.
    """
    first_record = step * batch_size
    places = _epochs(records.files, records.seed, records.part, first_record, _numbered_records)
    rows = places.take(batch_size).as_numpy_iterator()
    return [(row["file"].decode(), int(row["number"])) for row in rows]


def count_records(files: Sequence[str]) -> list[int]:
    """Returns the number of records of each file, from its manifest or by reading it.

    The manifest is used only if it lists the file with its current size.
    """
    listed = {path: _listed_counts(path) for path in set(map(manifest_path, files))}
    counts = []
    for file in files:
        entry = os.path.basename(file), tf.io.gfile.stat(file).length
        count = listed[manifest_path(file)].get(entry)
        counts.append(_count_by_reading(file) if count is None else count)
    return counts


def _epochs(
    files: Sequence[str], seed: int, part: str, first_record: int, open_file: OpenFile
) -> tf.data.Dataset:
    """Returns `training_records`, with elements of `open_file` in place of records."""
    if not any(True for _ in records_in_order(files, part).take(1)):
        # An endless sequence of empty epochs would never yield a record.
        raise ValueError(
            f"{', '.join(files)}: no records are left to train on, because the first of every "
            f"{HELD_OUT_EVERY} records of each file is held out: use files with more records"
        )
    first_epoch = skipped = 0
    if first_record:
        size = sum(_size_of_part(count, part) for count in count_records(files))
        first_epoch, skipped = divmod(first_record, size)
    epoch = partial(_epoch, _sources(files), len(files), seed, part, open_file)
    return tf.data.Dataset.counter(first_epoch).flat_map(epoch).skip(skipped)


def _epoch(
    sources: tf.data.Dataset,
    num_files: int,
    seed: int,
    part: str,
    open_file: OpenFile,
    epoch: tf.Tensor,
) -> tf.data.Dataset:
    # In a function of a dataset, this sets the seed of the function's graph. Without it, the order
    # would also depend on the global seed of the program.
    tf.compat.v1.set_random_seed(1)
    root = tf.stack([tf.constant(seed, tf.int64), epoch])
    seeds = tf.random.stateless_uniform([2], root, 1, 2**31 - 1, tf.int64, alg="philox")
    records = sources.shuffle(num_files, seeds[0], reshuffle_each_iteration=False).interleave(
        partial(_open_part, open_file, part),
        cycle_length=FILES_READ_AT_ONCE,
        num_parallel_calls=2,
        deterministic=True,
    )
    return records.shuffle(SHUFFLE_BUFFER_RECORDS, seeds[1], reshuffle_each_iteration=False)


def _sources(files: Sequence[str]) -> tf.data.Dataset:
    """Returns a dataset of the files and their compressions."""
    compressions = [compression_of(file) for file in files]
    return tf.data.Dataset.from_tensor_slices((list(files), compressions))


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


def _size_of_part(count: int, part: str) -> int:
    held_out = -(-count // HELD_OUT_EVERY)
    return {"all": count, "held_out": held_out, "train": count - held_out}[part]


def _listed_counts(manifest: str) -> dict[tuple[str, int], int]:
    """Returns the number of records per file name and size; {} without a valid manifest."""
    if not tf.io.gfile.exists(manifest):
        return {}
    try:
        shards = read_manifest(manifest)["shards"]
    except ValueError:
        return {}
    return {(shard["file"], shard["bytes"]): shard["records"] for shard in shards}


def _count_by_reading(file: str) -> int:
    batches = open_records(file, compression_of(file)).batch(1024)
    return int(batches.reduce(tf.constant(0, tf.int64), lambda n, b: n + tf.size(b, tf.int64)))

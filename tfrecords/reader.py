"""Reads pre-training TFRecords: the order of records, `tf.data` batches, and what is wrong.

The order of an epoch depends only on the seed and the epoch number. A run that resumes at any step,
on any number of machines, therefore finds the records of that step without any saved state.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import tensorflow as tf

from bert_tf.base.files import normalized
from tfrecords.dynamic_masking import EVALUATION, TRAINING, DynamicMasking, mask_batch
from tfrecords.features import Layout
from tfrecords.manifest import find_manifests, listed_files
from tfrecords.records import (
    Rules,
    checked_batches,
    compression_of,
    files_to_open,
    first_records,
    open_records,
)
from tfrecords.vocabulary import Vocabulary

# Serialized records in the shuffle buffer: about 15 MB at length 128 and 60 MB at 512.
SHUFFLE_BUFFER_RECORDS = 16_384
FILES_READ_AT_ONCE = 8
HELD_OUT_EVERY = 100
EVALUATION_BLOCK_RECORDS = 64
# The features that show whether records teach anything.
_SAMPLE_FILES, _SAMPLE_RECORDS = 8, 512

OpenFile = Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]


@dataclass(frozen=True, kw_only=True)
class RecordSet:
    """Pre-training records to read.

    Attributes:
        files: TFRecord files, as returned by `expand_files`.
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
            f"{HELD_OUT_EVERY} records of each file is held out: use more, or --eval_input_file"
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
    """Returns each file's number of records, from a manifest with its size, or by reading it."""
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


def check_files(records: RecordSet) -> bool:
    """Checks the first record of each file; returns whether they must be masked while reading."""
    firsts = list(first_records(records.files))
    rules = _rules(records)
    for row, problem in rules.check(firsts)[1].items():
        found = Layout.of(firsts[row])
        if found != rules.layout and problem == found.differs_from(rules.layout):
            problem += (
                f", as in {records.files[0]}: create both with the same flags"
                if row
                else ": pass the --max_seq_length and --max_predictions_per_seq of the records"
            )
        raise ValueError(f"{records.files[row]}, record 1: {problem}")
    return rules.layout.dynamic


@tf.autograph.experimental.do_not_convert
def sample_batch(records: RecordSet) -> dict[str, np.ndarray]:
    """Returns the features [N, length] of the first records of the first few files."""
    files = records.files[:_SAMPLE_FILES]
    serialized = files_to_open(files).flat_map(
        lambda file, compression: open_records(file, compression).take(_SAMPLE_RECORDS)
    )
    batches = serialized.batch(_SAMPLE_FILES * _SAMPLE_RECORDS).map(_rules(records).layout.parse)
    return next(batches.as_numpy_iterator())


# Nothing here needs AutoGraph, which would take a second to rewrite the functions of datasets.
@tf.autograph.experimental.do_not_convert
def training_batches(
    records: RecordSet,
    batch_size: int,
    first_step: int = 0,
    context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Returns an endless dataset of training batches.

    Each element is a dict: `input_word_ids`, `input_mask`, `input_type_ids` [B, S] int32,
    `masked_lm_positions`, `masked_lm_ids` [B, P] int32, `masked_lm_weights` [B, P] float32,
    `next_sentence_labels` [B] int32 and `example_weights` [B] float32.

    Every epoch contains each record once. The order depends only on the seed and the epoch number.
    Each step takes the next B records per replica, across epoch boundaries if necessary. The
    records of a step depend neither on the number of replicas nor on `first_step`. Dynamic records
    are masked differently in every epoch; the masks depend only on the seed of the masking, the
    step and the row.

    Args:
        records: records that `check_files` accepts; dynamic ones need a `masking`.
        batch_size: B, the number of rows per replica.
        first_step: number of steps already taken.
        context: input context from `distribute_datasets_from_function`. Each input pipeline reads
            all records but decodes only the batches of its own replicas.

    Raises:
        ValueError: the part has no records.
        tf.errors.DataLossError: a file is damaged. Raised while reading, or at once if the records
            must be counted to find `first_step`.
        tf.errors.InvalidArgumentError: while reading, for an invalid record. In both cases,
            `explain_bad_record` finds the file and the record.
    """
    context = context or tf.distribute.InputContext()
    first_record = first_step * batch_size * context.num_replicas_in_sync
    serialized = training_records(records, first_record)
    decode = _decoder(records, TRAINING)
    # Replica r takes the r-th batch of a step.
    replicas = context.num_replicas_in_sync
    own_replicas = replicas // context.num_input_pipelines
    batches = serialized.batch(batch_size, drop_remainder=True).enumerate(first_step * replicas)

    def is_own(number, batch):
        return number % replicas // own_replicas == context.input_pipeline_id

    def decode_own(number, batch):
        return decode(number // replicas, number % replicas * batch_size, batch)

    if context.num_input_pipelines > 1:
        batches = batches.filter(is_own)
    return _deterministic(batches.map(decode_own, num_parallel_calls=tf.data.AUTOTUNE))


@tf.autograph.experimental.do_not_convert
def evaluation_batches(
    records: RecordSet, batch_size: int, context: tf.distribute.InputContext | None = None
) -> tf.data.Dataset:
    """Returns a dataset of evaluation batches: every record once, in file order.

    The elements have the same features and shapes as those of `training_batches`. The last batch is
    padded with rows of zeros, whose `example_weights` are 0. A dynamic record gets the same masks
    every time, regardless of the batch size.

    The arguments, and the errors while reading, are those of `training_batches`. All input
    pipelines yield the same number of batches, a multiple of the number of replicas per pipeline.
    """
    decode = _decoder(records, EVALUATION)
    # Decoded in blocks of a fixed size, so that masks do not depend on the batch size.
    blocks = records_in_order(records).batch(EVALUATION_BLOCK_RECORDS)
    decoded = blocks.enumerate().map(
        lambda number, block: decode(number, 0, block), num_parallel_calls=tf.data.AUTOTUNE
    )
    # Each pipeline reads all records and takes its part of each global batch. This way, all yield
    # the same number of batches without counting the records first.
    context = context or tf.distribute.InputContext()
    global_size = batch_size * context.num_replicas_in_sync

    def pad(values: tf.Tensor) -> tf.Tensor:
        missing = [[0, global_size - tf.shape(values)[0]]] + [[0, 0]] * (values.shape.rank - 1)
        shape = [context.num_input_pipelines, -1, batch_size, *values.shape[1:]]
        return tf.reshape(tf.pad(values, missing), shape)[context.input_pipeline_id]

    batches = decoded.rebatch(global_size).map(lambda batch: tf.nest.map_structure(pad, batch))
    return _deterministic(batches.unbatch())


def explain_bad_record(records: RecordSet) -> str | None:
    """Reads all files record by record to find out why reading batches failed.

    Returns one line with the file, the number of the record (from 1) and the problem; None if all
    records are valid.
    """
    for file in records.files:
        try:
            for _, problems, _ in checked_batches(file, _rules(records)):
                for number, problem in problems.items():
                    return f"{file}, record {number}: {problem}"
        except (OSError, ValueError) as error:
            return str(error)
    return None


def _rules(records: RecordSet) -> Rules:
    """Returns the rules of all records; the first one shows their kind and feature names."""
    (first,) = first_records(records.files[:1])
    layout, length = Layout.of(first), records.max_seq_length
    predictions = 0 if layout.dynamic else records.max_predictions_per_seq
    layout = Layout(layout.dynamic, layout.original_names, length, predictions)
    return Rules(layout, records.vocab_size, records.num_types, records.vocab)


def _deterministic(batches: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    options.deterministic = True
    return batches.prefetch(tf.data.AUTOTUNE).with_options(options)


def _decoder(records: RecordSet, stream: int) -> Callable:
    """Returns a function of a batch's number, its first row here and records, which decodes."""
    rules = _rules(records)
    masking, max_predictions = records.masking, records.max_predictions_per_seq
    assert rules.layout.dynamic == (masking is not None)

    def decode(number, first_row, serialized):
        batch = rules.layout.parse(serialized)
        broken = rules.broken(batch)
        tf.debugging.Assert(tf.reduce_all(broken == ""), [tf.boolean_mask(broken, broken != "")])
        if masking:
            batch = mask_batch(batch, max_predictions, masking, stream, number, first_row)
        batch["next_sentence_labels"] = batch["next_sentence_labels"][:, 0]
        return batch | {"example_weights": tf.ones_like(batch["next_sentence_labels"], tf.float32)}

    return decode

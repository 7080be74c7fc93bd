"""Reads pre-training TFRecords as `tf.data` batches and explains bad records."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfrecords.dynamic_masking import EVALUATION, TRAINING, mask_batch
from tfrecords.features import Layout
from tfrecords.order import RecordSet, records_in_order, training_records
from tfrecords.records import Rules, checked_batches, files_to_open, first_records, open_records

EVALUATION_BLOCK_RECORDS = 64
# The features that show whether records teach anything.
_SAMPLE_FILES, _SAMPLE_RECORDS = 8, 512


def check_files(records: RecordSet) -> bool:
    """Checks the first record of each file; returns whether they must be masked while reading."""
    firsts = list(first_records(records.files))
    rules = _rules(records)
    for row, problem in rules.check(firsts)[1].items():
        found = Layout.of(firsts[row])
        if problem.startswith(f"{found} instead"):
            problem += (
                ": pass the --max_seq_length and --max_predictions_per_seq of the records"
                if found == Layout.of(firsts[0])
                else f", as in {records.files[0]}: read them in separate runs, or create them with "
                "the same --masking and --use_v2_feature_names"
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
    """Returns the function that parses, checks and, if dynamic, masks serialized records.

    Its arguments are the number of the batch, the first row of these records in it, and them, [B].
    """
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

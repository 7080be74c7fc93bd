"""Reads pre-training TFRecords as `tf.data` batches, and says what is wrong with bad ones."""

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfrecords.dynamic_masking import EVALUATION, TRAINING, DynamicMasking, mask_batch
from tfrecords.features import Layout
from tfrecords.manifest import MANIFEST_END
from tfrecords.order import records_in_order, training_records
from tfrecords.records import (
    layout_of,
    plain_message,
    problem_of_record,
    serialized_records,
)

EVALUATION_BLOCK_RECORDS = 64

# A function (number of the batch, first row in it, serialized [B]) -> the batch.
Decode = Callable[[tf.Tensor, tf.Tensor | int, tf.Tensor], dict[str, tf.Tensor]]


def expand_files(patterns: str) -> list[str]:
    """The files that a comma-separated list of names and globs stands for, sorted per glob.

    A glob does not stand for the manifests that lie beside the files.

    Raises:
        ValueError: a name or glob matches nothing, or a file is empty; names it.
    """
    files: list[str] = []
    for pattern in filter(None, (part.strip() for part in patterns.split(","))):
        # A file whose name has a glob's characters in it still means itself.
        exists = tf.io.gfile.exists(pattern)
        found = [pattern] if exists else sorted(tf.io.gfile.glob(pattern))
        if not exists:
            found = [file for file in found if not file.endswith(MANIFEST_END)]
        if not found:
            raise ValueError(f"no file matches {pattern}")
        files += found
    if not files:
        raise ValueError("no input file is named")
    for file in files:
        if tf.io.gfile.isdir(file):
            raise ValueError(f"{file} is a directory: name its files, for instance {file}/*")
        if tf.io.gfile.stat(file).length == 0:
            raise ValueError(f"{file} is empty")
    return files


def check_pretraining_files(
    files: Sequence[str], max_seq_length: int, max_predictions_per_seq: int, vocab_size: int
) -> bool:
    """Compares the first record of every file with what is about to be read from it.

    Returns whether the records are dynamic, that is, have to be masked as they are read.

    Raises:
        ValueError: a file is no TFRecord file or holds no record, its records are of other lengths
            than asked for, or of ids outside the vocabulary, or laid out in another way than those
            of the first file; names the file and what to do.
        OSError: a file cannot be read.
    """
    layout = None
    for file in files:
        try:
            first = next(serialized_records(file), None)
        except tf.errors.DataLossError:
            raise ValueError(f"{file} is damaged, or not a TFRecord file") from None
        except tf.errors.OpError as error:
            raise OSError(f"cannot read {file}: {plain_message(error)}") from None
        if first is None:
            raise ValueError(f"{file} holds no records")
        found = _asked_layout(first, max_seq_length, max_predictions_per_seq)
        if problem := problem_of_record(first, found, vocab_size):
            raise ValueError(f"{file}: {problem}")
        if layout is None:
            layout = found
        if layout.dynamic != found.dynamic:
            raise ValueError(
                f"{files[0]} and {file}: one is masked, the other is to be masked as it is read "
                "(--masking=dynamic): read them in separate runs, or create them alike"
            )
        if layout.original_names != found.original_names:
            raise ValueError(
                f"{files[0]} and {file} name their features differently (input_ids and "
                "input_word_ids): read them in separate runs, or create them alike"
            )
    return layout is not None and layout.dynamic


def pretraining_dataset(
    files: Sequence[str],
    max_seq_length: int,
    max_predictions_per_seq: int,
    vocab_size: int,
    batch_size: int,
    training: bool,
    seed: int = 0,
    input_context: tf.distribute.InputContext | None = None,
    masking: DynamicMasking | None = None,
    first_step: int = 0,
    part: str = "all",
) -> tf.data.Dataset:
    """Batches of pre-training examples, all of static shape.

    Each element is a dict: `input_word_ids`, `input_mask`, `input_type_ids` [B, S] int32,
    `masked_lm_positions`, `masked_lm_ids` [B, P] int32, `masked_lm_weights` [B, P] float32,
    `next_sentence_labels` [B] int32 and `example_weights` [B] float32.

    For training the records are repeated for ever, each once an epoch, files and records in an
    order that follows from the seed and the number of the epoch. A step takes the next B rows for
    each replica, over the border of epochs if need be: the same rows in the same order, however
    many replicas share them and whatever came before `first_step`. For evaluation the records come
    once and in order; the last batch is filled up with rows of zeros whose example weight is 0.

    Dynamic records are masked anew in every step for training, as the masking's seed, the step and
    the row in it say. For evaluation a record is masked the same every time, however large the
    batches are.

    Args:
        files: as `expand_files` gives them and `check_pretraining_files` has approved them.
        max_predictions_per_seq: P; for the units "left_to_right" it is S - 1.
        batch_size: B, the rows of one batch; under a strategy, those of one replica.
        training: see above.
        seed: of the shuffling.
        input_context: under `distribute_datasets_from_function`. Every input pipeline reads all
            records and decodes the batches of its own replicas. In evaluation each gives the same
            number of batches, a multiple of its number of replicas.
        masking: of dynamic records; only those need it.
        first_step: how many steps of the training were taken before.
        part: which records to read: "all"; "held_out", the first of every hundred records of each
            file; "train", the others.

    Raises:
        ValueError: for training, all records are held out.
        tf.errors.DataLossError: on a damaged file, while reading and, where the records before the
            first step have to be counted, before it.
        tf.errors.InvalidArgumentError: while reading, on a record that breaks the contract. After
            either, `explain_bad_record` finds the file and record.
    """
    layout = _asked_layout(
        next(serialized_records(files[0])), max_seq_length, max_predictions_per_seq
    )
    assert layout.dynamic == (masking is not None)
    context = input_context or tf.distribute.InputContext()
    stream = TRAINING if training else EVALUATION
    decode = _decoder(layout, max_predictions_per_seq, vocab_size, masking, stream)
    if training:
        first_record = first_step * batch_size * context.num_replicas_in_sync
        records = training_records(files, seed, part, first_record)
        batches = _own_batches(records, batch_size, first_step, context, decode)
    else:
        # Decoded in blocks of one size, so that masks do not depend on the size of batches.
        blocks = records_in_order(files, part).batch(EVALUATION_BLOCK_RECORDS).enumerate()
        decoded = blocks.map(
            lambda number, block: decode(number, 0, block), num_parallel_calls=tf.data.AUTOTUNE
        )
        batches = _padded_batches(decoded, batch_size, context)
    options = tf.data.Options()
    options.deterministic = True
    return batches.prefetch(tf.data.AUTOTUNE).with_options(options)


def explain_bad_record(
    files: Sequence[str], max_seq_length: int, max_predictions_per_seq: int, vocab_size: int
) -> str | None:
    """Reads all files record by record for what made `pretraining_dataset` fail.

    Returns one line that names the file, the record (the first is number 1) and what is wrong with
    it, or None where all is well.
    """
    layout = None
    for file in files:
        number = 0
        try:
            for number, serialized in enumerate(serialized_records(file), start=1):
                found = _asked_layout(serialized, max_seq_length, max_predictions_per_seq)
                layout = layout or found
                if problem := problem_of_record(serialized, found, vocab_size):
                    return f"{file}, record {number}: {problem}"
                if found != layout:
                    return f"{file}, record {number}: of another kind than those of {files[0]}"
        except tf.errors.OpError as error:
            return f"{file}, record {number + 1}: truncated or corrupt ({plain_message(error)})"
    return None


def _asked_layout(serialized: bytes, max_seq_length: int, max_predictions_per_seq: int) -> Layout:
    """The layout of a record's kind and names with the lengths that were asked for."""
    found = layout_of(serialized)
    if found.dynamic:
        return dataclasses.replace(found, max_seq_length=max_seq_length)
    return dataclasses.replace(
        found, max_seq_length=max_seq_length, max_predictions_per_seq=max_predictions_per_seq
    )


def _own_batches(
    records: tf.data.Dataset,
    batch_size: int,
    first_step: int,
    context: tf.distribute.InputContext,
    decode: Decode,
) -> tf.data.Dataset:
    """The batches of a pipeline's replicas, in turn: replica r takes the r-th of each step."""
    replicas = context.num_replicas_in_sync
    own_replicas = replicas // context.num_input_pipelines
    batches = records.batch(batch_size, drop_remainder=True).enumerate(first_step * replicas)

    def is_own(number: tf.Tensor, serialized: tf.Tensor) -> tf.Tensor:
        return number % replicas // own_replicas == context.input_pipeline_id

    def decode_own(number: tf.Tensor, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        return decode(number // replicas, number % replicas * batch_size, serialized)

    if context.num_input_pipelines > 1:
        batches = batches.filter(is_own)
    return batches.map(decode_own, num_parallel_calls=tf.data.AUTOTUNE)


def _padded_batches(
    decoded: tf.data.Dataset, batch_size: int, context: tf.distribute.InputContext
) -> tf.data.Dataset:
    """Batches of decoded records in order; the last is filled with rows of zeros.

    All pipelines read all records and take their part of each global batch: so they agree on the
    number of batches without having counted the records first.
    """
    global_size = batch_size * context.num_replicas_in_sync

    def fill(values: tf.Tensor) -> tf.Tensor:
        missing = [[0, global_size - tf.shape(values)[0]]] + [[0, 0]] * (values.shape.rank - 1)
        shape = [context.num_input_pipelines, -1, batch_size, *values.shape[1:]]
        return tf.reshape(tf.pad(values, missing), shape)[context.input_pipeline_id]

    batches = decoded.rebatch(global_size)
    return batches.map(lambda batch: tf.nest.map_structure(fill, batch)).unbatch()


def _decoder(
    layout: Layout,
    max_predictions_per_seq: int,
    vocab_size: int,
    masking: DynamicMasking | None,
    stream: int,
) -> Decode:
    """What makes of records the batches that `pretraining_dataset` gives.

    For dynamic ones the stream, the number of the batch and the first row in it make the masks.
    """

    def decode(
        number: tf.Tensor, first_row: tf.Tensor | int, serialized: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        batch = layout.parse(serialized)
        _assert_below(batch["input_word_ids"], vocab_size, "a token id is outside the vocabulary")
        if masking:
            batch = mask_batch(batch, max_predictions_per_seq, masking, stream, number, first_row)
        _assert_below(batch["masked_lm_ids"], vocab_size, "a label is outside the vocabulary")
        positions = batch["masked_lm_positions"]
        _assert_below(positions, layout.max_seq_length, "a masked position is too large")
        batch["next_sentence_labels"] = batch["next_sentence_labels"][:, 0]
        return batch | {"example_weights": tf.ones_like(batch["next_sentence_labels"], tf.float32)}

    return decode


def _assert_below(values: tf.Tensor, limit: int, message: str) -> None:
    fine = tf.reduce_all((values >= 0) & (values < limit))
    largest = tf.reduce_max(tf.math.abs(values))
    tf.debugging.Assert(fine, [f"{message}: size {limit}, found", largest])

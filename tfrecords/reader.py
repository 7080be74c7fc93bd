"""Reads pre-training TFRecords as `tf.data` batches, and says what is wrong with bad ones."""

import re
from collections.abc import Iterator, Sequence

import tensorflow as tf

from tfrecords.features import ORIGINAL_NAMES, pretraining_features

# Serialized records held back for shuffling: about 12 MB at length 128, 50 MB at 512.
SHUFFLE_BUFFER_RECORDS = 16_384
FILES_READ_AT_ONCE = 8


def expand_files(patterns: str) -> list[str]:
    """The files that a comma-separated list of names and globs stands for, sorted per glob.

    Raises:
        ValueError: a name or glob matches nothing, or a file is empty; names it.
    """
    files: list[str] = []
    for pattern in filter(None, (part.strip() for part in patterns.split(","))):
        # A file whose name has a glob's characters in it still means itself.
        exists = tf.io.gfile.exists(pattern)
        found = [pattern] if exists else sorted(tf.io.gfile.glob(pattern))
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
) -> None:
    """Compares the first record of every file with what is about to be read from it.

    Raises:
        ValueError: a file is no TFRecord file or holds no record, its records are of other lengths
            than asked for, or of ids outside the vocabulary; names the file and what to do.
        OSError: a file cannot be read.
    """
    expected = pretraining_features(max_seq_length, max_predictions_per_seq)
    original = None
    for file in files:
        try:
            first = next(_serialized_records(file), None)
        except tf.errors.DataLossError:
            raise ValueError(f"{file} is damaged, or not a TFRecord file") from None
        except tf.errors.OpError as error:
            raise OSError(f"cannot read {file}: {_plain(error)}") from None
        if first is None:
            raise ValueError(f"{file} holds no records")
        if problem := _problem_of_record(first, expected, vocab_size):
            raise ValueError(f"{file}: {problem}")
        if original is None:
            original = _has_original_names(first)
        elif original != _has_original_names(first):
            raise ValueError(
                f"{files[0]} and {file} name their features differently (input_ids and "
                "input_word_ids): read them in separate runs, or create them alike"
            )


def pretraining_dataset(
    files: Sequence[str],
    max_seq_length: int,
    max_predictions_per_seq: int,
    vocab_size: int,
    batch_size: int,
    training: bool,
    seed: int = 0,
    input_context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Batches of pre-training examples, all of static shape.

    Each element is a dict: `input_word_ids`, `input_mask`, `input_type_ids` [B, S] int32,
    `masked_lm_positions`, `masked_lm_ids` [B, P] int32, `masked_lm_weights` [B, P] float32,
    `next_sentence_labels` [B] int32 and `example_weights` [B] float32.

    For training the records are repeated for ever, each once an epoch, files and records in an
    order that follows from `seed` alone. For evaluation they come once and in order; the last batch
    is filled up with rows of zeros whose example weight is 0.

    Args:
        files: as `expand_files` gives them and `check_pretraining_files` has approved them.
        batch_size: B, the rows of one batch; under a strategy, those of one replica.
        training: see above.
        seed: of the shuffling.
        input_context: under `distribute_datasets_from_function`. The input pipelines share out the
            records, by files where there are enough. In evaluation every pipeline gives the same
            number of batches, a multiple of its number of replicas.

    Raises:
        tf.errors.DataLossError: while reading, on a damaged file.
        tf.errors.InvalidArgumentError: while reading, on a record that breaks the contract. After
            either, `explain_bad_record` finds the file and record.
    """
    features = pretraining_features(max_seq_length, max_predictions_per_seq)
    first = next(_serialized_records(files[0]))
    parse = _parser(features, _has_original_names(first), vocab_size)
    compressions = [_compression(file) for file in files]
    sources = tf.data.Dataset.from_tensor_slices((list(files), compressions))
    if training:
        records = _shuffled_records(sources, len(files), seed, input_context)
        batches = records.batch(batch_size, drop_remainder=True).map(
            lambda serialized: parse(serialized, tf.ones(batch_size)),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
    else:
        batches = _padded_batches(sources.flat_map(_open), batch_size, input_context).map(
            parse, num_parallel_calls=tf.data.AUTOTUNE
        )
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
    expected = pretraining_features(max_seq_length, max_predictions_per_seq)
    original = None
    for file in files:
        number = 0
        try:
            for number, serialized in enumerate(_serialized_records(file), start=1):
                if problem := _problem_of_record(serialized, expected, vocab_size):
                    return f"{file}, record {number}: {problem}"
                if original is None:
                    original = _has_original_names(serialized)
                elif original != _has_original_names(serialized):
                    return f"{file}, record {number}: other feature names than in {files[0]}"
        except tf.errors.OpError as error:
            return f"{file}, record {number + 1}: truncated or corrupt ({_plain(error)})"
    return None


def _plain(error: tf.errors.OpError) -> str:
    """TensorFlow's message without the names of its graph nodes."""
    return re.sub(r"^\{\{.*?\}\} | \[Op:.*$", "", error.message)


def _compression(file: str) -> str:
    with tf.io.gfile.GFile(file, "rb") as stream:
        return "GZIP" if stream.read(2) == b"\x1f\x8b" else ""


def _open(file: tf.Tensor, compression: tf.Tensor) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(file, compression_type=compression)


def _serialized_records(file: str) -> Iterator[bytes]:
    return _open(file, _compression(file)).as_numpy_iterator()


def _has_original_names(serialized: bytes) -> bool:
    return "input_ids" in tf.train.Example.FromString(serialized).features.feature


def _problem_of_record(
    serialized: bytes, expected: dict[str, tuple[type, int]], vocab_size: int
) -> str | None:
    """What is wrong with one record, or None."""
    try:
        found = tf.train.Example.FromString(serialized).features.feature
    except ValueError:  # protobuf's DecodeError is one
        return "not a tf.train.Example"
    original = "input_ids" in found
    seq_length = expected["input_word_ids"][1]
    for name, (kind, length) in expected.items():
        stored = ORIGINAL_NAMES.get(name, name) if original else name
        if stored not in found:
            return f"no feature {stored!r}: not made by create_pretraining_data?"
        feature = found[stored]
        values = (feature.float_list if kind is float else feature.int64_list).value
        if len(values) != length:
            flag = "max_predictions_per_seq" if name.startswith("masked_lm") else "max_seq_length"
            return (
                f"{stored} has {len(values)} values where --{flag}={length} was asked for: pass "
                "the value that the records were made with"
            )
        if name in ("input_word_ids", "masked_lm_ids") and _outside(values, vocab_size):
            return (
                f"{stored} has id {_outside(values, vocab_size)[0]}, outside the vocabulary of "
                f"{vocab_size}: the records were made with another vocabulary than the model's"
            )
        if name in ("input_type_ids", "next_sentence_labels") and _outside(values, 2):
            return f"{stored} has {_outside(values, 2)[0]}, where only 0 and 1 have a meaning"
        if name == "masked_lm_positions" and _outside(values, seq_length):
            return f"{stored} has {_outside(values, seq_length)[0]}, beyond the {seq_length} ids"
    return None


def _outside(values: Sequence[int], limit: int) -> list[int]:
    return [value for value in values if not 0 <= value < limit]


def _shuffled_records(
    sources: tf.data.Dataset,
    num_files: int,
    seed: int,
    input_context: tf.distribute.InputContext | None,
) -> tf.data.Dataset:
    """Serialized records, repeated, each once an epoch, in an order that follows from the seed."""
    pipelines = input_context.num_input_pipelines if input_context else 1
    pipeline = input_context.input_pipeline_id if input_context else 0
    by_file = num_files >= pipelines
    if by_file:
        sources = sources.shard(pipelines, pipeline)
    records = sources.shuffle(num_files, seed=seed).interleave(
        _open, cycle_length=FILES_READ_AT_ONCE, num_parallel_calls=2, deterministic=True
    )
    if not by_file:
        records = records.shard(pipelines, pipeline)
    return records.shuffle(SHUFFLE_BUFFER_RECORDS, seed=seed).repeat()


def _padded_batches(
    records: tf.data.Dataset,
    batch_size: int,
    input_context: tf.distribute.InputContext | None,
) -> tf.data.Dataset:
    """Batches (serialized [B], weights [B]) in order; the last is filled with records of weight 0.

    All pipelines read all records and take their part of each global batch: so they agree on the
    number of batches without having counted the records first.
    """
    pipelines = input_context.num_input_pipelines if input_context else 1
    pipeline = input_context.input_pipeline_id if input_context else 0
    replicas = input_context.num_replicas_in_sync if input_context else 1
    global_size = batch_size * replicas

    def fill(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        missing = global_size - tf.shape(serialized)[0]
        weights = tf.concat([tf.ones_like(serialized, tf.float32), tf.zeros([missing])], axis=0)
        serialized = tf.concat([serialized, tf.repeat(serialized[:1], missing)], axis=0)
        return (
            tf.reshape(serialized, [pipelines, -1, batch_size])[pipeline],
            tf.reshape(weights, [pipelines, -1, batch_size])[pipeline],
        )

    return records.batch(global_size).map(fill).unbatch()


def _parser(features: dict[str, tuple[type, int]], original_names: bool, vocab_size: int):
    """A function (serialized [B], weights [B]) -> the dict of `pretraining_dataset`."""
    stored = {name: ORIGINAL_NAMES.get(name, name) if original_names else name for name in features}
    description = {
        stored[name]: tf.io.FixedLenFeature([length], tf.float32 if kind is float else tf.int64)
        for name, (kind, length) in features.items()
    }
    seq_length = features["input_word_ids"][1]

    def parse(serialized: tf.Tensor, weights: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_example(serialized, description)
        batch = {name: parsed[stored[name]] for name in features}
        _assert_below(batch["input_word_ids"], vocab_size, "a token id is outside the vocabulary")
        _assert_below(batch["masked_lm_ids"], vocab_size, "a label is outside the vocabulary")
        _assert_below(batch["masked_lm_positions"], seq_length, "a masked position is too large")
        for name, value in batch.items():
            value = tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
            batch[name] = value * tf.cast(weights, value.dtype)[:, tf.newaxis]
        batch["next_sentence_labels"] = batch["next_sentence_labels"][:, 0]
        return batch | {"example_weights": weights}

    return parse


def _assert_below(values: tf.Tensor, limit: int, message: str) -> None:
    fine = tf.reduce_all((values >= 0) & (values < limit))
    largest = tf.reduce_max(tf.math.abs(values))
    tf.debugging.Assert(fine, [f"{message}: size {limit}, found", largest])

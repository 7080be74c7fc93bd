"""Serialization, reading and the order of records.

Oracles: `tf.train.Example`, byte for byte; the NumPy arrays that the files were written from; the
uninterrupted stream.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tensorflow as tf
from support import one_line

from tfrecords import reader
from tfrecords.features import ORIGINAL_NAMES, serialize_examples, write_records
from tfrecords.manifest import manifest_path, shard_entry, write_manifest
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

S, P, VOCAB = 12, 3, 500
FILE_SIZES = {"a": 250, "b": 101, "c": 1, "d": 30}


def _protobuf_bytes(arrays: dict[str, np.ndarray], row: int) -> bytes:
    example = tf.train.Example()
    for name, values in arrays.items():
        feature = example.features.feature[name]
        is_float = np.issubdtype(values.dtype, np.floating)
        (feature.float_list if is_float else feature.int64_list).value.extend(values[row].tolist())
    return example.SerializeToString(deterministic=True)  # sorted by name


@pytest.mark.parametrize("largest", [127, 128, 16_384, 2**40])
def test_equals_protobuf_byte_for_byte(largest):
    rng = np.random.default_rng(largest)
    # Small and large numbers, so that the rows have different lengths in bytes.
    ceilings = rng.choice([1, 2, 200, largest + 1], (50, 1))
    arrays = {
        "a": np.minimum(rng.integers(0, ceilings, (50, 128)), largest),
        "b": rng.normal(size=(50, 20)).astype(np.float32),
        "c": np.full((50, 1), largest),
    }
    assert serialize_examples(arrays) == [_protobuf_bytes(arrays, row) for row in range(50)]


@pytest.mark.parametrize("rows", [0, 2])
def test_long_rows_need_longer_length_fields(rows):
    long = np.arange(rows * 20_000).reshape(rows, 20_000)
    arrays = {"a": long, "b": np.zeros((rows, 3), np.float32)}
    assert serialize_examples(arrays) == [_protobuf_bytes(arrays, row) for row in range(rows)]


def _arrays(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(rows)
    columns, lengths = np.arange(S), rng.integers(5, S + 1, (rows, 1))
    mask, in_a = columns < lengths, rng.integers(2, 4, (rows, 1))
    real = np.arange(P) < rng.integers(0, P + 1, (rows, 1))
    arrays = {
        "input_word_ids": mask * rng.integers(0, VOCAB, (rows, S)),
        "input_mask": mask.astype(np.int64),
        "input_type_ids": mask * (columns >= in_a).astype(np.int64),
        "masked_lm_positions": real * (np.arange(P) + rng.integers(1, 3, (rows, 1))),
        "masked_lm_ids": real * rng.integers(0, VOCAB, (rows, P)),
        "masked_lm_weights": real * (1 - rng.random((rows, P), np.float32)),
        "next_sentence_labels": rng.integers(0, 2, (rows, 1)),
    }
    arrays["input_word_ids"][:, 0] = np.arange(rows)  # tells the records apart
    return arrays


def _write(folder, arrays, num_files=1, original=True, compression="") -> list[str]:
    paths = [str(folder / f"records-{index}") for index in range(num_files)]
    if original:
        arrays = {ORIGINAL_NAMES.get(name, name): values for name, values in arrays.items()}
    records = serialize_examples(arrays)
    for index, path in enumerate(paths):
        write_records(path, records[index::num_files], compression)
    return paths


def _record_set(files, **changes) -> reader.RecordSet:
    contract = dict(max_seq_length=S, max_predictions_per_seq=P, vocab_size=VOCAB)
    return reader.RecordSet(files=tuple(files), **contract | changes)


def _training(files, batch_size, first_step=0, context=None, **changes) -> tf.data.Dataset:
    return reader.training_batches(_record_set(files, **changes), batch_size, first_step, context)


def _evaluation(files, batch_size, context=None, **changes) -> tf.data.Dataset:
    return reader.evaluation_batches(_record_set(files, **changes), batch_size, context)


def _numbers(batches) -> list[int]:
    """Returns the number of each record in the batches, without padding."""
    found = []
    for batch in batches:
        real = batch["example_weights"].numpy() > 0
        found += batch["input_word_ids"].numpy()[real, 0].tolist()
    return found


@pytest.mark.parametrize(("original", "compression"), [(True, ""), (False, "GZIP")])
def test_evaluation_returns_the_arrays_in_order_and_pads_the_last_batch(
    tmp_path, original, compression
):
    arrays = _arrays(10)
    files = _write(tmp_path, arrays, original=original, compression=compression)
    reader.check_files(_record_set(files))
    dataset = _evaluation(files, 4)
    batches = list(dataset.as_numpy_iterator())
    assert len(batches) == 3
    for name, expected in arrays.items():
        found = np.concatenate([batch[name] for batch in batches])
        expected = expected[:, 0] if name == "next_sentence_labels" else expected
        is_float = name == "masked_lm_weights"
        assert found.dtype == (np.float32 if is_float else np.int32)
        np.testing.assert_array_equal(found[:10], expected)
        np.testing.assert_array_equal(found[10:], 0)
        assert dataset.element_spec[name].shape == (4, *expected.shape[1:])
    weights = np.concatenate([batch["example_weights"] for batch in batches])
    np.testing.assert_array_equal(weights, [1] * 10 + [0] * 2)


def test_evaluation_gives_every_input_pipeline_the_same_number_of_batches(tmp_path):
    files = _write(tmp_path, _arrays(17), num_files=3)
    found = []
    for pipeline in range(2):
        context = tf.distribute.InputContext(2, pipeline, num_replicas_in_sync=4)
        batches = list(_evaluation(files, 2, context=context))
        # 17 records in steps of 4 replicas of 2 rows: 3 steps, 2 replicas in each pipeline.
        assert len(batches) == 6
        found += _numbers(batches)
    assert sorted(found) == list(range(17))


def test_check_files_names_the_file_and_the_flag(tmp_path):
    """Oracle: what each file holds, and what it lacks."""
    files = _write(tmp_path, _arrays(4))
    (tmp_path / "text").write_text("this is not a TFRecord file")
    write_records(str(tmp_path / "none"), [], "GZIP")
    write_records(str(tmp_path / "blank"), [b"", *serialize_examples(_arrays(2))])
    foreign = serialize_examples({"label": np.zeros((1, 1), np.int32)})
    write_records(str(tmp_path / "foreign"), foreign)
    (tmp_path / "v2").mkdir()
    others = _write(tmp_path / "v2", _arrays(4), original=False)
    special = {"vocab": Vocabulary(SPECIAL_TOKENS)}
    for names, changes, message in (
        (files, {"max_seq_length": 16}, "12 tokens, expected 16 tokens: .*--max_seq_length"),
        (files, {"max_predictions_per_seq": 4}, "3 predictions, expected 4 .*--max_predictions_"),
        (files, {"vocab_size": 100}, "outside 0 to 99: give the vocabulary"),
        (files, special, "records-0, record 1: the first token is not .CLS"),
        (["text"], {}, "text is damaged or not a TFRecord file"),
        (["missing"], {}, "cannot read .*missing"),
        (["none"], {}, "none contains no records"),
        (["blank"], {}, "blank, record 1: no feature 'input_word_ids'"),
        (["foreign"], {}, "foreign, record 1: no feature 'input_word_ids'"),
        (files + others, {}, "input_word_ids .--use_v2.*, expected input_ids, as in .*s-0: create"),
    ):
        with one_line(message):
            reader.check_files(_record_set([str(tmp_path / name) for name in names], **changes))


@pytest.mark.parametrize("damage", ["truncated", "a bit flipped"])
@pytest.mark.parametrize("batches", [_training, _evaluation])
@pytest.mark.slow
def test_damaged_files_are_named_with_the_record(tmp_path, damage, batches):
    files = _write(tmp_path, _arrays(10), num_files=2)
    assert reader.explain_bad_record(_record_set(files)) is None
    damaged = tmp_path / "records-1"
    data = damaged.read_bytes()
    rest = b"" if damage == "truncated" else bytes([data[-20] ^ 1]) + data[-19:]
    damaged.write_bytes(data[:-20] + rest)
    with pytest.raises(tf.errors.DataLossError):
        list(batches(files, 2))
    explanation = reader.explain_bad_record(_record_set(files))
    assert explanation.startswith(f"{damaged}, record 5: truncated or corrupt (")
    assert "{{" not in explanation and "[Op:" not in explanation


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("input_word_ids", VOCAB, "input_ids has 500, outside 0 to 499: give"),
        # Cut off to 32 bits, it would be valid.
        ("input_word_ids", 2**32 + 7, "input_ids has 4294967303, outside"),
        ("input_word_ids", -1, "input_ids has -1, outside 0 to 499"),
        ("masked_lm_ids", -(2**40), "masked_lm_ids has -1099511627776, outside 0 to 499"),
        ("masked_lm_positions", S, "masked_lm_positions has 12, outside 0 to 11"),
        ("masked_lm_weights", -5, "masked_lm_weights has -5.0, outside 0 to 1"),
        ("masked_lm_weights", np.nan, "masked_lm_weights has nan, outside 0 to 1"),
        ("input_type_ids", 2, "segment_ids has 2, outside 0 to 1"),
        ("next_sentence_labels", 2, "next_sentence_labels has 2, outside 0 to 1"),
        ("input_mask", [0] * S, "fewer than two tokens"),
        ("input_mask", [1, 0] * (S // 2), "input_mask is not ones followed by zeros"),
        ("input_type_ids", [1] + [0] * (S - 1), "the segment ids are not zeros followed by ones"),
    ],
)
@pytest.mark.slow
def test_what_breaks_a_rule_is_named(tmp_path, name, value, message):
    """Oracle: the record, by hand; its number when it is read, and when it comes first."""
    arrays = _arrays(10)
    arrays[name][7, -np.size(value) :] = value
    files = _write(tmp_path, arrays)
    for batches in (_training(files, 10).take(1), _evaluation(files, 10)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="outside 0 |tokens|ones"):
            list(batches)
    assert f"records-0, record 8: {message}" in reader.explain_bad_record(_record_set(files))
    first = _write(tmp_path, {name: values[7:] for name, values in arrays.items()})
    with pytest.raises(ValueError, match=re.escape(f"records-0, record 1: {message}")):
        reader.check_files(_record_set(first))


def test_fractional_weights_and_a_single_type_are_read(tmp_path):
    """Oracle: the original's loss, a weighted mean; a type_vocab_size of 1."""
    arrays = _arrays(4)
    arrays["masked_lm_weights"][1] /= 4
    files = _write(tmp_path, arrays)
    assert not reader.check_files(_record_set(files))
    (batch,) = _evaluation(files, 4)
    np.testing.assert_array_equal(batch["masked_lm_weights"], arrays["masked_lm_weights"])
    arrays["input_type_ids"][0, 2] = 1
    with pytest.raises(ValueError, match="segment_ids has 1, outside 0 to 0: the type_vocab_size"):
        reader.check_files(_record_set(_write(tmp_path, arrays), num_types=1))


def test_a_record_of_a_different_length_is_named(tmp_path):
    files = _write(tmp_path, _arrays(3))
    short = {name: values[:, : S - 1] for name, values in _arrays(1).items()}
    (tmp_path / "short").mkdir()
    files += _write(tmp_path / "short", short)
    with pytest.raises(tf.errors.InvalidArgumentError):
        list(_evaluation(files, 2))
    assert "short/records-0, record 1: 11 tokens, expected 12" in reader.explain_bad_record(
        _record_set(files)
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Iterator[list[str]]:
    """Plain and compressed files of records that name their file and number."""
    folder = tmp_path_factory.mktemp("records")
    for name, size in FILE_SIZES.items():
        records = (f"{name} {number}".encode() for number in range(1, size + 1))
        write_records(str(folder / name), records, "GZIP" if name in "bc" else "")
    with pytest.MonkeyPatch.context() as patch:
        # Smaller than the files.
        patch.setattr(reader, "SHUFFLE_BUFFER_RECORDS", 64)
        yield [str(folder / name) for name in FILE_SIZES]


@pytest.fixture(scope="module")
def three_epochs(files) -> Callable[[int, str], list[bytes]]:
    @functools.cache
    def read(seed: int, part: str) -> list[bytes]:
        return _take(_stream(files, seed, part), 3 * len(_part(part)))

    return read


def _records(files: list[str], **values) -> reader.RecordSet:
    lengths = dict(max_seq_length=1, max_predictions_per_seq=1, vocab_size=1)
    return reader.RecordSet(files=tuple(files), **lengths, **values)


def _stream(files: list[str], seed: int, part: str = "all", first: int = 0) -> tf.data.Dataset:
    return reader.training_records(_records(files, seed=seed, part=part), first)


def _part(part: str) -> list[bytes]:
    """Oracle of the split: the first of every 100 records of each file is held out."""
    found = []
    for name, size in FILE_SIZES.items():
        for number in range(1, size + 1):
            held_out = number in (1, 101, 201)
            if part == "all" or (part == "held_out") == held_out:
                found.append(f"{name} {number}".encode())
    return found


def _take(records: tf.data.Dataset, count: int = -1) -> list[bytes]:
    return list(records.take(count).as_numpy_iterator())


def test_parts(files):
    for part in ("all", "train", "held_out"):
        assert _take(reader.records_in_order(_records(files, part=part))) == _part(part)
    assert len(_part("held_out")) == 7
    assert sorted(_part("held_out") + _part("train")) == sorted(_part("all"))


@pytest.mark.parametrize("part", ["all", "train", "held_out"])
def test_every_epoch_has_each_record_once_in_the_order_of_the_seed(files, three_epochs, part):
    expected = _part(part)
    size = len(expected)
    stream = three_epochs(2**32 - 1, part)
    epochs = [stream[size * epoch : size * (epoch + 1)] for epoch in range(3)]
    for records in epochs:
        assert sorted(records) == sorted(expected) and records != expected
    assert epochs[0] != epochs[1] and epochs[1] != epochs[2]
    assert _take(_stream(files, 2**32 - 1, part), 3 * size) == stream
    assert _take(_stream(files, 2, part), size) not in epochs


def test_the_order_is_well_mixed(three_epochs):
    """Oracle: the share of neighbors from the same file in a random order."""
    records = three_epochs(2**32 - 1, "all")[: sum(FILE_SIZES.values())]
    same = sum(left[:1] == right[:1] for left, right in itertools.pairwise(records))
    share = sum((size / len(records)) ** 2 for size in FILE_SIZES.values())
    assert same / len(records) < share + 0.2


def test_the_order_does_not_depend_on_the_global_seed(files):
    found = []
    try:
        for seed in (0, 1, None):
            tf.random.set_seed(seed)
            found.append(_take(_stream(files, seed=3), 20))
    finally:
        tf.random.set_seed(None)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("part", ["all", "train"])
def test_a_resumed_stream_equals_the_tail_of_the_uninterrupted_one(files, three_epochs, part):
    size, seed = len(_part(part)), 2**32 - 1
    whole = three_epochs(seed, part)
    for first in (17, size, 2 * size + 3):
        assert _take(_stream(files, seed, part, first), 30) == whole[first : first + 30]
    # This would never end if it read the skipped epochs.
    late = _take(_stream(files, seed, part, size * 10**9), size)
    assert sorted(late) == sorted(whole[:size])


@pytest.mark.parametrize("part", ["all", "train"])
def test_the_records_of_a_step_are_named(files, three_epochs, part):
    """Oracle: the contents of the rows."""
    seed = 2**32 - 1
    rows = three_epochs(seed, part)
    records = _records(files, seed=seed, part=part)
    for step in (0, 59):
        named = [
            f"{file.rpartition('/')[2]} {number}".encode()
            for file, number in reader.records_of_step(records, 7, step)
        ]
        assert named == rows[7 * step : 7 * (step + 1)]


def test_training_without_records_is_an_error_not_an_endless_loop(files):
    """Oracles: the only record of a file, which is held out; that record, again and again."""
    with pytest.raises(ValueError, match="/c: no records are left to train on, .* every 100"):
        _stream([files[2]], seed=1, part="train")
    assert _take(_stream([files[2]], seed=1), 2) == [b"c 1"] * 2


def test_counts_come_from_a_manifest_that_matches_the_files(tmp_path):
    """Oracles: the numbers written; a wrong count in the manifest, which shows that it is used."""
    files = [str(tmp_path / f"x.tfrecord-{index:05}-of-00003") for index in range(3)]
    for index, file in enumerate(files):
        write_records(file, [b"record"] * (1500 + index), "GZIP" if index else "")
    assert reader.count_records(files) == [1500, 1501, 1502]
    entries = [shard_entry(file, 7) for file in files[:2]]
    entries[1]["bytes"] += 1
    write_manifest(manifest_path(files[0]), {"shards": entries})
    assert reader.count_records(files) == [7, 1501, 1502]
    (tmp_path / "x.manifest.json").unlink()
    with open(files[0], "ab") as file:
        file.write(b"torn, but longer than a header")
    with pytest.raises(tf.errors.DataLossError):
        reader.count_records(files)

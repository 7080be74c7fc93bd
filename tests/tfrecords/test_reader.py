"""Reading. Oracle: the NumPy arrays that the files were written from."""

import re

import numpy as np
import pytest
import tensorflow as tf
from support import one_line

from tfrecords.features import ORIGINAL_NAMES, serialize_examples
from tfrecords.order import RecordSet
from tfrecords.reader import check_files, evaluation_batches, explain_bad_record, training_batches
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary
from tfrecords.writer import write_records

S, P, VOCAB = 12, 3, 500


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


def _record_set(files, **changes) -> RecordSet:
    contract = dict(max_seq_length=S, max_predictions_per_seq=P, vocab_size=VOCAB)
    return RecordSet(files=tuple(files), **contract | changes)


def _training(files, batch_size, first_step=0, context=None, **changes) -> tf.data.Dataset:
    return training_batches(_record_set(files, **changes), batch_size, first_step, context)


def _evaluation(files, batch_size, context=None, **changes) -> tf.data.Dataset:
    return evaluation_batches(_record_set(files, **changes), batch_size, context)


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
    check_files(_record_set(files))
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
    foreign = serialize_examples({"label": np.zeros((1, 1), np.int32)})
    write_records(str(tmp_path / "foreign"), foreign)
    (tmp_path / "v2").mkdir()
    others = _write(tmp_path / "v2", _arrays(4), original=False)
    special = {"vocab": Vocabulary(SPECIAL_TOKENS)}
    for names, changes, message in (
        (files, {"max_seq_length": 16}, "12 input_ids .* 16 input_ids .*--max_seq_length"),
        (files, {"max_predictions_per_seq": 4}, "3 pred.* 4 pred.*--max_predictions_per_seq"),
        (files, {"vocab_size": 100}, "outside 0 to 99: give the vocabulary"),
        (files, special, "records-0, record 1: the first token is not .CLS"),
        (["text"], {}, "text is damaged or not a TFRecord file"),
        (["missing"], {}, "cannot read .*missing"),
        (["none"], {}, "none contains no records"),
        (["foreign"], {}, "foreign, record 1: no feature 'input_word_ids'"),
        (files + others, {}, "12 input_word_ids .* 12 input_ids .*--use_v2"),
    ):
        with one_line(message):
            check_files(_record_set([str(tmp_path / name) for name in names], **changes))


@pytest.mark.parametrize("damage", ["truncated", "a bit flipped"])
@pytest.mark.parametrize("batches", [_training, _evaluation])
def test_damaged_files_are_named_with_the_record(tmp_path, damage, batches):
    files = _write(tmp_path, _arrays(10), num_files=2)
    assert explain_bad_record(_record_set(files)) is None
    damaged = tmp_path / "records-1"
    data = damaged.read_bytes()
    rest = b"" if damage == "truncated" else bytes([data[-20] ^ 1]) + data[-19:]
    damaged.write_bytes(data[:-20] + rest)
    with pytest.raises(tf.errors.DataLossError):
        list(batches(files, 2))
    explanation = explain_bad_record(_record_set(files))
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
def test_what_breaks_a_rule_is_named(tmp_path, name, value, message):
    """Oracle: the record, by hand; its number when it is read, and when it comes first."""
    arrays = _arrays(10)
    arrays[name][7, -np.size(value) :] = value
    files = _write(tmp_path, arrays)
    for batches in (_training(files, 10).take(1), _evaluation(files, 10)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="outside 0 |tokens|ones"):
            list(batches)
    assert f"records-0, record 8: {message}" in explain_bad_record(_record_set(files))
    first = _write(tmp_path, {name: values[7:] for name, values in arrays.items()})
    with pytest.raises(ValueError, match=re.escape(f"records-0, record 1: {message}")):
        check_files(_record_set(first))


def test_fractional_weights_and_a_single_type_are_read(tmp_path):
    """Oracle: the original's loss, a weighted mean; a type_vocab_size of 1."""
    arrays = _arrays(4)
    arrays["masked_lm_weights"][1] /= 4
    files = _write(tmp_path, arrays)
    assert not check_files(_record_set(files))
    (batch,) = _evaluation(files, 4)
    np.testing.assert_array_equal(batch["masked_lm_weights"], arrays["masked_lm_weights"])
    arrays["input_type_ids"][0, 2] = 1
    with pytest.raises(ValueError, match="segment_ids has 1, outside 0 to 0: the type_vocab_size"):
        check_files(_record_set(_write(tmp_path, arrays), num_types=1))


def test_a_record_of_a_different_length_is_named(tmp_path):
    files = _write(tmp_path, _arrays(3))
    short = {name: values[:, : S - 1] for name, values in _arrays(1).items()}
    (tmp_path / "short").mkdir()
    files += _write(tmp_path / "short", short)
    with pytest.raises(tf.errors.InvalidArgumentError):
        list(_evaluation(files, 2))
    assert "short/records-0, record 1: 11 input_ids" in explain_bad_record(_record_set(files))

"""Dynamic masking.

Oracles: google-research/bert's `create_masked_lm_predictions` restated in plain Python, and the
proportions it documents, within four standard deviations.
"""

import numpy as np
import pytest
import tensorflow as tf

from tfrecords import dynamic_masking, reader
from tfrecords.dynamic_masking import EVALUATION, TRAINING, DynamicMasking, mask_batch
from tfrecords.features import serialize_examples, write_records

PAD, CLS, SEP, MASK, VOCAB = 0, 2, 3, 4, 200
S, P = 40, 5


def dynamic_arrays(rows: int, seed: int = 0, length: int = S) -> dict[str, np.ndarray]:
    """Returns rows [CLS] A [SEP] B [SEP] of random lengths and words of several tokens."""
    rng = np.random.default_rng(seed)
    end = rng.integers(5, length, (rows, 1))  # position of the last [SEP]
    middle = rng.integers(2, end - 1)
    column = np.arange(length)
    ids = rng.integers(5, VOCAB, (rows, length))
    starts = rng.random((rows, length)) < 0.6
    starts[:, 1] = True
    np.put_along_axis(starts, middle + 1, True, axis=1)
    special = (column == 0) | (column == middle) | (column == end) | (column > end)
    ids[:, 0] = CLS
    ids[(column == middle) | (column == end)] = SEP
    ids[column > end] = PAD
    return {
        "input_word_ids": ids,
        "input_mask": (column <= end).astype(int),
        "input_type_ids": ((column > middle) & (column <= end)).astype(int),
        "word_starts": (starts & ~special).astype(int),
        "next_sentence_labels": rng.integers(0, 2, (rows, 1)),
    }


def masking(**changes) -> DynamicMasking:
    return DynamicMasking(**dict(mask_id=MASK, cls_id=CLS, sep_id=SEP, vocab_size=VOCAB) | changes)


def mask(
    arrays, number=0, max_predictions=P, stream=EVALUATION, first_row=0, **changes
) -> dict[str, np.ndarray]:
    batch = {name: tf.constant(values, tf.int32) for name, values in arrays.items()}
    number, first_row = (tf.constant(value, tf.int64) for value in (number, first_row))
    masked = mask_batch(batch, max_predictions, masking(**changes), stream, number, first_row)
    return {name: values.numpy() for name, values in masked.items()}


def words(arrays, row: int) -> list[list[int]]:
    found: list[list[int]] = []
    for column, token in enumerate(arrays["input_word_ids"][row]):
        if token in (CLS, SEP, PAD):
            continue
        if arrays["word_starts"][row, column]:
            found.append([])
        found[-1].append(column)
    return found


@pytest.mark.parametrize("units", ["wordpiece", "whole_word"])
@pytest.mark.parametrize(("max_predictions", "prob"), [(P, 0.15), (S + 3, 1.0)])
def test_masked_rows_keep_the_contract(units, max_predictions, prob):
    """Oracle: the rules of the original, and the rows before masking."""
    arrays = dynamic_arrays(500)
    masked = mask(arrays, max_predictions=max_predictions, units=units, masked_lm_prob=prob)
    for row in range(500):
        ids = arrays["input_word_ids"][row]
        real = masked["masked_lm_weights"][row] == 1
        positions = masked["masked_lm_positions"][row][real]
        assert real.tolist() == sorted(real.tolist(), reverse=True)
        assert positions.tolist() == sorted(set(positions.tolist()))
        assert masked["masked_lm_ids"][row][real].tolist() == ids[positions].tolist()
        assert not set(ids[positions]) & {CLS, SEP, PAD}
        for name in ("positions", "ids", "weights"):
            assert not masked[f"masked_lm_{name}"][row][~real].any()
        restored = masked["input_word_ids"][row].copy()
        restored[positions] = ids[positions]
        np.testing.assert_array_equal(restored, ids)
        length = int(arrays["input_mask"][row].sum())
        budget = min(max_predictions, max(1, round(length * prob)))
        if units == "wordpiece":
            assert len(positions) == min(budget, length - 3)
            continue
        chosen = set(positions.tolist())
        left = budget - len(chosen)
        assert left >= 0
        for unit in words(arrays, row):
            assert chosen >= set(unit) or (not chosen & set(unit) and len(unit) > left)
    for name in ("input_mask", "input_type_ids", "next_sentence_labels"):
        np.testing.assert_array_equal(masked[name], arrays[name])


def test_units_are_taken_in_order_as_they_fit():
    """Oracle: the original's loop."""
    rng = np.random.default_rng(1)
    sizes, budget = rng.integers(0, 7, (2000, 30)), rng.integers(1, 21, 2000)
    tensors = tf.constant(sizes, tf.int32), tf.constant(budget, tf.int32)
    taken = dynamic_masking._take_in_order(*tensors).numpy()
    for row in range(2000):
        covered = 0
        for size, found in zip(sizes[row], taken[row], strict=True):
            if size:
                assert found == (covered + size <= budget[row])
            covered += size * found


@pytest.mark.parametrize("prob", [0.15, 0.3, 0.01, 0.5, 1.0])
def test_budget(prob):
    """Oracle: the original's min(max_predictions, max(1, int(round(length * prob))))."""
    lengths = np.arange(513)
    expected = [min(76, max(1, round(length * prob))) for length in lengths.tolist()]
    found = dynamic_masking.graph_budget(tf.constant(lengths), prob, 76)
    assert found.numpy().tolist() == expected


@pytest.mark.parametrize("units", ["wordpiece", "whole_word"])
def test_proportions(units):
    arrays = dynamic_arrays(20_000, length=60)
    masked = mask(arrays, max_predictions=9, units=units)
    rows, slots = np.nonzero(masked["masked_lm_weights"])
    positions = masked["masked_lm_positions"][rows, slots]
    labels = masked["masked_lm_ids"][rows, slots]
    shown = masked["input_word_ids"][rows, positions]
    n = len(rows)

    def near(count: int, share: float, n: int = n) -> bool:
        return abs(count - n * share) < 4 * np.sqrt(n * share * (1 - share))

    # A random token is the right one or [MASK] with probability 1 / VOCAB each.
    assert near(np.count_nonzero(shown == MASK), 0.8 + 0.1 / VOCAB)
    assert near(np.count_nonzero(shown == labels), 0.1 + 0.1 / VOCAB)
    random = shown[(shown != MASK) & (shown != labels)]
    counts = np.bincount(random, minlength=VOCAB)
    assert counts[MASK] == 0
    counts = np.delete(counts, MASK)
    expected = len(random) / (VOCAB - 1)
    deviation = ((counts - expected) ** 2 / expected).sum()  # chi squared with VOCAB - 2 degrees
    assert abs(deviation - (VOCAB - 2)) < 5 * np.sqrt(2 * (VOCAB - 2))
    # All maskable tokens of a row are equally likely (of whole words, short ones are more likely).
    if units == "wordpiece":
        is_token = (arrays["input_mask"] > 0) & ~np.isin(arrays["input_word_ids"], (CLS, SEP))
        share = masked["masked_lm_weights"].sum(axis=1) / is_token.sum(axis=1)
        expected = (is_token * share[:, None]).sum(axis=0)
        found = np.bincount(positions, minlength=60)
        spread = np.sqrt((is_token * (share * (1 - share))[:, None]).sum(axis=0))
        assert (np.abs(found - expected) <= 4.5 * spread).all()


@pytest.mark.parametrize("tenths", [(0, 2, 8), (8, 0, 2)])
def test_replacements(tenths):
    """Oracles: the tenths; tokens that are random keep their value across tenths."""
    arrays = dynamic_arrays(2000)
    masked, random = (mask(arrays, tenths=shares) for shares in (tenths, (0, 0, 10)))
    for name in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
        np.testing.assert_array_equal(masked[name], random[name])
    rows, slots = np.nonzero(masked["masked_lm_weights"])
    at = rows, masked["masked_lm_positions"][rows, slots]
    shown = masked["input_word_ids"][at]
    candidates = [MASK, arrays["input_word_ids"][at], random["input_word_ids"][at]]
    shares = [np.mean(shown == candidate) for candidate in candidates]
    np.testing.assert_allclose(shares, np.array(tenths) / 10, atol=0.02)


def test_whole_words_have_the_distribution_of_the_original():
    """Oracle: the original's loop over many shuffles of one row."""
    arrays = dynamic_arrays(1, seed=5)
    many = {name: np.repeat(values, 20_000, axis=0) for name, values in arrays.items()}
    masked = mask(many, units="whole_word")
    real = masked["masked_lm_weights"] > 0
    found = np.bincount(masked["masked_lm_positions"][real], minlength=S) / 20_000

    rng = np.random.default_rng(2)
    words_of_row = words(arrays, 0)
    budget = min(P, max(1, round(int(arrays["input_mask"].sum()) * 0.15)))
    expected = np.zeros(S)
    for _ in range(20_000):
        chosen: list[int] = []
        for index in rng.permutation(len(words_of_row)):
            if len(chosen) + len(words_of_row[index]) <= budget:
                chosen += words_of_row[index]
        expected[chosen] += 1 / 20_000
    assert np.abs(found - expected).max() < 4 * np.sqrt(2 * 0.25 / 20_000)


def test_rows_get_the_same_masks_together_and_one_by_one():
    """Oracle: the batch masked as a whole."""
    same = {name: np.repeat(values, 12, axis=0) for name, values in dynamic_arrays(1).items()}

    def masks(first: int, last: int, **changes) -> np.ndarray:
        rows = {name: values[first:last] for name, values in same.items()}
        return mask(rows, first_row=first, **changes)["input_word_ids"]

    for units in ("wordpiece", "whole_word"):
        whole = masks(0, 12, units=units)
        parts = [masks(0, 1, units=units), masks(1, 5, units=units), masks(5, 12, units=units)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
        assert len(np.unique(whole, axis=0)) > 8  # rows differ, except by chance
    for change in ({"number": 1}, {"seed": 2**32 - 1}, {"stream": TRAINING}):
        assert (masks(0, 12, **change) != masks(0, 12)).any()


def test_left_to_right_predicts_every_next_token():
    """Oracle: a worked example, in which the last [SEP] is predicted and predicts nothing."""
    row = {
        "input_word_ids": [CLS, 11, 12, SEP, 13, SEP, PAD, PAD],
        "input_mask": [1, 1, 1, 1, 1, 1, 0, 0],
        "input_type_ids": [0, 0, 0, 0, 1, 1, 0, 0],
        "word_starts": [0, 1, 1, 0, 1, 0, 0, 0],
        "next_sentence_labels": [1],
    }
    arrays = {name: np.array([values]) for name, values in row.items()}
    found = mask(arrays, max_predictions=7, units="left_to_right")
    del arrays["word_starts"]
    expected = arrays | {
        "masked_lm_positions": [[0, 1, 2, 3, 4, 5, 6]],
        "masked_lm_ids": [[11, 12, SEP, 13, SEP, 0, 0]],
        "masked_lm_weights": [[1, 1, 1, 1, 1, 0, 0]],
    }
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    for name in ("ids", "positions"):
        assert found[f"masked_lm_{name}"].dtype == np.int32
    assert found["masked_lm_weights"].dtype == np.float32


def _write(path, arrays) -> str:
    write_records(str(path), serialize_examples(arrays))
    return str(path)


def _record_set(*files: str, **changes) -> reader.RecordSet:
    contract = dict(max_seq_length=S, max_predictions_per_seq=P, vocab_size=VOCAB, seed=7)
    return reader.RecordSet(files=files, **contract | changes)


def _training(file, batch_size, take, context=None, first_step=0, **changes) -> list[dict]:
    records = _record_set(file, masking=masking(**changes))
    batches = reader.training_batches(records, batch_size, first_step, context)
    return list(batches.take(take).as_numpy_iterator())


def test_every_epoch_has_new_masks_that_depend_on_the_seed(tmp_path):
    """Oracle: the rows, which stay as they are where every predicted token is shown."""
    arrays = dynamic_arrays(60)
    file = _write(tmp_path / "records", arrays)
    assert reader.check_files(_record_set(file))
    first = _training(file, 6, 30, tenths=(0, 10, 0))
    ids, positions = (
        [row.tobytes() for batch in first for row in batch[name]]
        for name in ("input_word_ids", "masked_lm_positions")
    )
    rows = [row.astype(np.int32).tobytes() for row in arrays["input_word_ids"]]
    assert sorted(ids) == sorted(rows * 3)
    masks = set(zip(ids, positions, strict=True))
    different = sum(sum(found == row for found, _ in masks) == 3 for row in rows)
    assert different > 45  # short rows may get equal masks by chance
    other = _training(file, 6, 1, tenths=(0, 10, 0), seed=1)[0]
    assert (other["masked_lm_positions"] != first[0]["masked_lm_positions"]).any()


@pytest.mark.parametrize(
    ("units", "pipelines", "first_step"), [("wordpiece", 1, 0), ("whole_word", 2, 7)]
)
@pytest.mark.slow
def test_a_step_has_the_same_rows_and_masks_under_every_strategy(
    tmp_path, units, pipelines, first_step
):
    """Oracle: the uninterrupted run of one replica over three epochs; each pipeline has two."""
    file = _write(tmp_path / "records", dynamic_arrays(30))
    whole = _training(file, 8, 12, units=units)[first_step:]
    replicas = 2 * pipelines
    contexts = [tf.distribute.InputContext(pipelines, one, replicas) for one in range(pipelines)]
    take = 2 * len(whole)
    shares = [_training(file, 8 // replicas, take, x, first_step, units=units) for x in contexts]
    for step, expected in enumerate(whole):
        rows = [batch for share in shares for batch in share[2 * step : 2 * step + 2]]
        joined = {name: np.concatenate([part[name] for part in rows]) for name in rows[0]}
        np.testing.assert_equal(joined, expected)


def test_evaluation_masks_do_not_depend_on_the_batch_size(tmp_path):
    """Oracle: the rows of other batches."""
    arrays = dynamic_arrays(150)
    file = _write(tmp_path / "records", arrays)

    def rows(batch_size: int, **changes) -> dict[str, np.ndarray]:
        records = _record_set(file, masking=masking(**changes))
        batches = list(reader.evaluation_batches(records, batch_size).as_numpy_iterator())
        names = batches[0]
        return {name: np.concatenate([batch[name] for batch in batches])[:150] for name in names}

    expected = rows(7)
    np.testing.assert_equal(rows(100), expected)
    np.testing.assert_array_equal(expected["input_mask"], arrays["input_mask"])
    changed = rows(7, seed=1)
    assert (changed["masked_lm_positions"] != expected["masked_lm_positions"]).any()


def test_masked_and_dynamic_records_are_not_mixed(tmp_path):
    """Oracle: the numbers of predictions in the records of either kind."""
    good = _write(tmp_path / "good", dynamic_arrays(10))
    assert reader.check_files(_record_set(good))
    other = _write(tmp_path / "static", mask(dynamic_arrays(3)))
    assert not reader.check_files(_record_set(other))
    message = "static, record 1: 5 pred.*, expected 0 .*--masking=dynamic.*, as in .*good: create"
    with pytest.raises(ValueError, match=message):
        reader.check_files(_record_set(good, other))
    explanation = reader.explain_bad_record(_record_set(good, other))
    assert "static, record 1: 5 predictions, expected 0 predictions (--masking" in explanation

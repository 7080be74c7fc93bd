"""Masking while reading. Oracles: a plain-Python restatement of google-research/bert's
`create_masked_lm_predictions`, and the proportions it says, within four standard deviations."""

import numpy as np
import pytest
import tensorflow as tf

from tfrecords.dynamic_masking import DynamicMasking, _take_in_order, mask_batch, prediction_budget
from tfrecords.features import serialize_examples
from tfrecords.reader import check_pretraining_files, explain_bad_record, pretraining_dataset
from tfrecords.writer import write_records

PAD, CLS, SEP, MASK, VOCAB = 0, 2, 3, 4, 200
S, P = 40, 5


def dynamic_arrays(rows: int, seed: int = 0, length: int = S) -> dict[str, np.ndarray]:
    """Rows [CLS] A [SEP] B [SEP] of random lengths and words of one to four pieces."""
    rng = np.random.default_rng(seed)
    end = rng.integers(5, length, (rows, 1))  # of the last [SEP]
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


def mask(arrays, number=0, max_predictions=P, **changes) -> dict[str, np.ndarray]:
    batch = {name: tf.constant(values, tf.int32) for name, values in arrays.items()}
    masked = mask_batch(batch, max_predictions, masking(**changes), 0, tf.constant(number))
    return {name: values.numpy() for name, values in masked.items()}


def units(arrays, row: int) -> list[list[int]]:
    found: list[list[int]] = []
    for column, piece in enumerate(arrays["input_word_ids"][row]):
        if piece in (CLS, SEP, PAD):
            continue
        if arrays["word_starts"][row, column]:
            found.append([])
        found[-1].append(column)
    return found


@pytest.mark.parametrize("whole_word", [False, True])
def test_masked_rows_keep_the_contract(whole_word):
    """Oracle: what the original writes, and the rows before they were masked."""
    arrays = dynamic_arrays(500)
    masked = mask(arrays, whole_word=whole_word)
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
        budget = min(P, max(1, round(length * 0.15)))
        if not whole_word:
            assert len(positions) == min(budget, length - 3)
            continue
        chosen = set(positions.tolist())
        left = budget - len(chosen)
        assert left >= 0
        for unit in units(arrays, row):
            assert chosen >= set(unit) or (not chosen & set(unit) and len(unit) > left)
    for name in ("input_mask", "input_type_ids", "next_sentence_labels"):
        np.testing.assert_array_equal(masked[name], arrays[name])


def test_units_are_taken_in_order_as_they_fit():
    """Oracle: the original's loop."""
    rng = np.random.default_rng(1)
    sizes, budget = rng.integers(0, 7, (2000, 30)), rng.integers(1, 21, 2000)
    taken = _take_in_order(tf.constant(sizes, tf.int32), tf.constant(budget, tf.int32)).numpy()
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
    assert prediction_budget(tf.constant(lengths), prob, 76).numpy().tolist() == expected


@pytest.mark.parametrize("whole_word", [False, True])
def test_proportions(whole_word):
    arrays = dynamic_arrays(20_000, length=60)
    masked = mask(arrays, max_predictions=9, whole_word=whole_word)
    rows, slots = np.nonzero(masked["masked_lm_weights"])
    positions = masked["masked_lm_positions"][rows, slots]
    labels = masked["masked_lm_ids"][rows, slots]
    shown = masked["input_word_ids"][rows, positions]
    n = len(rows)

    def near(count: int, share: float, n: int = n) -> bool:
        return abs(count - n * share) < 4 * np.sqrt(n * share * (1 - share))

    # A random piece is the right one, or [MASK], once in VOCAB times each.
    assert near(np.count_nonzero(shown == MASK), 0.8 + 0.1 / VOCAB)
    assert near(np.count_nonzero(shown == labels), 0.1 + 0.1 / VOCAB)
    random = shown[(shown != MASK) & (shown != labels)]
    counts = np.bincount(random, minlength=VOCAB)
    assert counts[MASK] == 0
    counts = np.delete(counts, MASK)
    expected = len(random) / (VOCAB - 1)
    deviation = ((counts - expected) ** 2 / expected).sum()  # chi squared of VOCAB - 2
    assert abs(deviation - (VOCAB - 2)) < 5 * np.sqrt(2 * (VOCAB - 2))
    # Every maskable piece of a row is as likely as any other (whole words: short ones more so).
    if not whole_word:
        is_piece = (arrays["input_mask"] > 0) & ~np.isin(arrays["input_word_ids"], (CLS, SEP))
        share = masked["masked_lm_weights"].sum(axis=1) / is_piece.sum(axis=1)
        expected = (is_piece * share[:, None]).sum(axis=0)
        found = np.bincount(positions, minlength=60)
        spread = np.sqrt((is_piece * (share * (1 - share))[:, None]).sum(axis=0))
        assert (np.abs(found - expected) <= 4.5 * spread).all()


def test_whole_words_are_chosen_as_by_the_original():
    """Oracle: the distribution of the original's loop over many shuffles of one row."""
    arrays = dynamic_arrays(1, seed=5)
    many = {name: np.repeat(values, 20_000, axis=0) for name, values in arrays.items()}
    masked = mask(many, whole_word=True)
    real = masked["masked_lm_weights"] > 0
    found = np.bincount(masked["masked_lm_positions"][real], minlength=S) / 20_000

    rng = np.random.default_rng(2)
    words = units(arrays, 0)
    budget = min(P, max(1, round(int(arrays["input_mask"].sum()) * 0.15)))
    expected = np.zeros(S)
    for _ in range(20_000):
        chosen: list[int] = []
        for index in rng.permutation(len(words)):
            if len(chosen) + len(words[index]) <= budget:
                chosen += words[index]
        expected[chosen] += 1 / 20_000
    assert np.abs(found - expected).max() < 4 * np.sqrt(2 * 0.25 / 20_000)


def _write(path, arrays) -> str:
    write_records(str(path), serialize_examples(arrays))
    return str(path)


def _batches(file, batch_size, training, take=-1, context=None, **changes) -> list[dict]:
    dataset = pretraining_dataset(
        [file], S, P, VOCAB, batch_size, training, 7, context, masking(**changes)
    )
    return list(dataset.take(take).as_numpy_iterator())


def _by_row(batches: list[dict], arrays) -> dict[bytes, list[bytes]]:
    """The masked forms of each unmasked row."""
    found: dict[bytes, list[bytes]] = {}
    for batch in batches:
        for row in range(len(batch["input_word_ids"])):
            ids = batch["input_word_ids"][row]
            restored = ids.copy()
            real = batch["masked_lm_weights"][row] > 0
            restored[batch["masked_lm_positions"][row][real]] = batch["masked_lm_ids"][row][real]
            found.setdefault(restored.tobytes(), []).append(ids.tobytes())
    return found


def test_every_epoch_is_masked_anew_and_as_the_seed_says(tmp_path):
    arrays = dynamic_arrays(60)
    file = _write(tmp_path / "records", arrays)
    assert check_pretraining_files([file], S, P, VOCAB)
    first = _batches(file, 6, True, 30)
    forms = _by_row(first, arrays)
    assert set(forms) == {row.astype(np.int32).tobytes() for row in arrays["input_word_ids"]}
    assert {len(found) for found in forms.values()} == {3}
    different = sum(len(set(found)) == 3 for found in forms.values())
    assert different > 50  # short rows may be masked alike by chance
    np.testing.assert_equal(_batches(file, 6, True, 30), first)
    other = _batches(file, 6, True, 1, seed=1)[0]
    assert (other["masked_lm_positions"] != first[0]["masked_lm_positions"]).any()


def test_a_run_that_goes_on_sees_the_masks_of_its_steps(tmp_path):
    """Oracle: masks depend on the number of the batch alone, whatever rows are in it."""
    same = {name: np.repeat(values, 64, axis=0) for name, values in dynamic_arrays(1).items()}
    file = _write(tmp_path / "records", same)
    whole = _batches(file, 4, True, 6)
    np.testing.assert_equal(_batches(file, 4, True, 2, first_step=4), whole[4:])

    def context(pipeline: int) -> tf.distribute.InputContext:
        return tf.distribute.InputContext(2, pipeline, num_replicas_in_sync=4)

    shares = [_batches(file, 4, True, 6, context(pipeline)) for pipeline in range(2)]
    assert (shares[0][0]["input_word_ids"] != shares[1][0]["input_word_ids"]).any()
    # Two replicas a pipeline take two batches a step.
    later = _batches(file, 4, True, 2, context(1), first_step=2)
    np.testing.assert_equal(later, shares[1][4:])


def test_evaluation_masks_a_record_the_same_whatever_the_batches(tmp_path):
    arrays = dynamic_arrays(150)
    file = _write(tmp_path / "records", arrays)

    def rows(batch_size: int, **changes) -> dict[str, np.ndarray]:
        batches = _batches(file, batch_size, False, **changes)
        return {
            name: np.concatenate([batch[name] for batch in batches])[:150] for name in batches[0]
        }

    expected = rows(7)
    np.testing.assert_equal(rows(64), expected)
    np.testing.assert_equal(rows(100, first_step=9), expected)
    np.testing.assert_array_equal(expected["input_mask"], arrays["input_mask"])
    positions = expected["masked_lm_positions"]
    np.testing.assert_array_equal(
        np.take_along_axis(arrays["input_word_ids"], positions, 1) * expected["masked_lm_weights"],
        expected["masked_lm_ids"],
    )
    changed = rows(7, seed=1)
    assert (changed["masked_lm_positions"] != positions).any()


def test_bad_dynamic_records_are_named(tmp_path):
    arrays = dynamic_arrays(10)
    file = _write(tmp_path / "good", arrays)
    with pytest.raises(ValueError, match="good: input_word_ids has 40 .*max_seq_length=41"):
        check_pretraining_files([file], 41, P, VOCAB)
    arrays["input_word_ids"][6, 3] = VOCAB
    bad = _write(tmp_path / "bad", arrays)
    assert check_pretraining_files([bad], S, P, VOCAB)
    with pytest.raises(tf.errors.InvalidArgumentError, match="outside the vocabulary"):
        _batches(bad, 5, True, 2)
    explanation = explain_bad_record([file, bad], S, P, VOCAB)
    assert explanation.startswith(f"{bad}, record 7: input_word_ids has id 200, outside")
    static = mask(dynamic_arrays(3))
    other = _write(tmp_path / "static", static)
    assert not check_pretraining_files([other], S, P, VOCAB)
    with pytest.raises(ValueError, match="good and .*static: one is masked, the other is to be"):
        check_pretraining_files([file, other], S, P, VOCAB)
    assert "static, record 1: of another kind" in explain_bad_record([file, other], S, P, VOCAB)

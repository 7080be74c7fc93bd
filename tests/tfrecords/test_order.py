"""The order of records. Oracles: the records as written, and the uninterrupted stream."""

import functools
import itertools
from collections.abc import Callable, Iterator

import pytest
import tensorflow as tf

from tfrecords import order
from tfrecords.manifest import manifest_path, shard_entry, write_manifest
from tfrecords.order import RecordSet, count_records, records_in_order, training_records
from tfrecords.writer import write_records

SIZES = {"a": 250, "b": 101, "c": 1, "d": 30}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Iterator[list[str]]:
    """Plain and compressed files of records that name their file and number."""
    folder = tmp_path_factory.mktemp("records")
    for name, size in SIZES.items():
        records = (f"{name} {number}".encode() for number in range(1, size + 1))
        write_records(str(folder / name), records, "GZIP" if name in "bc" else "")
    with pytest.MonkeyPatch.context() as patch:
        # Smaller than the files.
        patch.setattr(order, "SHUFFLE_BUFFER_RECORDS", 64)
        yield [str(folder / name) for name in SIZES]


@pytest.fixture(scope="module")
def three_epochs(files) -> Callable[[int, str], list[bytes]]:
    """Returns the first three epochs for a seed and a part."""

    @functools.cache
    def read(seed: int, part: str) -> list[bytes]:
        return _take(_training(files, seed, part), 3 * len(_part(part)))

    return read


def _records(files: list[str], **values) -> RecordSet:
    lengths = dict(max_seq_length=1, max_predictions_per_seq=1, vocab_size=1)
    return RecordSet(files=tuple(files), **lengths, **values)


def _training(files: list[str], seed: int, part: str = "all", first: int = 0) -> tf.data.Dataset:
    return training_records(_records(files, seed=seed, part=part), first)


def _part(part: str) -> list[bytes]:
    """Oracle of the split: the first of every 100 records of each file is held out."""
    found = []
    for name, size in SIZES.items():
        for number in range(1, size + 1):
            held_out = number in (1, 101, 201)
            if part == "all" or (part == "held_out") == held_out:
                found.append(f"{name} {number}".encode())
    return found


def _take(records: tf.data.Dataset, count: int = -1) -> list[bytes]:
    return list(records.take(count).as_numpy_iterator())


def test_parts(files):
    for part in ("all", "train", "held_out"):
        assert _take(records_in_order(_records(files, part=part))) == _part(part)
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
    assert _take(_training(files, 2**32 - 1, part), 3 * size) == stream
    assert _take(_training(files, 2, part), size) not in epochs


def test_the_order_is_well_mixed(three_epochs):
    """Oracle: the share of neighbors from the same file in a random order."""
    records = three_epochs(2**32 - 1, "all")[: sum(SIZES.values())]
    same = sum(left[:1] == right[:1] for left, right in itertools.pairwise(records))
    share = sum((size / len(records)) ** 2 for size in SIZES.values())
    assert same / len(records) < share + 0.2


def test_the_order_does_not_depend_on_the_global_seed(files):
    found = []
    try:
        for seed in (0, 1, None):
            tf.random.set_seed(seed)
            found.append(_take(_training(files, seed=3), 20))
    finally:
        tf.random.set_seed(None)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("part", ["all", "train"])
def test_a_resumed_stream_equals_the_tail_of_the_uninterrupted_one(files, three_epochs, part):
    size, seed = len(_part(part)), 2**32 - 1
    whole = three_epochs(seed, part)
    for first in (17, size, 2 * size + 3):
        assert _take(_training(files, seed, part, first), 30) == whole[first : first + 30]
    # This would never end if it read the skipped epochs.
    late = _take(_training(files, seed, part, size * 10**9), size)
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
            for file, number in order.records_of_step(records, 7, step)
        ]
        assert named == rows[7 * step : 7 * (step + 1)]


def test_training_without_records_is_an_error_not_an_endless_loop(files):
    """Oracles: the only record of a file, which is held out; that record, again and again."""
    with pytest.raises(ValueError, match="/c: no records are left to train on, .* every 100"):
        _training([files[2]], seed=1, part="train")
    assert _take(_training([files[2]], seed=1), 2) == [b"c 1"] * 2


def test_counts_come_from_a_manifest_that_matches_the_files(tmp_path):
    """Oracles: the numbers written; a wrong count in the manifest, which shows that it is used."""
    files = [str(tmp_path / f"x.tfrecord-{index:05}-of-00003") for index in range(3)]
    for index, file in enumerate(files):
        write_records(file, [b"record"] * (1500 + index), "GZIP" if index else "")
    assert count_records(files) == [1500, 1501, 1502]
    entries = [shard_entry(file, 7) for file in files[:2]]
    entries[1]["bytes"] += 1
    write_manifest(manifest_path(files[0]), {"shards": entries})
    assert count_records(files) == [7, 1501, 1502]
    (tmp_path / "x.manifest.json").unlink()
    with open(files[0], "ab") as file:
        file.write(b"torn, but longer than a header")
    with pytest.raises(tf.errors.DataLossError):
        count_records(files)

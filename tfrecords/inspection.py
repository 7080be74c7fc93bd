"""Goes through all records of pre-training files; see `inspect.py`."""

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import tensorflow as tf
from tqdm import tqdm

from tfrecords.checks import Batch, first_problem
from tfrecords.features import Layout
from tfrecords.manifest import manifest_path, read_manifest, shard_entry
from tfrecords.records import (
    compression_of,
    layout_of,
    open_records,
    plain_message,
    problem_of_record,
    serialized_records,
)
from tfrecords.statistics import Statistics
from tfrecords.vocabulary import Vocabulary

BATCH_RECORDS = 1024
# Before each record its length and the checksum of that; after it its checksum.
FRAME_BYTES = 8 + 4 + 4


@dataclass
class Inspection:
    """What was found: a problem is a line that begins with the file's name."""

    problems: list[str] = field(default_factory=list)
    bad_files: int = 0
    examples: list[Batch] = field(default_factory=list)
    statistics: Statistics | None = None


class _BadFile(Exception):
    """Says what is wrong with a file."""


def find_manifests(files: Sequence[str], manifest: str | None) -> dict[str, dict]:
    """Path -> manifest: the one named, else all that lie beside the files under their names.

    Raises:
        ValueError: one is no manifest.
        OSError: the one named cannot be read.
    """
    if manifest:
        return {manifest: read_manifest(manifest)}
    paths = dict.fromkeys(map(manifest_path, files))
    return {path: read_manifest(path) for path in paths if tf.io.gfile.exists(path)}


def inspect_files(
    files: Sequence[str],
    manifests: Mapping[str, dict],
    vocab: Vocabulary | None,
    num_examples: int,
) -> Inspection:
    """Checks all records; keeps the first few and sums over those before a file's first bad one.

    Args:
        manifests: path -> what the files of that folder should be.
        vocab: where it is known, ids are checked against it, too.
    """
    found = Inspection()
    layout: Layout | None = None
    expected = {
        _normal(os.path.join(os.path.dirname(path), entry["file"])): entry
        for path, manifest in manifests.items()
        for entry in manifest["shards"]
    }
    total = sum(tf.io.gfile.stat(file).length for file in files)
    with tqdm(total=total, desc="Reading", unit="B", unit_scale=True, delay=2) as progress:
        for file in files:
            try:
                layout = layout or _first_layout(file)
                found.statistics = found.statistics or Statistics(layout, vocab)
                count = 0
                for batch, size in _checked_batches(file, layout, vocab):
                    missing = num_examples - len(found.examples)
                    found.examples += _rows(batch, missing) if missing > 0 else []
                    found.statistics.add(batch)
                    count += len(batch["input_mask"])
                    progress.update(size)
                _check_entry(_normal(file), count, expected, bool(manifests))
            except _BadFile as problem:
                found.problems.append(f"{file}{problem}")
                found.bad_files += 1
    found.problems += [
        f"{file}: the manifest lists it, but it is not there"
        for file in expected
        if not tf.io.gfile.exists(file)
    ]
    return found


def _first_layout(file: str) -> Layout:
    try:
        first = next(serialized_records(file), None)
    except tf.errors.OpError as error:
        raise _BadFile(f": damaged, or not a TFRecord file ({plain_message(error)})") from None
    if first is None:
        raise _BadFile(" holds no whole record")
    layout = layout_of(first)
    if problem := problem_of_record(first, layout):
        raise _BadFile(f", record 1: {problem}")
    return layout


def _checked_batches(
    file: str, layout: Layout, vocab: Vocabulary | None
) -> Iterator[tuple[Batch, int]]:
    """All records of a file in batches, and how many bytes each batch took in the file.

    Raises:
        _BadFile: something is wrong with a record or with the file.
    """
    compression = compression_of(file)
    consumed = done = 0
    try:
        for serialized in open_records(file, compression).batch(BATCH_RECORDS).prefetch(4):
            try:
                batch = {name: value.numpy() for name, value in layout.parse(serialized).items()}
            except tf.errors.InvalidArgumentError:
                raise _BadFile(_explanation(serialized, done, layout)) from None
            if problem := first_problem(batch, vocab):
                raise _BadFile(f", record {done + problem[0] + 1}: {problem[1]}")
            done += len(batch["input_mask"])
            size = int(tf.reduce_sum(tf.strings.length(serialized))) + FRAME_BYTES * len(serialized)
            consumed += size
            yield batch, size
    except tf.errors.OpError as error:
        # The batch that failed is lost: read on record by record to where it did.
        with_number = itertools.count(done)
        try:
            for _ in open_records(file, compression).skip(done):
                next(with_number)
        except tf.errors.OpError:
            pass
        number = next(with_number) + 1
        message = f", record {number}: truncated or corrupt ({plain_message(error)})"
        raise _BadFile(message) from None
    # TensorFlow takes an end inside the first bytes of a record for the end of the file.
    if not compression and consumed != tf.io.gfile.stat(file).length:
        raise _BadFile(f", record {done + 1}: truncated in its first bytes")


def _explanation(serialized: tf.Tensor, done: int, layout: Layout) -> str:
    """Which record of a batch could not be parsed, and why."""
    for number, record in enumerate(serialized.numpy(), start=done + 1):
        found = layout_of(record)
        if problem := problem_of_record(record, found):
            return f", record {number}: {problem}"
        if found != layout:
            return f", record {number}: {found}, where the first record of all has {layout}"
    raise AssertionError("what cannot be parsed has a fault")


def _rows(batch: Batch, count: int) -> list[Batch]:
    rows = range(min(count, len(batch["input_mask"])))
    return [{name: values[row] for name, values in batch.items()} for row in rows]


def _check_entry(file: str, count: int, expected: Mapping[str, dict], listed: bool) -> None:
    """Compares a file with its entry in the manifest.

    Raises:
        _BadFile: it differs, or there is a manifest that does not have it.
    """
    if not listed:
        return
    if file not in expected:
        raise _BadFile(": not in the manifest")
    found, entry = shard_entry(file, count), expected[file]
    for key in ("bytes", "records", "sha256"):
        if found[key] != entry[key]:
            raise _BadFile(f": {key} is {found[key]}, the manifest says {entry[key]}")


def _normal(path: str) -> str:
    return path if "://" in path else os.path.normpath(path)

"""The pieces of work of data creation, each idempotent: what is on disk already is not made again.

All state is in a work folder beside the output, so that any process on any machine that sees the
folder can do any piece, and a run that was killed goes on from what is there:

    job.json             what is being made of what; see `creation.py`
    chunks/G-B.npz, .json    block B of input group G, tokenized; its size and counts
    segments/S-K.tfrecord, .json    segment K of shard S; its size and counts
    shards/S.json        shard S is under its final name: its size, checksum and counts

A file is complete once it is there; a .json is written after the file that it describes.
"""

import functools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from bert_tf.corpus.sources import Block, read_blocks, tfds_blocks
from bert_tf.examples.documents import (
    Chunk,
    TextSettings,
    load_chunk,
    make_chunk,
    save_chunk,
)
from bert_tf.examples.pipeline import ExampleCounts, Settings, make_examples, unit_seed
from bert_tf.examples.plan import Segment, Unit
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.features import ORIGINAL_NAMES, serialize_examples
from tfrecords.manifest import shard_entry
from tfrecords.vocabulary import Vocabulary
from tfrecords.writer import atomic_write, join_files, write_records


@dataclass(frozen=True)
class Work:
    """What every piece of work needs to know.

    Attributes:
        folder: the work folder.
        groups: the input files, in groups that are read one after the other.
        tfds: or the name of a TFDS dataset, which is then the only group, and its data_dir.
        block_bytes: how much text makes a chunk.
        output_files: the shards.
        compression: "" or "GZIP".
        original_names: whether features are named as by google-research/bert.
    """

    folder: str
    groups: tuple[tuple[str, ...], ...]
    tfds: str | None
    tfds_dir: str | None
    block_bytes: int
    text: TextSettings
    lower_case: bool
    settings: Settings
    dupe_factor: int
    seed: int
    output_files: tuple[str, ...]
    compression: str
    original_names: bool

    def path(self, *parts: str) -> str:
        return os.path.join(self.folder, *parts)

    def shard_path(self, shard: int) -> str:
        """What is known of a finished shard."""
        return self.path("shards", f"{shard:05}.json")

    def name_in_manifest(self, shard: int) -> str:
        """The name of a shard as seen from the folder of the manifest."""
        first, file = self.output_files[0], self.output_files[shard]
        return os.path.relpath(file, os.path.dirname(first) or ".")

    def segment_path(self, segment: Segment) -> str:
        return self.path("segments", f"{segment.shard:05}-{segment.index:05}.tfrecord")


@dataclass(frozen=True)
class Part:
    """Block `index` of input group `group`."""

    group: int
    index: int
    block: Block

    @property
    def name(self) -> str:
        return f"{self.group:06}-{self.index:06}"


def read_group(work: Work, group: int) -> Iterator[Part]:
    """The blocks of a group that are not tokenized yet.

    Raises:
        OSError: an input cannot be read.
    """
    if work.tfds:
        blocks = tfds_blocks(work.tfds, work.block_bytes, work.tfds_dir)
    else:
        blocks = read_blocks(work.groups[group], work.block_bytes)
    for index, block in enumerate(blocks):
        part = Part(group, index, block)
        if not known(work.path("chunks", f"{part.name}.npz")):
            yield part


def tokenize_part(work: Work, part: Part) -> dict:
    """Makes a chunk; returns and keeps its counts."""
    tokenizer = _tokenizer(work.settings.vocab, work.lower_case)
    chunk, counts = make_chunk(part.block, tokenizer, work.text)
    lengths = np.diff(chunk.sentence_starts)
    done = {
        "tokens": len(chunk.pieces),
        "long_sentences": int(np.count_nonzero(lengths > work.settings.max_seq_length - 3)),
        "text": counts.to_dict(),
    }
    path = work.path("chunks", f"{part.name}.npz")
    save_chunk(path, chunk)
    _write_known(path, done)
    return done


def make_segment(work: Work, names: list[str], segment: Segment) -> int:
    """Makes, shuffles and writes the examples of a segment; returns their number.

    Args:
        names: of the chunks, in order.
    """
    path = work.segment_path(segment)
    if made := known(path):
        return made["examples"]
    records: list[bytes] = []
    counts = ExampleCounts()
    for unit in segment.units:
        made, unit_counts = _unit_records(work, names, unit)
        records += made
        if unit.part == 0:
            counts += unit_counts
    spawn_key = (2**32 - 1, segment.shard, segment.index)  # apart from the keys of units
    rng = np.random.default_rng(np.random.SeedSequence(work.seed, spawn_key=spawn_key))
    order = rng.permutation(len(records))
    write_records(path, (records[index] for index in order), work.compression)
    _write_known(path, {"examples": len(records), "counts": counts.to_dict()})
    return len(records)


def join_shard(work: Work, segments: list[Segment]) -> None:
    """Puts a shard together from its segments, which are removed.

    Its entry names it as seen from the folder of the manifest.

    Raises:
        ValueError: the shard would be empty.
    """
    shard = segments[0].shard
    entry_path = work.shard_path(shard)
    paths = [work.segment_path(segment) for segment in segments]
    if not tf.io.gfile.exists(entry_path):
        made = [read_json(_about(path)) for path in paths]
        examples = sum(part["examples"] for part in made)
        if not examples:
            raise ValueError(
                f"too little text for {len(work.output_files)} output files: "
                f"{work.output_files[shard]} would hold no example; name fewer files"
            )
        counts = sum((ExampleCounts.from_dict(part["counts"]) for part in made), ExampleCounts())
        join_files(paths, work.output_files[shard])
        entry = shard_entry(work.output_files[shard], examples) | {
            "file": work.name_in_manifest(shard),
            "counts": counts.to_dict(),
        }
        write_json(entry_path, entry)
    for path in paths:
        for file in (_about(path), path):  # no .json without its file
            if tf.io.gfile.exists(file):
                tf.io.gfile.remove(file)


def make_shard(work: Work, names: list[str], segments: list[Segment]) -> None:
    """All of a shard, by one worker."""
    for segment in segments:
        make_segment(work, names, segment)
    join_shard(work, segments)


def read_json(path: str) -> dict | None:
    """A small file of the work folder; None if it is not there or damaged."""
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            values = json.loads(file.read())
    except (tf.errors.OpError, ValueError):
        return None
    return values if isinstance(values, dict) and values else None


def known(path: str) -> dict | None:
    """What was written down of a chunk or segment; None unless it is there as it was written."""
    about = read_json(_about(path))
    if about and tf.io.gfile.exists(path) and tf.io.gfile.stat(path).length == about.get("bytes"):
        return about
    return None


def write_json(path: str, values: dict) -> None:
    """Writes a small file of the work folder."""
    atomic_write(path, json.dumps(values))


def _about(path: str) -> str:
    return f"{os.path.splitext(path)[0]}.json"


def _write_known(path: str, values: dict) -> None:
    write_json(_about(path), values | {"bytes": tf.io.gfile.stat(path).length})


def _unit_records(work: Work, names: list[str], unit: Unit) -> tuple[list[bytes], ExampleCounts]:
    chunk = load_chunk(work.path("chunks", f"{names[unit.chunk]}.npz"))
    partner: Chunk | None = None
    if unit.partner is not None and work.settings.objective == "nsp":
        partner = load_chunk(work.path("chunks", f"{names[unit.partner]}.npz"))
    seed = unit_seed(work.seed, unit.chunk, unit.dupe)
    arrays, counts = make_examples(chunk, partner, seed, work.settings)
    if work.original_names:
        arrays = {ORIGINAL_NAMES.get(name, name): array for name, array in arrays.items()}
    chosen = slice(unit.part, None, unit.parts)
    return serialize_examples({name: array[chosen] for name, array in arrays.items()}), counts


@functools.lru_cache(maxsize=1)
def _tokenizer(vocab: Vocabulary, lower_case: bool) -> WordPieceTokenizer:
    return WordPieceTokenizer(vocab, lower_case=lower_case)

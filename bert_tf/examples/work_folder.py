"""The state on disk of an unfinished job.

The folder lies beside the output. Any process, on any machine that can access it, can do any step
of the work, and a job that was killed resumes where it stopped:

    job.json                 settings and inputs; see `creation`
    chunks/G-B.chunk, .json    block B of input group G, tokenized; its size and counts
    parts/S-P.tfrecord, .json    part P of shard S; its size and counts
    shards/S.json            shard S exists under its final name: its manifest entry and counts
    lock                     held by the process that works in the folder; see `folder_lock`

Every file appears atomically, and a .json file is written after the file that it describes.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass

import tensorflow as tf

from bert_tf.examples.plan import ShardPart
from tfrecords import files
from tfrecords.writer import atomic_write, remove


def read_json(path: str) -> dict | None:
    """Returns the object in a JSON file; None if the file is missing, damaged or empty."""
    try:
        return files.read_json(path) or None
    except (OSError, ValueError):
        return None


@dataclass(frozen=True)
class WorkFolder:
    """Reads and writes the state of an unfinished job."""

    path: str

    def clear(self) -> None:
        """Removes the unfinished work, and no other file; the description of the job goes last."""
        found = tf.io.gfile.listdir(self.path) if tf.io.gfile.exists(self.path) else ()
        for kind in ("chunks", "parts", "shards", "output", "job.json"):
            # A killed process may have left "job.json.tmp-1", too.
            for name in found:
                if name.startswith(kind):
                    remove(self._file(name.rstrip("/")))

    def remove(self) -> None:
        """Removes the unfinished work; the folder goes with its lock if nothing else is in it."""
        self.clear()
        remote = "://" in self.path and tf.io.gfile.exists(self.path)
        if remote and not tf.io.gfile.listdir(self.path):
            tf.io.gfile.rmtree(self.path)

    @property
    def job_file(self) -> str:
        """The description of the job that was started here."""
        return self._file("job.json")

    def chunk_file(self, name: str) -> str:
        return self._file("chunks", f"{name}.chunk")

    def chunk_counts(self) -> dict[str, dict]:
        """Returns the counts of all chunks by name, in the order of the input."""
        folder = self._file("chunks")
        found = tf.io.gfile.listdir(folder) if tf.io.gfile.exists(folder) else ()
        names = sorted(file.removesuffix(".chunk") for file in found if file.endswith(".chunk"))
        return {name: read_counts(self.chunk_file(name)) for name in names}

    def part_file(self, part: ShardPart) -> str:
        return self._file("parts", f"{part.shard:05}-{part.index:05}.tfrecord")

    def remove_parts(self, parts: Iterable[ShardPart]) -> None:
        for part in parts:
            # The counts come first: they must not outlive the file that they describe.
            file = self.part_file(part)
            remove(_counts_file(file), file)

    def shard_entry(self, shard: int) -> dict | None:
        """Returns the manifest entry of a finished shard, with its counts."""
        return read_json(self._shard_file(shard))

    def has_shard(self, shard: int, output_file: str) -> bool:
        """Returns whether a shard was finished and its output file still has the same size."""
        entry = self.shard_entry(shard)
        return bool(entry) and _size(output_file) == entry.get("bytes")

    def finish_shard(self, shard: int, entry: dict) -> None:
        atomic_write(self._shard_file(shard), json.dumps(entry))

    def _file(self, *names: str) -> str:
        return os.path.join(self.path, *names)

    def _shard_file(self, shard: int) -> str:
        return self._file("shards", f"{shard:05}.json")


def _counts_file(file: str) -> str:
    return f"{os.path.splitext(file)[0]}.json"


def read_counts(file: str) -> dict | None:
    """Returns the counts of a finished chunk or part; None if its file is missing or damaged."""
    counts = read_json(_counts_file(file))
    return counts if counts and _size(file) == counts.get("bytes") else None


def finish(file: str, counts: dict) -> None:
    """Records that the file of a chunk or part is complete."""
    atomic_write(_counts_file(file), json.dumps(counts | {"bytes": _size(file)}))


def _size(file: str) -> int:
    """Returns the size of a file, or -1 if it does not exist."""
    return tf.io.gfile.stat(file).length if tf.io.gfile.exists(file) else -1

"""The state on disk of an unfinished job.

The folder lies beside the output. Any process, on any machine that can access it, can do any step
of the work, and a job that was killed resumes where it stopped:

    job.json                 settings and inputs, and whether other output is replaced
    chunks/G-B.chunk, .json    block B of input group G, tokenized; its counts
    parts/S-P.tfrecord, .json    part P of shard S; its counts
    shards/S.json            shard S exists under its final name: its manifest entry and counts
    output*                  of bulk jobs: the output until it is complete
    lock                     held by the process that works in the folder; see `folder_lock`

Every file appears atomically. A .json file is written after the file that it describes, and holds
a checksum of its counts and that file.
"""

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from bert_tf.base import files
from bert_tf.base.files import file_sha256, lines_sha256
from bert_tf.base.output_files import TEMPORARY, absolute_path, atomic_write, remove, remove_folder
from bert_tf.base.provenance import MADE, description_of

# The names of what jobs write into the folder, and into its subfolders.
_FOLDERS = ("chunks", "parts", "shards")
_FILES = re.compile(rf"(output\.\w+(\.rejected|\.labels)?|job\.json)({TEMPORARY})?")
_STEPS = re.compile(rf"\d+(-\d+)?\.(chunk(\.rejected)?|tfrecord|json)({TEMPORARY})?")
_STATE = MADE | {"counts?": dict[str, Any], "written?": dict[str, Any]}


def read_json(path: str) -> dict[str, Any] | None:
    """Returns the object in a JSON file; None if the file is missing, damaged or empty."""
    try:
        return files.read_json(path, _STATE) or None
    except (OSError, ValueError):
        return None


@dataclass(frozen=True)
class WorkFolder:
    """Reads and writes the state of an unfinished job."""

    path: str

    def clear(self) -> None:
        """Removes the unfinished work and no other file; job.json goes last.

        Raises a ValueError if no job.json describes the work.
        """
        found = [name.rstrip("/") for name in _names(self.path)]
        ours = [name for name in found if name in _FOLDERS or _FILES.fullmatch(name)]
        left = [name for name in ours if not re.search(TEMPORARY, name)]
        if left and not description_of(read_json(self.job_file)).get("bert_tf"):
            raise ValueError(
                f"{self.path} contains {left[0]}, but no job.json that describes it: move the "
                "folder away, or choose another --output_file"
            )
        for name in sorted(ours, key=lambda name: name == "job.json"):
            path = self._file(name)
            if name not in _FOLDERS:
                remove(path)
                continue
            remove(*(f"{path}/{step}" for step in _names(path) if _STEPS.fullmatch(step)))
            if not _names(path) and not os.path.islink(path):  # a link to a larger disk
                remove_folder(path)

    def check_inputs(self, files: Iterable[str | None]) -> None:
        """Raises a ValueError for an input in the folder, whose files are removed."""
        for file in filter(None, files):
            if absolute_path(file).startswith(f"{absolute_path(self.path)}/"):
                raise ValueError(
                    f"{file} lies in {self.path}, where unfinished work goes: move it, or choose "
                    "another --output_file"
                )

    def check(self, complete: bool = True) -> None:
        """Raises an OSError if finished work is missing."""
        if not (complete and tf.io.gfile.exists(self.job_file)):
            raise OSError(
                f"{self.path}: files disappeared while the command ran: remove the folder, and "
                "run the same command again"
            )

    def remove(self) -> None:
        """Removes the unfinished work; the folder goes with its lock if nothing else is in it."""
        self.clear()
        if "://" in self.path and not _names(self.path):
            remove_folder(self.path)

    @property
    def job_file(self) -> str:
        """The description of the job that was started here."""
        return self._file("job.json")

    def chunk_file(self, name: str) -> str:
        return self._file("chunks", f"{name}.chunk")

    def chunk_counts(self) -> dict[str, dict]:
        """Returns the counts of all chunks by name, in the order of the input."""
        folder = self._file("chunks")
        found = _names(folder)
        names = sorted(file.removesuffix(".chunk") for file in found if file.endswith(".chunk"))
        return {name: read_counts(self.chunk_file(name)) for name in names}

    def part_file(self, shard: int, index: int) -> str:
        return self._file("parts", f"{shard:05}-{index:05}.tfrecord")

    def shard_file(self, shard: int) -> str:
        """Returns the place of a shard's manifest entry; see `finish`."""
        return self._file("shards", f"{shard:05}")

    def _file(self, *names: str) -> str:
        return os.path.join(self.path, *names)


def _counts_file(place: str) -> str:
    return f"{os.path.splitext(place)[0]}.json"


def read_counts(place: str) -> dict | None:
    """Returns the counts that `finish` recorded at a place; None if they are missing or damaged."""
    return (read_json(_counts_file(place)) or {}).get("counts")


def _names(folder: str) -> list[str]:
    return tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []


def finish(place: str, counts: dict, *files: str) -> None:
    """Records at a place that the files of a chunk, a part or a shard are complete."""
    state = {"counts": counts, "sha256": _checksum(counts, files)}
    atomic_write(_counts_file(place), json.dumps(state))


def discard(*files: str) -> None:
    """Removes finished files and what `finish` recorded of them."""
    for file in files:
        # The counts come first: they must not outlive the file that they describe.
        remove(_counts_file(file), file)


def is_finished(place: str, *files: str) -> bool:
    """Returns whether `finish` was called, and counts and files are unchanged since then."""
    state = read_json(_counts_file(place)) or {}
    try:
        return state.get("sha256") == _checksum(state.get("counts"), files)
    except OSError:
        return False


def _checksum(counts: dict | None, files: Iterable[str]) -> str:
    return lines_sha256([json.dumps(counts, sort_keys=True), *map(file_sha256, files)])

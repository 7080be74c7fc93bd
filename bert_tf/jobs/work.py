"""Jobs that process their input in chunks and resume where an earlier run stopped.

In one stage or two, a command turns chunks into files, each with a function of one chunk, and joins
these into its output, which is the same, byte for byte, wherever the work ran. The state is in a
folder beside the output. Any process that can access it, on any machine, can do any step:

    job.json                 settings and inputs, and whether other output is replaced
    chunks/G-N.data, .json   what was computed from chunk N of group G; its counts
    parts/G-N.data, .json    the same for the second stage of jobs that have one
    outputs/N.json           output file N exists under its final name; its counts
    lock                     held by the process that works in the folder; see `output_files.locked`

Every file appears atomically. A .json file is written after the file that it describes, and holds
a checksum of its counts and that file.
"""

import contextlib
import functools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from bert_tf.base import files
from bert_tf.base.files import file_sha256, lines_sha256, names_in
from bert_tf.base.made import MADE, Made
from bert_tf.base.output_files import (
    REPLACE,
    TEMPORARY,
    atomic_write,
    check_free,
    locked,
    remove,
    remove_folder,
    whole_file,
)
from bert_tf.jobs.workers import RunChunks

_JOB = "job.json"
_STAGES = ("chunks", "parts")
# The names of the files that jobs write into subfolders and the folder itself. They are removed in
# this order: the output is on record until nothing else says which job wrote it.
_NAMES = dict.fromkeys(_STAGES, r"\d+-\d+\.(data|json)")
_NAMES |= {"": r"job\.json", "outputs": r"\d+\.json"}
_STATE = MADE | {"counts?": dict[str, Any], "overwrite?": bool}


@contextlib.contextmanager
def unfinished_work(path: str, made: Made, overwrite: bool) -> Iterator["UnfinishedWork"]:
    """Opens the work in a folder, which no other process may enter; removes it at the end.

    After an error, the finished work is kept, and the same command resumes. After a ValueError, the
    same command would fail again, so new work is removed. Work of an earlier run is kept, because
    it may have taken hours and may still be useful with other settings.
    """
    with locked(path):
        job = UnfinishedWork(path).job
        before = Made.from_dict(job)
        if job and not overwrite:
            before.check(path, made, REPLACE)
        # Another version may keep its unfinished work in another form.
        resumes = before.matches(made) and before.version == made.version
        overwrite = overwrite or (resumes and job.get("overwrite", False))
        work = UnfinishedWork(path, resumes, overwrite)
        if not resumes:
            work.clear()
        try:
            yield work
        except ValueError:
            if not resumes:
                work.remove()
            raise
        work.remove()


@dataclass(frozen=True)
class UnfinishedWork:
    """Reads and writes the state of the work in a folder."""

    path: str
    resumes: bool = False  # whether an earlier run of the same command left work there
    overwrite: bool = False  # other output; whether this run or that one was asked to

    def start(self, made: Made) -> None:
        """Says what the work is, before anything of it is written."""
        state = made.to_dict() | {"overwrite": self.overwrite}
        atomic_write(self._file(_JOB), json.dumps(state))

    def clear(self) -> None:
        """Removes the unfinished work and no other file; raises a ValueError without a job.json."""
        found = [name for name in (*_STAGES, _JOB) if tf.io.gfile.exists(self._file(name))]
        # Those that a run left which was killed at its end are on record.
        outputs = [f"outputs/{name}" for name in names_in(self._file("outputs"))]
        found += [name for name in outputs if "sha256" not in _read_json(self._file(name))]
        if found and not self.job.get("bert_tf"):
            raise ValueError(
                f"{self.path} contains {found[0]}, but no job.json that describes it: move the "
                "folder away, or choose another --output_file"
            )
        for name in _NAMES:
            folder = self._file(name) if name else self.path
            ours = re.compile(f"({_NAMES[name]})({TEMPORARY})?")
            remove(*(f"{folder}/{file}" for file in names_in(folder) if ours.fullmatch(file)))
            # A link may lead to a larger disk.
            if name and not names_in(folder) and not os.path.islink(folder):
                remove_folder(folder)

    def remove(self) -> None:
        """Removes the unfinished work; the folder goes with its lock if nothing else is in it."""
        self.clear()
        if "://" in self.path and not names_in(self.path):
            remove_folder(self.path)

    def check(self, complete: bool = True) -> None:
        """Raises an OSError if finished work is missing."""
        if not (complete and tf.io.gfile.exists(self._file(_JOB))):
            raise OSError(
                f"{self.path}: files disappeared while the command ran: remove the folder, and "
                "run the same command again"
            )

    @property
    def job(self) -> dict[str, Any]:
        """The description of the job that was started here; {} if there is none."""
        return _read_json(self._file(_JOB))

    def stage_file(self, stage: str, group: int, number: int) -> str:
        """Returns the file that a stage makes of a chunk."""
        return self._file(stage, f"{group:08}-{number:08}.data")

    def counts(self, stage: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields the files of a stage with their counts, in the order of the input."""
        for name in sorted(names_in(self._file(stage))):
            if name.endswith(".data"):
                yield (file := self._file(stage, name)), read_counts(file)

    def compute(
        self,
        run_chunks: RunChunks,
        stage: str,
        groups: int,
        read: Callable[[int], Iterable[tuple[int, Any]]],
        make: Callable[[str, Any], dict[str, Any]],
        **progress: Any,
    ) -> None:
        """Makes a file of every chunk, unless an earlier run did.

        Args:
            stage: "chunks" or "parts"; `groups` is the number of groups of chunks.
            read: yields the chunks of a group, each after its size in the unit of `progress`.
            make: writes what it makes of a chunk to a path, and returns counts, which fit into
                JSON. It depends on nothing but the chunk, and may run elsewhere, like `read`.
        """
        made = functools.partial(self._make, stage, make)
        run_chunks(groups, functools.partial(_read, read), made, **progress)
        self.check()

    def _make(
        self, stage: str, make: Callable, group: int, number: int, size: int, chunk: Any
    ) -> tuple[int, bool]:
        """Returns the size of the chunk, and whether its file was there already."""
        file = self.stage_file(stage, group, number)
        if is_finished(file, file):
            return size, True
        finish(file, make(file, chunk), file)
        return size, False

    def output_place(self, number: int) -> str:
        """Returns the place where an output file is on record; see `finish`."""
        return self._file("outputs", f"{number:05}")

    def missing(self, outputs: Sequence[str], replaceable: str | None = None) -> list[int]:
        """Returns the numbers of the output files that are not on record.

        Without `overwrite`, no other file may be in their places but the `replaceable` one.
        """
        missing = [n for n, x in enumerate(outputs) if not is_finished(self.output_place(n), x)]
        if not self.overwrite:
            check_free(*(outputs[n] for n in missing if outputs[n] != replaceable))
        return missing

    def write_output(
        self,
        number: int,
        path: str,
        write: Callable[[str], dict[str, Any]],
        overwrite: bool = False,
    ) -> None:
        """Writes an output file, unless it is on record; `write` returns its counts."""
        place = self.output_place(number)
        if not is_finished(place, path):
            with whole_file(path, overwrite or self.overwrite) as temporary:
                counts = write(temporary)
                # First, so that every file that a killed run leaves is on record.
                finish(place, counts, temporary)

    def _file(self, *names: str) -> str:
        return os.path.join(self.path, *names)


def _read(read: Callable, group: int) -> Iterator[tuple]:
    return ((group, number, *chunk) for number, chunk in enumerate(read(group)))


def _read_json(path: str) -> dict[str, Any]:
    """Returns the object in a JSON file; {} if the file is missing or damaged."""
    try:
        return files.read_json(path, _STATE)
    except (OSError, ValueError):
        return {}


def _record(place: str) -> str:
    return f"{os.path.splitext(place)[0]}.json"


def read_counts(place: str) -> dict[str, Any] | None:
    """Returns the counts that `finish` recorded at a place; None if they are missing or damaged."""
    return _read_json(_record(place)).get("counts")


def finish(place: str, counts: dict[str, Any], file: str) -> None:
    """Records at a place that a file is complete."""
    state = {"counts": counts, "sha256": _checksum(counts, file)}
    atomic_write(_record(place), json.dumps(state))


def is_finished(place: str, file: str) -> bool:
    """Returns whether `finish` was called, and counts and file are unchanged since then."""
    state = _read_json(_record(place))
    try:
        return state.get("sha256") == _checksum(state.get("counts"), file)
    except OSError:
        return False


def discard(*files: str) -> None:
    """Removes finished files and what `finish` recorded of them."""
    for file in files:
        # The counts come first: they must not outlive the file that they describe.
        remove(_record(file), file)


def _checksum(counts: dict[str, Any] | None, file: str) -> str:
    return lines_sha256([json.dumps(counts, sort_keys=True), file_sha256(file)])

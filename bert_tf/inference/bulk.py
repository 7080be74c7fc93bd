"""Applies a model to a file of any size, in memory that does not grow with the file.

One process reads the rows in order and cuts them into chunks. Worker processes, or those of Apache
Beam, compute a part of the output from each chunk. The parts are kept in a work folder beside the
output (see `examples.work_folder`) and become the output in the order of the rows, all or nothing.
After a kill, the same command computes only the missing parts. Rows that cannot be read are listed
in a file of their own.
"""

import abc
import contextlib
import dataclasses
import functools
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from bert_tf import __version__
from bert_tf.corpus.content import is_utf8
from bert_tf.examples.runner import open_runner
from bert_tf.examples.work_folder import (
    WorkFolder,
    finish,
    read_counts,
    read_json,
    remove_files,
)
from bert_tf.inference.inference_options import BulkOptions
from bert_tf.inference.texts import Numbered, Row
from bert_tf.runs.provenance import check_same, describe_file, description_of, differences
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.fingerprint import fingerprint
from bert_tf.workers import num_processes
from tfrecords.manifest import file_sha256
from tfrecords.progress import counted, progress_bar
from tfrecords.writer import atomic_write, whole_file

# What a chunk holds at most, unless a single row is larger.
_CHUNK_ROWS, _CHUNK_BYTES = 2048, 2**20
# Flags that do not change the output, or that are described otherwise.
_NO_SETTINGS = {"checkpoint", "input_file", "output_file", "texts", "json"} | {
    field.name for field in dataclasses.fields(BulkOptions)
}
_ADVICE = "name another --output_file, or replace it with --overwrite"


class BulkJob(abc.ABC):
    """What to compute from the rows of a file. Is pickled for each chunk, without the model.

    Attributes:
        options: the flags, with `input_file`, `output_file` and those of `BulkOptions`.
    """

    options: BulkOptions

    @property
    @abc.abstractmethod
    def checkpoint(self) -> Checkpoint | None:
        """The model; None for one in a single file."""

    @abc.abstractmethod
    def rows(self) -> Iterator[Numbered]:
        """Reads the rows of the input; prints notes on them to standard error."""

    @abc.abstractmethod
    def write_part(self, file: str, first: int, rows: Sequence[Row | None]) -> dict[str, int]:
        """Writes a part of the output; returns counts.

        Args:
            first: the index of the first row in the input.
            rows: what to compute from; None for a row that cannot be read.
        """

    @abc.abstractmethod
    def join(self, parts: Sequence[str]) -> None:
        """Turns the parts, which it keeps, into the output."""


def run_job(job: BulkJob) -> Counter:
    """Writes the output of a job; returns its counts, `rows` and `rejected` included."""
    options = job.options
    path, rejected = options.output_file, f"{options.output_file}.rejected.jsonl"
    if tf.io.gfile.exists(path) and not options.overwrite:
        raise ValueError(f"{path} exists: {_ADVICE}")
    rows = progress_bar(total=None, desc="Counting", unit=" rows", delay=2, iterable=job.rows())
    if not (total := sum(1 for _ in rows)):
        raise ValueError(f"{options.input_file} is empty")
    folder = WorkFolder(f"{path}.unfinished")
    with folder.locked():
        resumes = _prepare(folder, job)
        try:
            _compute(job, folder, total)
            parts = [folder.chunk_file(name) for name in folder.chunk_counts()]
            counts = _write_rejected(parts, rejected)
            if counts["rejected"] == total:
                raise ValueError(f"{options.input_file}: no row can be read; see {rejected}")
            job.join(parts)
        except ValueError:
            # The same command would fail again; with other flags, it may succeed.
            if not resumes:
                folder.remove()
            raise
        folder.remove()
    if counts["rejected"]:
        print(
            f"WARNING: left out {counted(counts['rejected'], 'row')} of {total:,}; {rejected} says "
            "why."
        )
    return counts


def _prepare(folder: WorkFolder, job: BulkJob) -> bool:
    """Prepares the work folder; returns whether it holds finished parts of the job."""
    options = job.options
    settings = {
        name: value
        for name, value in dataclasses.asdict(options).items()
        if name not in _NO_SETTINGS
    }
    model = fingerprint(job.checkpoint) if job.checkpoint else file_sha256(options.checkpoint)
    settings["checkpoint"] = {"file": options.checkpoint, "sha256": model}
    file = options.input_file
    inputs = [describe_file(file) | {"sha256": file_sha256(file)}]
    description = {"bert_tf": __version__, "settings": settings, "inputs": inputs}
    before, now = description_of(read_json(folder.job_file)), description_of(description)
    if not any(differences(before, now)):
        return True
    if before and not options.overwrite:
        check_same(folder.path, before, now, _ADVICE)
    folder.clear()
    atomic_write(folder.job_file, json.dumps(description))
    return False


def _compute(job: BulkJob, folder: WorkFolder, total: int) -> None:
    """Computes the parts that are missing."""
    options = job.options
    num_workers = num_processes(options.num_workers, 1)
    done = sum(counts["rows"] for counts in folder.chunk_counts().values() if counts)
    with open_runner(options.runner, num_workers, options.beam_options) as runner:
        runner.run_chunks(
            1,
            functools.partial(_read_chunks, job, folder),
            functools.partial(_work, job, folder),
            lambda name, first, rows: len(rows),
            desc="Computing",
            total=total,
            initial=done,
            unit=" rows",
        )


def _read_chunks(
    job: BulkJob, folder: WorkFolder, group: int
) -> Iterator[tuple[str, int, list[Numbered]]]:
    """Yields the chunks without a part: the name, the index of the first row, and the rows."""
    chunks, first, number = _chunks(job.rows()), 0, 0

    def next_chunk() -> list[Numbered] | None:
        # Counting the rows has printed all notes on them.
        with contextlib.redirect_stderr(io.StringIO()):
            return next(chunks, None)

    for number, rows in enumerate(iter(next_chunk, None)):
        name = f"{number:08}"
        if not read_counts(folder.chunk_file(name)):
            yield name, first, rows
        first += len(rows)


def _chunks(rows: Iterable[Numbered]) -> Iterator[list[Numbered]]:
    chunk, size = [], 0
    for line, row in rows:
        if isinstance(row, Row):
            size += _size(row.texts)
            if not _is_utf8(row.texts):
                row = ValueError(f"line {line:,} is not UTF-8")
        chunk.append((line, row))
        if len(chunk) == _CHUNK_ROWS or size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _size(texts: Any) -> int:
    return len(texts) if isinstance(texts, bytes | str) else sum(map(_size, texts))


def _is_utf8(texts: Any) -> bool:
    if isinstance(texts, bytes):
        return is_utf8(texts)
    return isinstance(texts, str) or all(map(_is_utf8, texts))


def _work(
    job: BulkJob, folder: WorkFolder, name: str, first: int, rows: Sequence[Numbered]
) -> None:
    """Computes the part of a chunk."""
    file = folder.chunk_file(name)
    read = [row if isinstance(row, Row) else None for _, row in rows]
    counts = job.write_part(file, first, read)
    rejected = [(line, str(row)) for line, row in rows if isinstance(row, ValueError)]
    finish(file, counts | {"rows": len(rows), "rejected": rejected})


def _write_rejected(parts: Sequence[str], path: str) -> Counter:
    """Lists the rows that could not be read in a file, if any; returns the sums of all counts."""
    total = Counter()
    for part in parts:
        counts = read_counts(part)
        total.update(counts | {"rejected": len(counts["rejected"])})
    remove_files([path])
    if total["rejected"]:
        with whole_file(path) as temporary, tf.io.gfile.GFile(temporary, "w") as file:
            for line, reason in (item for part in parts for item in read_counts(part)["rejected"]):
                values = {"line": line, "reason": reason}
                file.write(json.dumps(values, ensure_ascii=False) + "\n")
    return total

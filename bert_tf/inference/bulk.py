"""Applies a model to files of any size, in memory that does not grow with them.

One process reads the rows in order and cuts them into chunks. Worker processes, or those of Apache
Beam, compute a part of the output from each chunk. The parts are kept in a work folder beside the
output (see `jobs.work_folder`) and become the output in the order of the rows, all or nothing.
After a kill, the same command computes only the missing parts; if the output had just appeared, it
only removes the work folder. Rows that cannot be read are listed in a file of their own.
"""

import contextlib
import dataclasses
import functools
import io
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from bert_tf import __version__
from bert_tf.base.content import is_utf8
from bert_tf.base.files import file_sha256, read_file
from bert_tf.base.folder_lock import locked
from bert_tf.base.output_files import (
    REPLACE,
    atomic_write,
    check_free,
    check_output_files,
    join_files,
    publish,
    remove,
)
from bert_tf.base.progress import counted, progress_bar, say
from bert_tf.base.provenance import check_same, describe_file, description_of, differences
from bert_tf.inference.texts import Numbered, Row, in_groups, read_files, rows_in
from bert_tf.jobs.runner_options import RunnerOptions
from bert_tf.jobs.work_folder import WorkFolder, finish, is_finished, read_json
from bert_tf.jobs.workers import num_processes, open_runner

_CHUNK_ROWS = 1024
# Flags that do not change the output, or that are described otherwise.
_NO_SETTINGS = {"checkpoint", "input_file", "output_file", "texts", "json"}
_NO_SETTINGS |= {field.name for field in dataclasses.fields(RunnerOptions)}


# A file, the number of a row in it, and the row or what is wrong with it.
_Item = tuple[str, int, Row | ValueError]


@dataclass(frozen=True)
class BulkJob:
    """What to compute from the rows of a file. It is pickled for each chunk, without the model.

    Attributes:
        options: the flags, with `output_file` and those of `RunnerOptions`. They are the first
            argument of `write_part` and `join`.
        files: the input.
        model: the checksum of the model.
        rows: reads a file; prints notes on it.
        write_part: maps a path, the index of the first row, and rows, None for those that cannot be
            read, to counts, after it has written that part of the output.
        join: writes the output at a path, and `labels` beside it, from the parts, and keeps these.
        labels: path of a second output file, which `join` writes to PATH.labels.
    """

    options: RunnerOptions
    files: Sequence[str]
    model: str
    rows: Callable[[str], Iterator[Numbered]]
    write_part: Callable[[Any, str, int, Sequence[Row | None]], dict[str, int]]
    join: Callable[[Any, Sequence[str], str], None]
    labels: str | None = None

    def run(self) -> Counter:
        """Writes the output; returns the counts, `rows` and `rejected` included."""
        options, folder = self.options, WorkFolder(f"{self.options.output_file}.unfinished")
        read = [*self.files, options.checkpoint, options.vocab_file]
        check_output_files([*self._outputs(folder).values()], read)
        folder.check_inputs(read)
        if not self._written(folder):
            files = self._outputs(folder).items()
            check_free(*(path for file, path in files if not self._replaces(file, path)))
        bar = dict(desc="Counting", unit=" rows", delay=2)
        items = progress_bar(total=None, iterable=read_files(self.files, self.rows), **bar)
        if not (total := sum(1 for _ in items)):
            raise ValueError(f"{options.input_file} is empty")
        with locked(folder.path):
            resumes = self._prepare(folder)
            try:
                counts = self._written(folder) or self._write(folder, total)
                self._publish(folder, counts)
            except ValueError:
                # The same command would fail again; with other flags, it may succeed.
                if not resumes:
                    folder.remove()
                raise
            folder.remove()
        if count := counts["rejected"]:
            rows, rejected = counted(count, "row"), f"{options.output_file}.rejected.jsonl"
            print(f"WARNING: left out {rows} of {total:,}; {rejected} says why.")
        return counts

    def _outputs(self, folder: WorkFolder) -> dict[str, str]:
        """Returns the final path of each output file, by its path until all are complete."""
        output = self.options.output_file
        joined = f"{folder.path}/output{os.path.splitext(output)[1]}"
        files = {f"{joined}.rejected": f"{output}.rejected.jsonl", joined: output}
        return ({f"{joined}.labels": self.labels} if self.labels else {}) | files

    def _written(self, folder: WorkFolder) -> Counter | None:
        """Returns the counts of a job that was killed after its output had been complete."""
        job = read_json(folder.job_file) or {}
        *_, (joined, output) = self._outputs(folder).items()
        if not (written := job.get("written")):
            return None
        file = joined if tf.io.gfile.exists(joined) else output
        same = tf.io.gfile.exists(file) and file_sha256(file) == written.get("sha256")
        return Counter(written["counts"]) if same else None

    def _publish(self, folder: WorkFolder, counts: Counter) -> None:
        """Moves those output files to their final paths that are not there yet."""
        for file, path in self._outputs(folder).items():
            if tf.io.gfile.exists(file):
                publish(file, path, self._replaces(file, path))
            elif file.endswith(".rejected") and not counts["rejected"] and _lists_rejected(path):
                remove(path)  # those of an earlier output

    def _replaces(self, file: str, path: str) -> bool:
        """Returns whether a file of the output replaces what is at `path`."""
        return self.options.overwrite or (file.endswith(".rejected") and _lists_rejected(path))

    def _prepare(self, folder: WorkFolder) -> bool:
        """Prepares the work folder; returns whether it holds unfinished work of this job."""
        options = self.options
        values = dataclasses.asdict(options)
        settings = {name: values[name] for name in values if name not in _NO_SETTINGS}
        settings["checkpoint"] = {"file": options.checkpoint, "sha256": self.model}
        inputs = [describe_file(file) | {"sha256": file_sha256(file)} for file in self.files]
        description = {"bert_tf": __version__, "settings": settings, "inputs": inputs}
        before, now = description_of(read_json(folder.job_file)), description_of(description)
        if not any(differences(before, now)):
            return True
        if before and not options.overwrite:
            check_same(folder.path, before, now, REPLACE)
        folder.clear()
        atomic_write(folder.job_file, json.dumps(description))
        return False

    def _write(self, folder: WorkFolder, total: int) -> Counter:
        """Computes the parts that are missing and joins all; returns the sums of their counts."""
        options, counts = self.options, self._compute(folder, total)
        parts = [folder.chunk_file(name) for name in folder.chunk_counts()]
        *_, rejected, joined = self._outputs(folder)
        if counts["rejected"]:
            join_files([f"{part}.rejected" for part in parts], rejected)
        if counts["rejected"] == total:
            self._publish(folder, counts)
            path = self._outputs(folder)[rejected]
            raise ValueError(f"{options.input_file}: no row can be read; see {path}")
        self.join(options, parts, joined)
        written = {"counts": counts, "sha256": file_sha256(joined)}
        atomic_write(folder.job_file, json.dumps(read_json(folder.job_file) | {"written": written}))
        return counts

    def _compute(self, folder: WorkFolder, total: int) -> Counter:
        """Computes the parts that are missing; returns the sums of all counts."""
        options, done, start = self.options, _sums(folder)["rows"], time.monotonic()
        num_workers = num_processes(options.num_workers, 1)
        with open_runner(options.runner, num_workers, options.beam_options) as run_chunks:
            read, work = (functools.partial(step, self, folder) for step in (_read_chunks, _work))
            bar = dict(desc="Computing", total=total, initial=done, unit=" rows")
            run_chunks(1, read, work, **bar)
        counts = _sums(folder)
        folder.check(complete=counts["rows"] == total)
        if rows := counts["rows"] - done:
            rate = rows / (time.monotonic() - start)
            say(f"Computed {counted(rows, 'row')}, {rate:,.0f} per second.")
        return counts


def _lists_rejected(path: str) -> bool:
    """Returns whether a file lists rows that an earlier command could not read."""
    try:
        lines = [*map(json.loads, read_file(path).splitlines())]
        return bool(lines) and all(x.keys() == {"file", "line", "reason"} for x in lines)
    except (OSError, ValueError, AttributeError):
        return False


def _sums(folder: WorkFolder) -> Counter:
    return sum((Counter(counts) for counts in folder.chunk_counts().values()), Counter())


def _read_chunks(
    job: BulkJob, folder: WorkFolder, group: int
) -> Iterator[tuple[str, int, list[_Item]]]:
    """Yields the chunks without a part: the name, the index of the first row, and the rows."""
    items = map(_checked, read_files(job.files, job.rows))
    chunks, first = in_groups(items, lambda item: rows_in(item[2]), _CHUNK_ROWS), 0

    def next_chunk() -> list[_Item] | None:
        # Counting the rows has printed all notes on them.
        with contextlib.redirect_stdout(io.StringIO()):
            return next(chunks, None)

    for number, rows in enumerate(iter(next_chunk, None)):
        part = folder.chunk_file(name := f"{number:08}")
        if not is_finished(part, part, f"{part}.rejected"):
            yield name, first, rows
        first += len(rows)


def _checked(item: _Item) -> _Item:
    """Returns a row, or an error if its texts are not UTF-8."""
    file, line, row = item
    if isinstance(row, ValueError) or is_utf8(row.content):
        return item
    return file, line, ValueError(f"line {line:,} is not UTF-8")


def _work(job: BulkJob, folder: WorkFolder, name: str, first: int, rows: Sequence[_Item]) -> int:
    """Computes the part of a chunk, and lists the rows that cannot be read; counts the rows."""
    part = folder.chunk_file(name)
    good = [row if isinstance(row, Row) else None for *_, row in rows]
    # The first process has printed what there is to say.
    with contextlib.redirect_stdout(io.StringIO()):
        counts = job.write_part(job.options, part, first, good)
    rejected = [
        json.dumps({"file": file, "line": line, "reason": str(row)}) + "\n"
        for file, line, row in rows
        if isinstance(row, ValueError)
    ]
    atomic_write(f"{part}.rejected", "".join(rejected))
    counts |= {"rows": len(rows), "rejected": len(rejected)}
    finish(part, counts, part, f"{part}.rejected")
    return len(rows)

"""Applies a model to files of any size, in memory that does not grow with them.

One process reads the rows in order and cuts them into chunks. Worker processes, or those of Apache
Beam, compute a part of the output from each chunk. The parts are kept in a work folder beside the
output (see `jobs.work`) and become the output in the order of the rows, all or nothing. After a
kill, the same command computes only the missing parts; if the output had just appeared, it only
removes the work folder. Rows that cannot be read are listed in a file of their own.
"""

import contextlib
import functools
import io
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from bert_tf.base.common_options import RunnerOptions
from bert_tf.base.content import is_utf8
from bert_tf.base.files import read_file
from bert_tf.base.made import Made, describe_files
from bert_tf.base.output_files import check_output_files, remove
from bert_tf.base.progress import counted, progress_bar, say
from bert_tf.inference.texts import NumberedRow, TextRow, in_groups, read_each, rows_in
from bert_tf.jobs.work import UnfinishedWork, read_counts, unfinished_work
from bert_tf.jobs.workers import open_runner
from bert_tf.text.coverage import CoverageCheck
from bert_tf.text.tokenizer import WordPieceTokenizer

_CHUNK_ROWS = 1024
# A file, the number of a row in it, and the row or what is wrong with it.
_Item = tuple[str, int, TextRow | ValueError]


@dataclass(frozen=True)
class BulkJob:
    """What to compute from the rows of input `files`, with a `model` of this checksum.

    It reads them with this `tokenizer`; None if it is inside an exported model.

    The flags also have an `output_file`. `rows` reads a file, and prints notes on it. `write_part`
    maps the flags, a path, the index of the first row, and rows, None for those that cannot be
    read, to counts, after it has written that part of the output. `joins` write an output file at a
    path from the paths of all parts, by the names of these files. The last is `output_file`, with
    which the others appear.
    """

    options: RunnerOptions
    files: Sequence[str]
    model: str
    tokenizer: WordPieceTokenizer | None
    rows: Callable[[str], Iterator[NumberedRow]]
    write_part: Callable[[Any, str, int, Sequence[TextRow | None]], dict[str, int]]
    joins: Mapping[str, Callable[[Sequence[str], str], None]]

    def run(self) -> Counter:
        """Writes the output; returns the counts, `rows` and `rejected` included."""
        options, rejected = self.options, f"{self.options.output_file}.rejected.jsonl"
        path, outputs = f"{options.output_file}.unfinished", [rejected, *self.joins]
        read = [*self.files, options.checkpoint, options.vocab_file]
        check_output_files(outputs, read, work_folder=path)
        model = {"name": "checkpoint", "file": options.checkpoint, "sha256": self.model}
        made = Made(options.values("place"), [*describe_files(self.files), model])
        with unfinished_work(path, made, options.overwrite) as work:
            earlier = rejected if _lists_rejected(rejected) else None
            # The last file appears after the others.
            if len(self.joins) in work.missing(outputs, replaceable=earlier):
                total = self._count_rows()
                work.start(made)
                counts = self._compute(work, total)
                self._write_rejected(work, rejected, counts, bool(earlier))
                parts = [part for part, _ in work.counts("chunks")]
                for number, (output, join) in enumerate(self.joins.items(), 1):
                    write = functools.partial(_join, join, parts, counts)
                    work.write_output(number, output, write)
            counts = Counter(read_counts(work.output_place(len(self.joins))))
        if count := counts["rejected"]:
            rows = counted(count, "row")
            print(f"WARNING: left out {rows} of {counts['rows']:,}; {rejected} says why.")
        return counts

    def _count_rows(self) -> int:
        bar = dict(desc="Counting", unit=" rows", delay=2)
        items = progress_bar(total=None, iterable=read_each(self.files, self.rows), **bar)
        first = [*itertools.islice(items, _CHUNK_ROWS)]
        if not (total := len(first) + sum(1 for _ in items)):
            raise ValueError(f"{self.options.input_file} is empty")
        CoverageCheck(self.tokenizer)(row.content for *_, row in first if isinstance(row, TextRow))
        return total

    def _compute(self, work: UnfinishedWork, total: int) -> Counter:
        """Computes the parts that are missing; returns the sums of all counts."""
        done, start = _sums(work)["rows"], time.monotonic()
        read = functools.partial(_read_chunks, self.files, self.rows)
        make = functools.partial(_make_part, self.write_part, self.options)
        bar = dict(desc="Computing", total=total, unit=" rows")
        with open_runner(self.options, 1) as run_chunks:
            work.compute(run_chunks, "chunks", 1, read, make, **bar)
        counts = _sums(work)
        work.check(complete=counts["rows"] == total)
        if rows := counts["rows"] - done:
            rate = rows / (time.monotonic() - start)
            say(f"Computed {counted(rows, 'row')}, {rate:,.0f} per second.")
        return counts

    def _write_rejected(
        self, work: UnfinishedWork, path: str, counts: Counter, earlier: bool
    ) -> None:
        """Lists the rows that cannot be read, in place of those of an earlier command."""
        if counts["rejected"]:
            work.write_output(0, path, functools.partial(_list_rejected, work), earlier)
        elif earlier:
            remove(path)
        if counts["rejected"] == counts["rows"]:
            raise ValueError(f"{self.options.input_file}: no row can be read; see {path}")


def _lists_rejected(path: str) -> bool:
    """Returns whether a file lists rows that an earlier command could not read."""
    try:
        lines = [*map(json.loads, read_file(path).splitlines())]
        return bool(lines) and all(x.keys() == {"file", "line", "reason"} for x in lines)
    except (OSError, ValueError, AttributeError):
        return False


def _list_rejected(work: UnfinishedWork, path: str) -> dict:
    with tf.io.gfile.GFile(path, "w") as file:
        for _, counts in work.counts("chunks"):
            for row in counts["rejected"]:
                file.write(json.dumps(row) + "\n")
    return {}


def _join(join: Callable, parts: Sequence[str], counts: Counter, path: str) -> Counter:
    join(parts, path)
    return counts


def _sums(work: UnfinishedWork) -> Counter:
    sums = Counter()
    for _, counts in work.counts("chunks"):
        if counts:
            sums.update(counts | {"rejected": len(counts["rejected"])})
    return sums


def _read_chunks(
    files: Sequence[str], rows: Callable[[str], Iterator[NumberedRow]], group: int
) -> Iterator[tuple[int, tuple[int, list[_Item]]]]:
    """Yields the chunks of the only group: the number of rows; the index of the first; the rows."""
    items = map(_checked, read_each(files, rows))
    chunks, first = in_groups(items, lambda item: rows_in(item[2]), _CHUNK_ROWS), 0

    def next_chunk() -> list[_Item] | None:
        # Counting the rows has printed all notes on them.
        with contextlib.redirect_stdout(io.StringIO()):
            return next(chunks, None)

    for chunk in iter(next_chunk, None):
        yield len(chunk), (first, chunk)
        first += len(chunk)


def _checked(item: _Item) -> _Item:
    """Returns a row, or an error if its texts are not UTF-8."""
    file, line, row = item
    if isinstance(row, ValueError) or is_utf8(row.content):
        return item
    return file, line, ValueError(f"line {line:,} is not UTF-8")


def _make_part(
    write_part: Callable, options: RunnerOptions, path: str, chunk: tuple[int, Sequence[_Item]]
) -> dict[str, Any]:
    """Computes the part of a chunk; returns its counts, and the rows that cannot be read."""
    first, items = chunk
    good = [row if isinstance(row, TextRow) else None for *_, row in items]
    # The first process has printed what there is to say.
    with contextlib.redirect_stdout(io.StringIO()):
        counts = write_part(options, path, first, good)
    rejected = [
        {"file": file, "line": line, "reason": str(row)}
        for file, line, row in items
        if isinstance(row, ValueError)
    ]
    return counts | {"rows": len(items), "rejected": rejected}

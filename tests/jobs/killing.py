"""Kills jobs all over their way, and runs them again: python -m tests.jobs.killing FOLDER JOB.

Each run is a process that is forked before TensorFlow computes anything, which saves importing it.
"""

import contextlib
import functools
import json
import multiprocessing
import os
import pathlib
import shutil
import signal
import sys
from collections.abc import Callable

import tensorflow as tf

from bert_tf import build_vocab, create_pretraining_data, predict
from bert_tf.base.output_files import atomic_write, join_files
from bert_tf.examples import job
from bert_tf.inference import bulk
from bert_tf.inference.texts import TextRow
from bert_tf.vocabulary import building, counting

# What makes chunks small.
SMALL = (
    (job, "_MIN_BLOCK_BYTES", 100),
    (job, "_MIN_PARTS", 6),
    (counting, "BLOCK_BYTES", 500),
    (bulk, "_CHUNK_ROWS", 5),
)
_KILLS = 10
# Where a run may be killed. In between, it computes.
_CALLS = ("GFile", "exists", "isdir", "listdir", "makedirs", "remove", "rename", "rmtree", "stat")


def create_data(folder: pathlib.Path, **flags) -> None:
    files = dict(input_file=f"{folder}/text-*.txt", vocab_file=f"{folder}/vocab.txt")
    files |= dict(output_file=f"{folder}/out/data.tfrecord", num_shards=3)
    lengths = dict(max_seq_length=16, max_predictions_per_seq=3, dupe_factor=4)
    create_pretraining_data.run(create_pretraining_data.Options(**files, **lengths, **flags))


def extend_vocabulary(folder: pathlib.Path, **flags) -> None:
    files = dict(input_file=f"{folder}/words.txt", output_file=f"{folder}/out/vocab.txt")
    build_vocab.run(build_vocab.Options(**files, extend_vocab=f"{folder}/vocab.txt", **flags))


def compute_lines(folder: pathlib.Path, **flags) -> None:
    """Computes as predict does, but without a model."""
    output = f"{folder}/out/lines.jsonl"
    files = dict(checkpoint="none", input_file=f"{folder}/text-0.txt", output_file=output)
    options = predict.Options(**files, **flags)
    joins = {f"{output}.labels": join_files, output: join_files}
    try:
        bulk.BulkJob(options, [options.input_file], "", None, _rows, _write_part, joins).run()
    except FileExistsError:
        # The run before was killed in its last moment, when it had forgotten how it began.
        if any(name.endswith(".data") for *_, names in os.walk(folder) for name in names):
            raise


def _rows(file: str):
    for number, line in enumerate(pathlib.Path(file).read_bytes().splitlines(), 1):
        yield number, TextRow(line) if line else ValueError("blank")


def _write_part(options, file: str, first: int, rows) -> dict[str, int]:
    atomic_write(file, "".join(f"{first} {row}\n" for row in rows))
    return {}


JOBS = {job.__name__: job for job in (create_data, extend_vocabulary, compute_lines)}


def content(folder: pathlib.Path) -> dict[str, bytes]:
    files = filter(pathlib.Path.is_file, folder.rglob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def _run_counted(job: Callable, folder: pathlib.Path, num_workers: int, calls, kill_at: int):
    """Runs a job, and counts calls that touch files; dies in the one with the number `kill_at`."""

    def counted(function, *arguments, **options):
        calls.value += 1
        if calls.value == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)

    for name in _CALLS:
        setattr(tf.io.gfile, name, functools.partial(counted, getattr(tf.io.gfile, name)))
    for change in (*SMALL, (building, "_coverage", lambda *_: "")):
        setattr(*change)
    with contextlib.redirect_stdout(sys.stderr):
        job(folder, num_workers=num_workers)


def _run(job: Callable, folder: pathlib.Path, num_workers: int = 1, kill_at: int = 0) -> int | None:
    """Runs a job in another process; returns the number of its calls, None if it was killed."""
    fork = multiprocessing.get_context("fork")
    calls = fork.Value("i", lock=False)
    process = fork.Process(target=_run_counted, args=(job, folder, num_workers, calls, kill_at))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), "the job failed"
    return None if process.exitcode else calls.value


def main(folder: str, name: str) -> None:
    """Prints how often a run was killed, and the names of files that differ afterwards."""
    folder, job, kills, calls, contents = pathlib.Path(folder), JOBS[name], 0, {}, []
    for num_workers in (1, 2):
        calls[num_workers] = _run(job, folder, num_workers)
        contents.append(content(folder / "out"))
        shutil.rmtree(folder / "out")
    for number in range(1, _KILLS + 1):
        num_workers = 2 if number == _KILLS // 2 else 1
        kill_at = number * calls[num_workers] // (_KILLS + 1)
        kills += _run(job, folder, num_workers, kill_at) is None
        _run(job, folder)
        contents.append(content(folder / "out"))
        shutil.rmtree(folder / "out")
    first = contents[0]
    different = [[x for x in first | found if first.get(x) != found.get(x)] for found in contents]
    print(json.dumps({"kills": kills, "different": different, "files": sorted(first)}))


if __name__ == "__main__":
    main(*sys.argv[1:])

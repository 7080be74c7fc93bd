"""Runs the steps of data creation, or other work in chunks, in processes here or on Apache Beam."""

import contextlib
import functools
import shlex
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from bert_tf.corpus.content import estimate_content_bytes
from bert_tf.examples.job import Job
from bert_tf.examples.plan import ShardPart
from bert_tf.examples.steps import join_shard, make_part, read_group, tokenize_block
from bert_tf.examples.work_folder import WorkFolder, read_counts
from bert_tf.workers import Workers, available_cores
from tfrecords.progress import progress_bar, say

# Starting a worker takes as long as creating examples from this much text on one core (counting
# each byte once per pass).
_BYTES_PER_WORKER = 2**27


# Calls `work(*chunk)` with each tuple `chunk` that `read(number)` yields for the numbers below
# `groups`. What it returns is added to a progress bar, which has the other arguments.
RunChunks = Callable[..., None]


def _run_here(
    workers: Workers,
    groups: int,
    read: Callable[[int], Iterable[tuple]],
    work: Callable[..., int],
    **progress: Any,
) -> None:
    with progress_bar(**progress) as bar:
        tasks = ((work, *chunk) for group in range(groups) for chunk in read(group))
        for _, size in workers.results(tasks):
            bar.update(size)


def _beam_runner(name: str, beam_options: str) -> RunChunks:
    """Returns a function that runs a pipeline of Apache Beam, with the same results.

    The work folder and the output folder must be visible to all workers (`gs://`, `hdfs://` or a
    network disk).
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
    except ImportError:
        raise ValueError("--runner needs Apache Beam: pip install apache-beam") from None
    options = PipelineOptions([f"--runner={name}", *shlex.split(beam_options)])
    # Workers import what they need by name. The main session contains nothing else for them.
    options.view_as(SetupOptions).save_main_session = False

    def run_chunks(groups, read, work, *, desc, **_):
        say(f"{desc} ...")
        with beam.Pipeline(options=options) as pipeline:
            _ = (
                pipeline
                | beam.Create(range(groups))
                | "Spread groups" >> beam.Reshuffle()
                | "Read" >> beam.FlatMap(read)
                | "Spread chunks" >> beam.Reshuffle()
                | "Work" >> beam.Map(lambda chunk: work(*chunk))
            )

    return run_chunks


@contextlib.contextmanager
def open_runner(name: str, num_workers: int, beam_options: str | None) -> Iterator[RunChunks]:
    """Yields the function that runs work here, in `num_workers` processes, or on Beam's runner."""
    if name == "local":
        with Workers(num_workers) as workers:
            yield functools.partial(_run_here, workers)
    else:
        yield _beam_runner(name, beam_options or "")


def tokenize(run_chunks: RunChunks, job: Job, folder: WorkFolder) -> None:
    """Turns every block of the input into a chunk."""
    run_chunks(
        len(job.groups),
        functools.partial(read_group, job, folder),
        functools.partial(tokenize_block, job, folder),
        total=estimate_content_bytes(job.input_files) or None,
        desc="Tokenizing",
        unit="B",
        unit_scale=True,
    )


def make_shards(
    run_chunks: RunChunks,
    job: Job,
    folder: WorkFolder,
    chunk_names: list[str],
    shards: list[list[ShardPart]],
) -> None:
    """Creates shards, each given as a list of its parts."""
    run_chunks(
        len(shards),
        lambda shard: [(part,) for part in shards[shard]],
        functools.partial(make_part, job, folder, chunk_names),
        total=sum(part.tokens for parts in shards for part in parts),
        desc="Creating examples",
        unit=" tokens",
        unit_scale=True,
    )
    for parts in shards:
        if not any(read_counts(folder.part_file(part))["examples"] for part in parts):
            raise ValueError(
                f"{job.output_files[parts[0].shard]} would be empty, because there is too little "
                f"text for {len(job.output_files)} output files: ask for fewer"
            )
    run_chunks(
        len(shards),
        lambda shard: [(shards[shard],)],
        functools.partial(join_shard, job, folder),
        total=len(shards),
        desc="Joining",
        unit=" files",
        delay=2,
    )


def useful_workers(job: Job) -> int:
    """Returns how many workers start in less time than they save."""
    if job.options.tfds or job.options.split_sentences or job.options.segmenter:
        return available_cores()
    size = sum(tf.io.gfile.stat(file).length for file in job.input_files)
    passes = job.options.dupe_factor + 2  # Tokenizing takes as long as two passes.
    return 1 + size * passes // _BYTES_PER_WORKER

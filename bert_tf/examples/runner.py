"""Runs work in chunks, in processes here or on Apache Beam."""

import contextlib
import functools
import shlex
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bert_tf.workers import Workers
from tfrecords.progress import progress_bar, say

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

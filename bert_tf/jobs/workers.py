"""Worker processes, and Apache Beam, for work that takes too long on one core."""

import contextlib
import functools
import multiprocessing
import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_any
from typing import Any

from bert_tf.base import command
from bert_tf.base.process import needed
from bert_tf.base.progress import progress_bar, say

# More processes only take memory: each loads TensorFlow.
_MOST_PER_CORE = 8

# A function and its arguments. The function is defined at the top level of a module.
Task = tuple
# Calls `work(*chunk)` with each tuple `chunk` that `read(number)` yields for the numbers below
# `groups`. What it returns is added to a progress bar, which has the other arguments.
RunChunks = Callable[..., None]


def available_cores() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def num_processes(asked: int | None, useful: int) -> int:
    """Returns how many processes to use; says so if they are fewer than asked for.

    Without --num_workers, more processes than `useful` would not save time.
    """
    cores = available_cores()
    if asked is None:
        return min(cores, useful)
    if asked > (most := _MOST_PER_CORE * cores):
        say(f"--num_workers={asked:,} is more than {_MOST_PER_CORE} per core: using {most:,}.")
    return min(asked, most)


class Workers:
    """Runs tasks in this process and `num_workers - 1` others. A context manager.

    The other processes are spawned, so each imports its own TensorFlow, with as many threads as its
    share of the cores. That takes seconds, during which this process already works; its threads are
    those that TensorFlow has started. The others exit at once when the context exits, or when this
    process ends for whatever reason.
    """

    def __init__(self, num_workers: int) -> None:
        self._others = num_workers - 1
        self._pool: ProcessPoolExecutor | None = None
        # Closing this end of a pipe tells the other processes to exit.
        self._stop: Connection | None = None

    def __enter__(self) -> "Workers":
        if self._others:
            stopped, self._stop = multiprocessing.Pipe(duplex=False)
            self._pool = ProcessPoolExecutor(
                self._others,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start_worker,
                initargs=(stopped, max(1, available_cores() // (1 + self._others))),
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool:
            self._stop.close()
            self._pool.shutdown(cancel_futures=True)

    def results(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, object]]:
        """Yields tasks with their results, in the order in which they finish.

        Tasks are taken one by one, as workers become free.
        """
        rest = iter(tasks)
        running: dict[Future, Task] = {}
        try:
            while True:
                # For each running task, another one waits, so that no worker is ever idle.
                while len(running) < 2 * self._others and (task := next(rest, None)):
                    running[self._pool.submit(*task)] = task
                if done := [future for future in running if future.done()]:
                    for future in done:
                        yield running.pop(future), future.result()
                elif task := next(rest, None):
                    yield task, task[0](*task[1:])
                elif running:
                    wait(running, return_when=FIRST_COMPLETED)
                else:
                    return
        except BrokenProcessPool:
            raise OSError(
                "a worker process died, perhaps because the system ran out of memory: run the same "
                "command again with a smaller --num_workers"
            ) from None


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
    with needed("apache-beam", "--runner needs"):
        import apache_beam as beam
        import grpc
        from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
    options = PipelineOptions([f"--runner={name}", *shlex.split(beam_options)])
    # Workers import what they need by name. The main session contains nothing else for them.
    options.view_as(SetupOptions).save_main_session = False

    # Raised by runners if options, the network or packages are missing.
    errors = RuntimeError, ImportError, grpc.RpcError, grpc.FutureTimeoutError

    def run_chunks(groups, read, work, *, desc, **_):
        say(f"{desc} ...")
        try:
            with beam.Pipeline(options=options) as pipeline:
                _ = (
                    pipeline
                    | beam.Create(range(groups))
                    | "Spread groups" >> beam.Reshuffle()
                    | "Read" >> beam.FlatMap(read)
                    | "Spread chunks" >> beam.Reshuffle()
                    | "Work" >> beam.Map(lambda chunk: work(*chunk))
                )
        except errors as error:
            reason = f"{type(error).__name__}: {error}"[:500]
            raise OSError(f"--runner={name}: {reason}; check --beam_options") from error

    return run_chunks


@contextlib.contextmanager
def open_runner(name: str, num_workers: int, beam_options: str | None) -> Iterator[RunChunks]:
    """Yields the function that runs work here, in `num_workers` processes, or on Beam's runner."""
    if name == "local":
        with Workers(num_workers) as workers:
            yield functools.partial(_run_here, workers)
    else:
        yield _beam_runner(name, beam_options or "")


def _start_worker(stopped: Connection, threads: int) -> None:
    # Ctrl-C is for the parent to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_when_stopped, args=(stopped,), daemon=True).start()
    command.import_tensorflow()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


def _exit_when_stopped(stopped: Connection) -> None:
    # The pool does not tell its workers that the parent was killed.
    wait_for_any([stopped, multiprocessing.parent_process().sentinel])
    os._exit(1)

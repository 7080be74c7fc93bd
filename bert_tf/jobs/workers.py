"""Worker processes, and Apache Beam, for work that takes too long on one core."""

import contextlib
import functools
import multiprocessing
import os
import shlex
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_any
from typing import Any

import joblib

from bert_tf.base import command
from bert_tf.base.common_options import RunnerOptions
from bert_tf.base.files import errors_at
from bert_tf.base.process import needed
from bert_tf.base.progress import progress_bar, say

# More processes only take memory: each loads TensorFlow.
_MOST_PER_CORE = 8
# Tasks per worker that wait, run, or wait for those before them to end, so that none is ever idle.
_AHEAD = 4
# Beam knows the other runners by their short names.
_FULL_NAMES = {"DaskRunner": "apache_beam.runners.dask.dask_runner.DaskRunner"}

# A function and its arguments. The function is defined at the top level of a module.
WorkerCall = tuple
# Calls `work(*chunk)` with each tuple `chunk` that `read(number)` yields for the numbers below
# `groups`. It returns an amount of work, and whether that was done before. A progress bar, which
# has the other arguments, shows it.
RunChunks = Callable[..., None]


def available_cores() -> int:
    """Returns the number of cores that this process may use, in a container its quota."""
    return joblib.cpu_count()


def num_processes(asked: int | None, useful: int) -> int:
    """Returns how many processes to use, by default only `useful` ones; says if not as asked."""
    cores = available_cores()
    if asked is None:
        return min(cores, useful)
    if asked > (most := _MOST_PER_CORE * cores):
        say(f"--num_workers={asked:,} is more than {_MOST_PER_CORE} per core: using {most:,}.")
    return min(asked, most)


@contextlib.contextmanager
def open_workers(num_workers: int) -> Iterator[Callable[[Iterable[WorkerCall]], Iterator[Any]]]:
    """Yields a function that runs tasks, and yields their results in the order of the tasks.

    One worker is this process. Several are spawned, so each imports its own TensorFlow, with as
    many threads as its share of the cores, while this process only hands out tasks. They exit at
    once when the context exits, or when this process ends for whatever reason.
    """
    if num_workers == 1:
        yield lambda tasks: (function(*arguments) for function, *arguments in tasks)
        return
    # Closing this end of a pipe tells the other processes to exit.
    stopped, stop = multiprocessing.Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        num_workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(stopped, max(1, available_cores() // num_workers)),
    )
    try:
        yield functools.partial(_results, pool, _AHEAD * num_workers)
    finally:
        stop.close()
        pool.shutdown(cancel_futures=True)


def _results(pool: ProcessPoolExecutor, most: int, tasks: Iterable[WorkerCall]) -> Iterator[Any]:
    running: deque[Future] = deque()
    try:
        for task in tasks:
            running.append(pool.submit(*task))
            if len(running) == most:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    except BrokenProcessPool:
        raise OSError(
            "a worker process died: if the system ran out of memory, run the same command again "
            "with a smaller --num_workers; a script that calls bert_tf needs "
            '`if __name__ == "__main__":`, because each worker imports it'
        ) from None


def _run_here(
    results: Callable[[Iterable[WorkerCall]], Iterator[Any]],
    groups: int,
    read: Callable[[int], Iterable[tuple]],
    work: Callable[..., tuple[int, bool]],
    **progress: Any,
) -> None:
    with progress_bar(**progress) as bar:
        before = 0
        tasks = ((work, *chunk) for group in range(groups) for chunk in read(group))
        for size, was_done in results(tasks):
            # That says nothing of how fast the rest will be.
            before += size if was_done else 0
            bar.initial = before
            bar.update(size)


def _beam_runner(name: str, beam_options: str) -> RunChunks:
    """Returns a function that runs a pipeline of Beam, whose workers must see the folders."""
    with errors_at(f"--beam_options={beam_options}"):
        others = shlex.split(beam_options)
    with needed("apache-beam", "--runner needs"):
        import apache_beam as beam
        import grpc
        from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
    full_name = _FULL_NAMES.get(name, name)
    options = PipelineOptions([f"--runner={full_name}", *others])
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
def open_runner(options: RunnerOptions, useful: int) -> Iterator[RunChunks]:
    """Yields the function that runs work here, in processes, or on Beam; see `num_processes`."""
    if options.runner == "local":
        with open_workers(num_processes(options.num_workers, useful)) as results:
            yield functools.partial(_run_here, results)
    else:
        yield _beam_runner(options.runner, options.beam_options or "")


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

"""Worker processes for what one core does too slowly."""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from tfrecords import command

Task = tuple  # a function and its arguments; a module must hold the function


def available_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """Runs tasks in this process and `num_workers - 1` others. A context manager.

    The others are started anew, so that each has its own TensorFlow, on one core; that takes
    seconds, in which this one works already. They end with this process, however it ends.
    """

    def __init__(self, num_workers: int) -> None:
        self._others = num_workers - 1
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Workers":
        if self._others:
            self._pool = ProcessPoolExecutor(
                self._others,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start_worker,
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool:
            if kind:
                for process in multiprocessing.active_children():
                    process.terminate()
            self._pool.shutdown(cancel_futures=True)

    def results(
        self, tasks: Iterable[Task], first: deque[Task] | None = None
    ) -> Iterator[tuple[Task, object]]:
        """Tasks with what they return, in the order in which they finish.

        Args:
            tasks: taken one by one, as workers become free.
            first: tasks that go before the others; it may be added to meanwhile.

        Raises:
            OSError: a worker died. And whatever a task raises.
        """
        rest = iter(tasks)

        def following() -> Task | None:
            return first.popleft() if first else next(rest, None)

        running: dict[Future, Task] = {}
        try:
            while True:
                # As many again wait as work, so that no worker does.
                while len(running) < 2 * self._others and (task := following()):
                    running[self._pool.submit(*task)] = task
                if done := [future for future in running if future.done()]:
                    for future in done:
                        yield running.pop(future), future.result()
                elif task := following():
                    yield task, task[0](*task[1:])
                elif running:
                    wait(running, return_when=FIRST_COMPLETED)
                else:
                    return
        except BrokenProcessPool:
            raise OSError(
                "a worker process died; perhaps the system killed it for lack of memory: run the "
                "same command again, with a smaller --num_workers"
            ) from None


def _start_worker() -> None:
    # Ctrl-C is for the parent to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    command.import_tensorflow()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def _exit_with_parent() -> None:
    # The pool's queue does not tell a worker that its parent was killed.
    multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])
    os._exit(1)

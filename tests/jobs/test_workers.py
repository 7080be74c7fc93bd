"""Tests worker processes. Oracles: results in this process, and the process table."""

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from bert_tf.jobs.workers import Workers


def test_one_worker_is_this_process_and_runs_tasks_in_order():
    with Workers(1) as workers:
        results = workers.results([(os.getpid,), (math.sqrt, 9)])
        assert list(results) == [((os.getpid,), os.getpid()), ((math.sqrt, 9), 3)]


@pytest.mark.slow
def test_two_workers(monkeypatch):
    """Shares one other process, which takes seconds to start, between all checks.

    Oracles: the results in this process; half of the cores.
    """
    monkeypatch.setattr("bert_tf.jobs.workers.available_cores", lambda: 6)
    with Workers(2) as workers:
        numbers = range(50)
        results = workers.results((math.sqrt, number) for number in numbers)
        assert sorted(result for _, result in results) == [math.sqrt(n) for n in numbers]
        # The tasks take long enough for both processes to run some.
        found = dict(pair for _, pair in workers.results([(_threads_after, 0.1)] * 10))
        assert len(found) == 2 and {**found, os.getpid(): 3} == dict.fromkeys(found, 3)
        with pytest.raises(ValueError, match="math domain error|nonnegative"):
            list(workers.results([(math.sqrt, -1)]))
        with pytest.raises(OSError, match="a worker process died.*--num_workers"):
            list(workers.results([(os._exit, 1)]))


@pytest.mark.slow
def test_an_error_ends_the_workers_and_no_other_process():
    """Oracle: the process table. A child that is not a worker must go on."""
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=time.sleep, args=(60,))
    child.start()
    with pytest.raises(RuntimeError, match="broken"), Workers(2) as workers:
        pids = {pid for _, pid in workers.results([(_pid_after, 0.1)] * 10)}
        # Without the error, this worker would sleep for a minute.
        next(workers.results([(time.sleep, 60), (time.sleep, 60), (os.getpid,)]))
        raise RuntimeError("broken")
    (worker,) = pids - {os.getpid()}
    assert not _runs(worker)
    assert child.is_alive()
    child.terminate()
    child.join()


def _threads_after(seconds: float) -> tuple[int, int]:
    return _pid_after(seconds), tf.config.threading.get_intra_op_parallelism_threads()


def _pid_after(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


@pytest.mark.slow
def test_workers_end_with_their_parent():
    """Oracle: the process table, after the parent was killed with SIGKILL."""
    program = (
        "import os\nfrom bert_tf.jobs.workers import Workers\n"
        "if __name__ == '__main__':\n"
        "    with Workers(2) as workers:\n"
        "        for _, pid in workers.results([(os.getpid,)] * 2):\n"
        "            print(pid, flush=True)\n"
        "        input()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    pids = {int(parent.stdout.readline()) for _ in range(2)}
    assert pids and parent.pid not in pids
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdin.close()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while any(map(_runs, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_runs, pids))


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False

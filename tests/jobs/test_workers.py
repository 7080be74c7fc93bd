"""Tests worker processes. Oracles: results in this process, and the process table."""

import builtins
import math
import os
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from bert_tf.jobs.workers import available_cores, open_workers


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", 8), ("250000 100000", 3), ("50000 100000", 1), ("1600000 100000", 8)],
)
def test_a_container_uses_its_quota(monkeypatch, tmp_path, quota, cores):
    """Oracle: cgroup-v2 of the kernel's documentation: microseconds of each period, or "max"."""
    (tmp_path / "cpu.max").write_text(f"{quota}\n")
    faked = {"/sys/fs/cgroup/cpu.max": tmp_path / "cpu.max"}
    for module, name in ((os.path, "exists"), (builtins, "open")):
        real = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda path, *rest, real=real: real(faked.get(path, path), *rest)
        )
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {*range(8)})
    assert available_cores() == cores


def test_one_worker_is_this_process():
    with open_workers(1) as results:
        assert list(results([(os.getpid,), (math.sqrt, 9)])) == [os.getpid(), 3]


@pytest.mark.slow
def test_two_workers(monkeypatch):
    """Oracles: the results in this process; half of the cores. Starting two takes seconds."""
    monkeypatch.setattr("bert_tf.jobs.workers.available_cores", lambda: 6)
    with open_workers(2) as results:
        numbers = range(50)
        found = list(results((math.sqrt, number) for number in numbers))
        assert found == [math.sqrt(number) for number in numbers]
        # The tasks take long enough for both processes to run some.
        threads = dict(results([(_threads_after, 0.5)] * 10))
        assert os.getpid() not in threads and [*threads.values()] == [3, 3]
        with pytest.raises(ValueError, match="math domain error|nonnegative"):
            list(results([(math.sqrt, -1)]))
        with pytest.raises(OSError, match="a worker process died.*--num_workers"):
            list(results([(os._exit, 1)]))


def _threads_after(seconds: float) -> tuple[int, int]:
    time.sleep(seconds)
    return os.getpid(), tf.config.threading.get_intra_op_parallelism_threads()


@pytest.mark.slow
@pytest.mark.parametrize("killed", [True, False])
def test_workers_end_with_their_parent(killed):
    """Oracle: the process table, after the parent was killed, or had an error amid long tasks."""
    program = (
        "import os, time\nfrom bert_tf.jobs.workers import open_workers\n"
        "if __name__ == '__main__':\n"
        "    with open_workers(2) as results:\n"
        "        for pid in results([(os.getpid,)] * 2):\n"
        "            print(pid, flush=True)\n"
        "        input()\n"
        "        list(results([(int, 'broken'), (time.sleep, 60), (time.sleep, 60)]))\n"
    )
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", program], text=True, **pipes) as parent:
        pids = {int(parent.stdout.readline()) for _ in range(2)}
        assert pids and parent.pid not in pids
        if killed:
            parent.send_signal(signal.SIGKILL)
        _, errors = parent.communicate(None if killed else "\n", timeout=30)
        assert killed or "broken" in errors
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

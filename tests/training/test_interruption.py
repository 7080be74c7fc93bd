"""Signals, in a real process. Oracle: the shell's exit codes, 128 plus the signal's number."""

import signal
import subprocess
import sys

import pytest

_PROGRAM = """
import signal, sys
from bert_tf.training.interruption import StopRequest

number = int(sys.argv[1])
with StopRequest(lambda: print("noticed", flush=True)).listen():
    sys.stdin.readline()
    signal.raise_signal(number)
    while True:
        pass
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_process_at_once(number):
    """The first one calls the function given, although the main thread never returns."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(int(number))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "noticed\n"
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(timeout=60) == 128 + number
    process.communicate()

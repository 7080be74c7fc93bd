"""Measures contenders that take turns, each in a process and an environment of its own.

The processes stay alive and take steps in turn, so that other load on the machine affects all of
them alike. Compare contenders within a round only.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

TURN_SECONDS = 3.0


def argument_parser(description: str) -> argparse.ArgumentParser:
    """Returns a parser with the arguments that both benchmarks have, and those of `Process`."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--garden", help="Python interpreter of an environment with tf-models-official"
    )
    parser.add_argument(
        "--huggingface", help="Python interpreter of an environment with transformers and torch"
    )
    parser.add_argument("--preset", default="base")
    parser.add_argument("--seq_length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--sizes", type=json.loads, help=argparse.SUPPRESS)
    return parser


class Process:
    """A contender in its own process, run by its own interpreter.

    The script is started again with `--serve=<name>` and `--sizes=<JSON>`, and must call `serve`.

    Attributes:
        failure: why it does not run; "" if it runs.
        description: the description that `serve` sent.
    """

    def __init__(
        self, script: str, name: str, python: str | None, sizes: dict, folder: pathlib.Path
    ):
        self.failure = "" if python else "not run: no interpreter given"
        self.description = ""
        if self.failure:
            return
        self._errors = folder / name
        command = [python, script, f"--serve={name}", f"--sizes={json.dumps(sizes)}"]
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
        try:
            with self._errors.open("w") as errors:
                self._process = subprocess.Popen(command, stderr=errors, env=environment, **pipes)
        except OSError as error:
            self.failure = f"not run: {error}"
            return
        self.description = json.loads(self._answer() or "null")
        print(f"{name}: {self.failure or 'ready'}", file=sys.stderr)

    def turn(self) -> float:
        """Takes steps for a few seconds and returns the seconds per step; 0 after a failure."""
        if not self.failure:
            print("go", file=self._process.stdin, flush=True)
        return 0.0 if self.failure else float(self._answer() or 0)

    def end(self) -> None:
        """Ends the process."""
        if not self.failure:
            self._process.communicate()

    def _answer(self) -> str:
        answer = self._process.stdout.readline()
        if not answer:
            status = self._process.wait()
            lines = self._errors.read_text().split("\n")
            messages = [line for line in lines if line.strip()] or [f"status {status}"]
            self.failure = f"not run: {messages[-1].strip()[:200]}"
        return answer


def take_turns(processes: Mapping[str, Process], rounds: int) -> list[dict[str, float]]:
    """Returns the seconds per step of every process for each round, then ends the processes."""
    measured = []
    for number in range(rounds):
        measured.append({name: process.turn() for name, process in processes.items()})
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    for process in processes.values():
        process.end()
    return measured


def serve(make: Callable[[], tuple[Callable[[int], float], str]]) -> None:
    """Describes a contender, then times steps for each line on standard input.

    Args:
        make: returns a function that takes a number of steps and returns the last result, and a
            description of the contender.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # so that libraries cannot print among the answers
    take_steps, description = make()
    steps = 1
    first = take_steps(steps)
    take_steps(steps)
    print(json.dumps(f"{description} {first:.3f}"), file=answers, flush=True)
    for _ in sys.stdin:
        started = time.perf_counter()
        take_steps(steps)
        seconds = time.perf_counter() - started
        print(seconds / steps, file=answers, flush=True)
        steps = max(1, round(TURN_SECONDS * steps / seconds))

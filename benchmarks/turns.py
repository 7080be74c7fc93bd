"""What benchmarks share: flags, ratios, and contenders that take turns in processes of their own.

The processes stay alive and take steps in turn, so that other load on the machine affects all of
them alike. Compare contenders within a round only.
"""

import argparse
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

GARDEN, HUGGING_FACE = "Model Garden", "Hugging Face"
TURN_SECONDS = 3.0
_PACKAGES = {"garden": "tf-models-official", "huggingface": "transformers and torch"}

# A function that takes a number of steps and returns the last result, and a description.
Contender = tuple[Callable[[int], float], str]
# The seconds per step of every contender in a round.
Round = Mapping[str, float]


def argument_parser(doc: str, rounds: int = 0, *peers: str) -> argparse.ArgumentParser:
    """Returns a parser with --rounds, if there are any, and the interpreters of `peers`."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in peers:
        text = f"Python interpreter of an environment with {_PACKAGES[name]}"
        parser.add_argument(f"--{name}", help=text)
    if rounds:
        parser.add_argument("--rounds", type=int, default=rounds)
    return parser


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """Returns median, minimum and maximum as text."""
    middle, *ends = (format(f(values), form) for f in (statistics.median, min, max))
    return f"{middle} ({', '.join(ends)})"


def times_as_fast(name: str, other: str, rounds: Sequence[Round]) -> str:
    """Returns the `spread` of how many times as fast a contender is as another one, if it runs."""
    if name == other or not {name, other} <= rounds[0].keys():
        return ""
    return spread([times[other] / times[name] for times in rounds])


def versions(*packages: str) -> str:
    """Returns the names and versions of packages."""
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)


def calls(step: Callable, result: Callable = float) -> Callable[[int], float]:
    """Returns a function that calls `step` repeatedly and returns the last result, as a number."""

    def take_steps(steps: int) -> float:
        for _ in range(steps):
            output = step()
        return result(output)

    return take_steps


def decay_groups(model) -> list[dict]:
    """Returns the weights of a PyTorch model for AdamW, which decays no biases and LayerNorms."""
    groups = [{"params": [], "weight_decay": decay} for decay in (0.0, 0.01)]
    for name, weight in model.named_parameters():
        decays = not (name.endswith("bias") or "LayerNorm" in name)
        groups[decays]["params"].append(weight)
    return groups


def parse(
    parser: argparse.ArgumentParser, make: Callable[[str, argparse.Namespace], Contender]
) -> argparse.Namespace:
    """Parses the flags. In the process of a contender, takes the steps of `make(name, flags)`."""
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        name, case = options.serve
        vars(options).update(json.loads(case))
        _serve(lambda: make(name, options))
        sys.exit()
    return options


class Process:
    """A contender in its own process, run by its own interpreter.

    The script is started again with the same flags, and must call `parse`. `case` holds the
    other settings of the contenders; `description` is what a contender prints about itself.
    """

    def __init__(self, name: str, python: str, case: dict):
        self._errors = tempfile.TemporaryFile("w+")
        command = [python, *sys.argv, "--serve", name, json.dumps(case)]
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
        self._process = subprocess.Popen(command, stderr=self._errors, env=environment, **pipes)
        self.description = json.loads(self._answer())
        print(f"{name}: ready", file=sys.stderr)

    def turn(self) -> float:
        """Takes steps for a few seconds and returns the seconds per step."""
        print("go", file=self._process.stdin, flush=True)
        return float(self._answer())

    def end(self) -> None:
        """Ends the process."""
        self._process.communicate()

    def _answer(self) -> str:
        answer = self._process.stdout.readline()
        if not answer:
            self._errors.seek(0)
            raise RuntimeError(f"a contender ended: {self._errors.read()[-2000:]}")
        return answer


def compare(
    options: argparse.Namespace,
    names: Iterable[str],
    case: dict,
    title: str,
    columns: Sequence[str],
    cells: Callable[[str, Sequence[Round]], Sequence[str]],
) -> None:
    """Lets contenders whose interpreters are given take turns; prints a table with a row for each.

    Args:
        case: as for `Process`.
        cells: returns the cells of a contender for the rounds.
    """
    pythons = {GARDEN: "garden", HUGGING_FACE: "huggingface"}
    given = {name: getattr(options, pythons.get(name, ""), sys.executable) for name in names}
    processes = {name: Process(name, python, case) for name, python in given.items() if python}
    rounds = []
    for number in range(options.rounds):
        rounds.append({name: process.turn() for name, process in processes.items()})
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    for process in processes.values():
        process.end()
    print(f"\n{title}, {options.rounds} rounds\n")
    print_table(columns, {name: cells(name, rounds) for name in processes})
    for name, process in processes.items():
        print(f"\n{name}: {process.description}")


def print_table(columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> None:
    """Prints a table in Markdown, with the names of the rows in its first column."""
    print(f"| | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
    for name, cells in rows.items():
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _serve(make: Callable[[], Contender]) -> None:
    """Describes a contender, then times steps for each line on standard input."""
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

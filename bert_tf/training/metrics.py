"""The log of a run: a file with one JSON object per logged step."""

import json
import math
from collections.abc import Mapping

import tensorflow as tf

from tfrecords.files import named_errors, read_file
from tfrecords.writer import atomic_write

# For all other metrics, higher values are better.
_LOWER_IS_BETTER = ("loss", "mean_squared_error")


def rank(metric: str, value: float) -> float:
    """Returns a number that is higher for a better value of a metric, and lowest for NaN.

    Args:
        metric: its name, which may begin with "eval_".
    """
    if math.isnan(value):
        return -math.inf
    return -value if metric.removeprefix("eval_") in _LOWER_IS_BETTER else value


class MetricsLog:
    """Writes `metrics.jsonl` so that a resumed run leaves the same file as an uninterrupted one.

    Args:
        path: path of the file; its folder must exist.
    """

    def __init__(self, path: str):
        self._path = path

    def start(self, step: int) -> None:
        """Drops the lines of steps after `step`, and a last line that was cut short by a kill.

        The file is replaced atomically, and not created if there is none.
        """
        if tf.io.gfile.exists(self._path):
            kept = [values for values in read_metrics(self._path) if values["step"] <= step]
            atomic_write(self._path, "".join(map(_line, kept)))

    def replace(self, values: Mapping[str, float]) -> None:
        """Writes a line in its place, instead of an earlier one of the same step.

        Raises what `start` raises.
        """
        lines = {line["step"]: line for line in read_metrics(self._path)} | {values["step"]: values}
        atomic_write(self._path, "".join(_line(lines[step]) for step in sorted(lines)))

    def write(self, values: Mapping[str, float]) -> None:
        """Appends a line, which a later kill cannot destroy.

        Args:
            values: must include `step`, an int. Floats are read back bit for bit.
        """
        where = f"cannot write {self._path}"
        with named_errors(where), tf.io.gfile.GFile(self._path, "a") as file:
            file.write(_line(values))


def read_metrics(path: str) -> list[dict[str, float]]:
    """Reads the lines of a `metrics.jsonl`, except a last line cut short; [] without a file."""
    if not tf.io.gfile.exists(path):
        return []
    lines = read_file(path).splitlines()
    metrics = []
    for number, line in enumerate(lines, start=1):
        try:
            metrics.append(_parse(line))
        except ValueError as error:
            if number < len(lines):
                raise ValueError(
                    f"{path}: line {number} is damaged ({error}): remove the line or the file"
                ) from None
    return metrics


def _line(values: Mapping[str, float]) -> str:
    # Converts NumPy scalars to Python's.
    return json.dumps(dict(values), default=lambda number: number.item()) + "\n"


def _parse(line: bytes) -> dict[str, float]:
    values = json.loads(line)
    if not isinstance(values, dict) or not isinstance(values.get("step"), int):
        raise ValueError("not an object with a step")
    return values

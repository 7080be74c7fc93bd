"""The log of a run: a file with one JSON object for every logged step."""

import json
from collections.abc import Mapping

import tensorflow as tf

from tfrecords.writer import atomic_write


class MetricsLog:
    """Writes `metrics.jsonl`, so that a resumed run leaves the file of an uninterrupted one.

    Args:
        path: of the file; its folder must be there.
    """

    def __init__(self, path: str):
        self._path = path

    def start(self, step: int) -> None:
        """Takes the file up after `step`: drops the lines of later steps.

        Also drops a last line that a kill cut short. The file is replaced as a whole or not at
        all; where there is none, none is made.

        Raises:
            ValueError: a line is damaged; see `read_metrics`.
            OSError: the file cannot be read or written.
        """
        if tf.io.gfile.exists(self._path):
            kept = [values for values in read_metrics(self._path) if values["step"] <= step]
            atomic_write(self._path, "".join(map(_line, kept)))

    def write(self, values: Mapping[str, float]) -> None:
        """Appends a line; after this call a kill cannot take it away.

        Args:
            values: with a key `step`, an int. Floats read back bit for bit.

        Raises:
            OSError: the file cannot be written.
        """
        try:
            with tf.io.gfile.GFile(self._path, "a") as file:
                file.write(_line(values))
        except tf.errors.OpError as error:
            raise OSError(f"cannot write {self._path}: {error.message}") from error


def read_metrics(path: str) -> list[dict[str, float]]:
    """The lines of a `metrics.jsonl`, without a last one that was cut short; [] without the file.

    Raises:
        ValueError: a line before the last is damaged; the message names it.
        OSError: the file cannot be read.
    """
    if not tf.io.gfile.exists(path):
        return []
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            lines = file.read().splitlines()
    except tf.errors.OpError as error:
        raise OSError(f"cannot read {path}: {error.message}") from error
    metrics = []
    for number, line in enumerate(lines, start=1):
        try:
            metrics.append(_parse(line))
        except ValueError as error:
            if number < len(lines):
                raise ValueError(
                    f"{path}: line {number} is damaged ({error}); remove the line or the file"
                ) from None
    return metrics


def _line(values: Mapping[str, float]) -> str:
    # NumPy's scalars become Python's, of the same value.
    return json.dumps(dict(values), default=lambda number: number.item()) + "\n"


def _parse(line: bytes) -> dict[str, float]:
    values = json.loads(line)
    if not isinstance(values, dict) or not isinstance(values.get("step"), int):
        raise ValueError("no object with a step")
    return values

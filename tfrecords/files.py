"""Reads and writes files through TensorFlow, with errors of one line that name the file."""

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

import tensorflow as tf


def plain_message(error: tf.errors.OpError) -> str:
    """Returns TensorFlow's message without the names of graph nodes."""
    return re.sub(r"^\{\{.*?\}\} | \[Op:.*$", "", error.message)


@contextlib.contextmanager
def named_errors(what: str) -> Iterator[None]:
    """Turns errors of TensorFlow in the block into an OSError; `what` says what fails."""
    try:
        yield
    except tf.errors.OpError as error:
        raise OSError(f"{what}: {plain_message(error)}") from error


@contextlib.contextmanager
def errors_at(where: str) -> Iterator[None]:
    """Names the place, such as a file, before the message of a ValueError in the block."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def read_file(path: str) -> bytes:
    """Returns the content of a file."""
    with named_errors(f"cannot read {path}"), tf.io.gfile.GFile(path, "rb") as file:
        return file.read()


def read_json(path: str, advice: str = "download or copy it again") -> dict[str, Any]:
    """Reads a JSON object, {} if there is no such file; `advice` is for a damaged one."""
    if not tf.io.gfile.exists(path):
        return {}
    try:
        values = json.loads(read_file(path))
        if not isinstance(values, dict):
            raise ValueError("not a JSON object")
        return values
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}): {advice}") from None

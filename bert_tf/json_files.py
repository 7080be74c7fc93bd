"""Reads JSON files that others wrote."""

import json
from typing import Any

import tensorflow as tf


def read_json(path: str, advice: str = "download or copy it again") -> dict[str, Any]:
    """Reads a JSON object; returns {} if there is no such file.

    Args:
        advice: what to do about a damaged file.

    Raises:
        ValueError: the file holds no JSON object.
        OSError: the file cannot be read.
    """
    if not tf.io.gfile.exists(path):
        return {}
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            values = json.loads(file.read())
        if not isinstance(values, dict):
            raise ValueError("not a JSON object")
        return values
    except tf.errors.OpError as error:
        raise OSError(f"cannot read {path}: {error.message}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}): {advice}") from None

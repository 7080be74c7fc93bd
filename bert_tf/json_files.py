"""Reads JSON files that others wrote."""

import json
from typing import Any

import tensorflow as tf

from tfrecords.files import read_file


def read_json(path: str, advice: str = "download or copy it again") -> dict[str, Any]:
    """Reads a JSON object; returns {} if there is no such file.

    Args:
        advice: what to do about a damaged file.
    """
    if not tf.io.gfile.exists(path):
        return {}
    try:
        values = json.loads(read_file(path))
        if not isinstance(values, dict):
            raise ValueError("not a JSON object")
        return values
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}): {advice}") from None

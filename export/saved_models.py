"""Writes SavedModel folders that appear complete or not at all."""

from typing import Any

import tensorflow as tf

from tfrecords.writer import whole_folder


def save_folder(trackable: Any, path: str, signatures: Any) -> None:
    """Writes a SavedModel beside `path`, then renames it. Creates parent folders.

    Raises:
        ValueError: `path` exists and is not an empty folder.
        OSError: the folder cannot be written.
    """
    with whole_folder(path) as temporary:
        tf.saved_model.save(trackable, temporary, signatures=signatures)

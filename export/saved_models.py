"""Writes SavedModel folders that appear complete or not at all."""

import os
from typing import Any

import tensorflow as tf


def check_new_folder(path: str) -> None:
    """Raises a ValueError unless `path` is new or an empty folder."""
    if not tf.io.gfile.exists(path):
        return
    if not tf.io.gfile.isdir(path):
        raise ValueError(f"{path} is a file: name a new folder")
    if tf.io.gfile.listdir(path):
        raise ValueError(f"{path} exists and is not empty: remove it or name another folder")


def save_folder(trackable: Any, path: str, signatures: Any) -> None:
    """Writes a SavedModel beside `path`, then renames it. Creates parent folders.

    Raises:
        ValueError: `path` exists and is not an empty folder.
        OSError: the folder cannot be written.
    """
    check_new_folder(path)
    path = path.rstrip("/")
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        tf.saved_model.save(trackable, temporary, signatures=signatures)
        if tf.io.gfile.exists(path):
            tf.io.gfile.rmtree(path)
        tf.io.gfile.rename(temporary, path)
    except tf.errors.OpError as error:
        raise OSError(f"cannot write {path}: {error.message}") from error
    finally:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.rmtree(temporary)

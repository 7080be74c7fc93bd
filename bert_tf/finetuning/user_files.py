"""Reads the data files that users name."""

import codecs

import tensorflow as tf


def read_user_file(path: str) -> bytes:
    """Returns the content of a file, without its UTF-8 byte order mark if it has one.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it cannot be read.
    """
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise FileNotFoundError(f"{path}: no such file")
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return file.read().removeprefix(codecs.BOM_UTF8)
    except tf.errors.OpError as error:
        raise OSError(f"cannot read {path}: {error.message}") from None

"""Writes TFRecord files and other files atomically: they appear complete or not at all."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence

import tensorflow as tf

from tfrecords.files import named_errors


@contextlib.contextmanager
def whole_file(path: str, temporary: str | None = None) -> Iterator[str]:
    """Yields the name of a temporary file that replaces `path` when the block succeeds.

    If the block raises, the temporary file is removed and `path` stays as it was. The folder is
    created if necessary. By default, the name of the temporary file is one of this process only.
    """
    # In the same folder, because a rename is atomic only within a file system.
    temporary = temporary or f"{path}.tmp-{os.getpid()}"
    try:
        with named_errors(f"cannot write {path}"):
            if folder := os.path.dirname(path):
                tf.io.gfile.makedirs(folder)
            yield temporary
            tf.io.gfile.rename(temporary, path, overwrite=True)
    finally:
        remove(temporary)


def make_folder(path: str) -> None:
    """Creates a folder and its parents if they do not exist."""
    with named_errors(f"cannot create the folder {path}"):
        tf.io.gfile.makedirs(path)


def check_new_folder(path: str) -> None:
    """Raises a ValueError unless `path` is new or an empty folder."""
    if not tf.io.gfile.exists(path):
        return
    if not tf.io.gfile.isdir(path):
        raise ValueError(f"{path} is a file: name a new folder")
    if tf.io.gfile.listdir(path):
        raise ValueError(f"{path} exists and is not empty: remove it or name another folder")
    if os.path.ismount(path) or os.path.abspath(path) == os.getcwd():
        raise ValueError(f"{path} cannot be replaced: name a new folder in it")


@contextlib.contextmanager
def whole_folder(path: str) -> Iterator[str]:
    """Yields a temporary folder that becomes `path` when the block succeeds.

    If the block raises, the temporary folder is removed. Creates parent folders.
    """
    check_new_folder(path)
    path = absolute_path(path).rstrip("/")
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        with named_errors(f"cannot write {path}"):
            # A killed process with the same number may have left it.
            remove(temporary)
            tf.io.gfile.makedirs(temporary)
            yield temporary
            remove(path)
            tf.io.gfile.rename(temporary, path)
    finally:
        remove(temporary)


def remove(*paths: str) -> None:
    """Removes the files and folders that exist; ignores the others."""
    for path in paths:
        if tf.io.gfile.isdir(path):
            tf.io.gfile.rmtree(path)
        elif tf.io.gfile.exists(path):
            tf.io.gfile.remove(path)


def atomic_write(path: str, data: bytes | str) -> None:
    """Writes `data` to `path` atomically."""
    mode = "wb" if isinstance(data, bytes) else "w"
    with whole_file(path) as temporary, tf.io.gfile.GFile(temporary, mode) as file:
        file.write(data)


def write_records(path: str, records: Iterable[bytes], compression: str = "") -> None:
    """Writes serialized records to a TFRecord file atomically.

    Args:
        compression: "" or "GZIP".

    Example:
        arrays = {"input_ids": np.array([[101, 7592, 102]]), "input_mask": np.ones([1, 3], int)}
        write_records("train.tfrecord", serialize_examples(arrays))
    """
    options = tf.io.TFRecordOptions(compression_type=compression)
    with whole_file(path) as temporary, tf.io.TFRecordWriter(temporary, options) as writer:
        for record in records:
            writer.write(record)


def join_files(parts: Sequence[str], path: str) -> None:
    """Concatenates the files `parts` into `path` atomically.

    Concatenated TFRecord files, even compressed ones, are a valid TFRecord file.
    """
    # A fixed name, so that the next run overwrites what a killed run left behind.
    with (
        whole_file(path, f"{path}.joining") as temporary,
        tf.io.gfile.GFile(temporary, "wb") as target,
    ):
        for part in parts:
            with tf.io.gfile.GFile(part, "rb") as source:
                while block := source.read(2**20):
                    target.write(block)


def check_output_files(files: Sequence[str], inputs: Sequence[str]) -> None:
    """Checks that output files overwrite neither inputs nor each other."""
    if not files:
        raise ValueError("--output_file names no file: give it a name")
    used = {absolute_path(file): "is an input file too" for file in inputs}
    for file in files:
        if problem := used.get(absolute_path(file)):
            raise ValueError(f"--output_file: {file} {problem}: choose another name")
        used[absolute_path(file)] = "is named twice"
        if file.endswith("/") or tf.io.gfile.isdir(file):
            raise ValueError(f"--output_file: {file} is a directory: name a file in it")


def absolute_path(path: str) -> str:
    """Returns the canonical path of a file, to recognize it under different names."""
    return path if "://" in path else os.path.realpath(path)

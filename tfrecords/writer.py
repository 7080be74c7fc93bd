"""Writes TFRecord files and small files that appear whole or not at all."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence

import tensorflow as tf


@contextlib.contextmanager
def whole_file(path: str, temporary: str | None = None) -> Iterator[str]:
    """Gives the name of a file to write, which takes the place of `path` when the block ends well.

    When it raises, what was written is removed and what stood at `path` is left alone.

    Args:
        path: its folder is made where needed.
        temporary: the name to give; by default one of this process, beside `path`.

    Raises:
        OSError: the file cannot be written.
    """
    # In the same folder, so that the rename stays within one file system.
    temporary = temporary or f"{path}.tmp-{os.getpid()}"
    try:
        if folder := os.path.dirname(path):
            tf.io.gfile.makedirs(folder)
        yield temporary
        tf.io.gfile.rename(temporary, path, overwrite=True)
    except tf.errors.OpError as error:
        raise OSError(f"cannot write {path}: {error.message}") from error
    finally:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.remove(temporary)


def make_folder(path: str) -> None:
    """Makes a folder and its parents, unless it is there.

    Raises:
        OSError: it cannot be made, or a file has its name.
    """
    try:
        tf.io.gfile.makedirs(path)
    except tf.errors.OpError as error:
        raise OSError(f"cannot make the folder {path}: {error.message}") from error


def atomic_write(path: str, data: bytes | str) -> None:
    """Writes `data` to `path`, whole or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    mode = "wb" if isinstance(data, bytes) else "w"
    with whole_file(path) as temporary, tf.io.gfile.GFile(temporary, mode) as file:
        file.write(data)


def write_records(path: str, records: Iterable[bytes], compression: str = "") -> None:
    """Writes serialized records to a TFRecord file, whole or not at all.

    Args:
        compression: "" or "GZIP".

    Raises:
        OSError: the file cannot be written.
    """
    options = tf.io.TFRecordOptions(compression_type=compression)
    with whole_file(path) as temporary, tf.io.TFRecordWriter(temporary, options) as writer:
        for record in records:
            writer.write(record)


def join_files(parts: Sequence[str], path: str) -> None:
    """Writes the contents of `parts`, one after the other, to `path`, whole or not at all.

    TFRecord files joined so are a TFRecord file, compressed ones too.

    Raises:
        OSError: a part cannot be read or `path` not written.
    """
    # A fixed name: what a killed run left is written over by the next.
    with (
        whole_file(path, f"{path}.joining") as temporary,
        tf.io.gfile.GFile(temporary, "wb") as target,
    ):
        for part in parts:
            with tf.io.gfile.GFile(part, "rb") as source:
                while block := source.read(2**20):
                    target.write(block)


def check_output_files(files: Sequence[str], inputs: Sequence[str]) -> None:
    """Raises a ValueError for what must not be written over, and for a name that is no file's.

    Args:
        files: the names that a user gave for output.
        inputs: the files that are read.
    """
    if not files:
        raise ValueError("output_file names no file")
    seen = {absolute_path(file): "an input file" for file in inputs}
    for file in files:
        if taken := seen.get(absolute_path(file)):
            raise ValueError(f"output_file {file} is {taken} too: name another")
        seen[absolute_path(file)] = "named twice: an output file"
        if tf.io.gfile.isdir(file):
            raise ValueError(f"output_file {file} is a directory: name a file in it")


def absolute_path(path: str) -> str:
    """A file's one name, however it was given."""
    return path if "://" in path else os.path.realpath(path)

"""Writes TFRecord files and small files that appear whole or not at all."""

import contextlib
import os
from collections.abc import Sequence
from types import TracebackType

import tensorflow as tf


def _temporary_name(path: str) -> str:
    # In the same folder, so that the rename stays within one file system.
    return f"{path}.tmp-{os.getpid()}"


def make_folder(path: str) -> None:
    """Makes a folder and its parents, unless it is there.

    Raises:
        OSError: it cannot be made, or a file has its name.
    """
    try:
        tf.io.gfile.makedirs(path)
    except tf.errors.OpError as error:
        raise OSError(f"cannot make the folder {path}: {error.message}") from error


def _make_folder_of(path: str) -> None:
    if folder := os.path.dirname(path):
        tf.io.gfile.makedirs(folder)


def atomic_write(path: str, data: bytes | str) -> None:
    """Writes `data` to `path` (made with its folder where needed), whole or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    temporary = _temporary_name(path)
    try:
        _make_folder_of(path)
        with tf.io.gfile.GFile(temporary, "wb" if isinstance(data, bytes) else "w") as file:
            file.write(data)
        tf.io.gfile.rename(temporary, path, overwrite=True)
    except tf.errors.OpError as error:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.remove(temporary)
        raise OSError(f"cannot write {path}: {error.message}") from error


def join_files(parts: Sequence[str], path: str) -> None:
    """Writes the contents of `parts`, one after the other, to `path`, whole or not at all.

    TFRecord files joined so are a TFRecord file, compressed ones too.

    Raises:
        OSError: a part cannot be read or `path` not written.
    """
    # A fixed name: what a killed run left is written over by the next.
    temporary = f"{path}.joining"
    try:
        _make_folder_of(path)
        with tf.io.gfile.GFile(temporary, "wb") as target:
            for part in parts:
                with tf.io.gfile.GFile(part, "rb") as source:
                    while block := source.read(2**24):
                        target.write(block)
        tf.io.gfile.rename(temporary, path, overwrite=True)
    except tf.errors.OpError as error:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.remove(temporary)
        raise OSError(f"cannot write {path}: {error.message}") from error


def check_output_files(files: Sequence[str], inputs: Sequence[str]) -> None:
    """Raises a ValueError for what must not be written over, and for a name that is no file's.

    Args:
        files: the names that a user gave for output.
        inputs: the files that are read.
    """
    if not files:
        raise ValueError("output_file names no file")
    seen = {_absolute(file): "an input file" for file in inputs}
    for file in files:
        if taken := seen.get(_absolute(file)):
            raise ValueError(f"output_file {file} is {taken} too: name another")
        seen[_absolute(file)] = "named twice: an output file"
        if tf.io.gfile.isdir(file):
            raise ValueError(f"output_file {file} is a directory: name a file in it")


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.realpath(path)


class ShardedWriter:
    """Deals serialized records to several TFRecord files in turn, as google-research/bert does.

    The files are written beside their final names and renamed when the with-block ends well; when
    it raises, they are removed and what stood under the final names is left alone.

    Args:
        paths: the files, replaced if they exist; their folders are made.
        compression: "" or "GZIP".

    Raises:
        OSError: a file cannot be written.

    Example::

        with ShardedWriter(["a.tfrecord", "b.tfrecord"]) as writer:
            for record in features.serialize_examples(arrays):
                writer.write(record)
    """

    def __init__(self, paths: Sequence[str], compression: str = "") -> None:
        self._paths = list(paths)
        self._compression = compression
        self._writers: list[tf.io.TFRecordWriter] = []
        self.records_written = 0

    def __enter__(self) -> "ShardedWriter":
        try:
            for path in self._paths:
                _make_folder_of(path)
                options = tf.io.TFRecordOptions(compression_type=self._compression)
                self._writers.append(tf.io.TFRecordWriter(_temporary_name(path), options))
        except tf.errors.OpError as error:
            self._remove_temporary_files()
            raise OSError(f"cannot write {path}: {error.message}") from error
        return self

    def write(self, serialized: bytes) -> None:
        """Appends one record to the next file in turn."""
        turn = self.records_written % len(self._writers)
        try:
            self._writers[turn].write(serialized)
        except tf.errors.OpError as error:
            raise OSError(f"cannot write {self._paths[turn]}: {error.message}") from error
        self.records_written += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._remove_temporary_files()
            return
        try:
            for writer in self._writers:
                writer.close()
            for path in self._paths:
                tf.io.gfile.rename(_temporary_name(path), path, overwrite=True)
        except tf.errors.OpError as failure:
            self._remove_temporary_files()
            # The message of TensorFlow names the one of them that failed.
            raise OSError(f"cannot finish the output files: {failure.message}") from failure

    def _remove_temporary_files(self) -> None:
        for writer in self._writers:
            # What made us give up (a full disk) may show again; the first error is the one told.
            with contextlib.suppress(tf.errors.OpError):
                writer.close()
        for path in self._paths:
            if tf.io.gfile.exists(_temporary_name(path)):
                tf.io.gfile.remove(_temporary_name(path))

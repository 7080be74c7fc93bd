"""Folders as .tar.gz: the same content gives the same bytes."""

import gzip
import os
import tarfile
from collections.abc import Iterator

import tensorflow as tf

from tfrecords.writer import whole_file


def write_archive(folder: str, path: str) -> None:
    """Writes the content of a folder to a .tar.gz, whole or not at all.

    Names in the archive are relative to the folder, which is its root, and sorted. There are no
    times, owners or links.
    """
    with (
        whole_file(path) as temporary,
        tf.io.gfile.GFile(temporary, "wb") as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w|") as archive,
    ):
        for entry, source in _entries(folder):
            if entry.isdir():
                archive.addfile(entry)
            else:
                with tf.io.gfile.GFile(source, "rb") as content:
                    archive.addfile(entry, content)


def _entries(folder: str) -> Iterator[tuple[tarfile.TarInfo, str]]:
    """Yields the entries of the archive with their paths. A folder comes before its files."""
    for parent, folders, names in tf.io.gfile.walk(folder):
        folders.sort()
        if parent.rstrip("/") != folder.rstrip("/"):
            entry = tarfile.TarInfo(os.path.relpath(parent, folder))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            yield entry, parent
        for name in sorted(names):
            path = os.path.join(parent, name)
            entry = tarfile.TarInfo(os.path.relpath(path, folder))
            entry.size = tf.io.gfile.stat(path).length
            yield entry, path

"""Files that TensorFlow cannot open: on the Hugging Face Hub, and in clouds, by fsspec."""

import contextlib
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, BinaryIO

import tensorflow as tf

from bert_tf.base.process import needed

# What stores state about the content of a file; the first one found counts.
_VERSIONS = ("blob_id", "ETag", "etag", "md5Hash", "crc32c", "mtime", "LastModified")


def storage(path: str) -> Any:
    """Returns what reads a file: `tf.io.gfile`, or the same functions for another store."""
    scheme, separator, _ = path.partition("://")
    known = not separator or scheme in tf.io.gfile.get_registered_schemes()
    return tf.io.gfile if known else _Store


def full_name(path: str) -> str:
    """Returns the address of "hf:datasets/OWNER/NAME/FILE", and other paths unchanged."""
    if path.startswith("hf:datasets/") and not os.path.exists(path):
        return f"hf://{path.removeprefix('hf:')}"
    return path


def file_size(path: str) -> int:
    """Returns the size of a file in bytes."""
    return storage(path).stat(path).length


@contextlib.contextmanager
def download_errors(what: str) -> Iterator[None]:
    """Turns any error in the block into an OSError of one line, unless it names `what`."""
    try:
        yield
    # Libraries raise errors of their own, of their HTTP clients and of the operating system.
    except Exception as error:
        line = " ".join(str(error).split())
        if isinstance(error, ValueError | OSError) and what in line:
            raise
        advice = "check the name or address, and the network"
        raise OSError(f"cannot download {what}: {line}; {advice}") from error


class _Store:
    """The functions of `tf.io.gfile` that read, by fsspec."""

    @staticmethod
    def exists(path: str) -> bool:
        with _opened(path) as (system, name):
            return system.exists(name)

    @staticmethod
    def isdir(path: str) -> bool:
        with _opened(path) as (system, name):
            return system.isdir(name)

    @staticmethod
    def glob(pattern: str) -> list[str]:
        with _opened(pattern) as (system, name):
            return [*map(system.unstrip_protocol, system.glob(name))]

    @staticmethod
    def stat(path: str) -> SimpleNamespace:
        with _opened(path) as (system, name):
            info = system.info(name)
        version = next((str(info[x]) for x in _VERSIONS if info.get(x)), None)
        is_directory = info["type"] == "directory"
        return SimpleNamespace(
            length=info["size"] or 0, is_directory=is_directory, mtime_nsec=version
        )

    @staticmethod
    @contextlib.contextmanager
    def GFile(path: str, mode: str) -> Iterator[BinaryIO]:  # noqa: N802
        with _opened(path) as (system, name), system.open(name, mode) as file:
            yield file


@contextlib.contextmanager
def _opened(path: str) -> Iterator[tuple[Any, str]]:
    """Yields the file system of a path, and its name there."""
    with needed("huggingface_hub", f"{path} needs"):
        import fsspec
    with download_errors(path):
        yield fsspec.core.url_to_fs(path)

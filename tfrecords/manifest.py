"""The manifest beside the shards of one run: what they are and what they were made of.

A JSON object: `shards`, a list of `{"file", "bytes", "records", "sha256"}` in which `file` is the
name without its folder, and whatever else the writer says of them, such as settings and statistics.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable

import tensorflow as tf

from tfrecords.writer import atomic_write

MANIFEST_END = ".manifest.json"
_SHARD_KEYS = {"file": str, "bytes": int, "records": int, "sha256": str}


def manifest_path(output_file: str) -> str:
    """The manifest of the run whose first, or only, shard is `output_file`.

    `DIR/NAME.tfrecord-00000-of-00004` and `DIR/NAME.tfrecord` both give `DIR/NAME.manifest.json`.
    """
    folder, name = os.path.split(output_file)
    name = re.sub(r"-\d{5,}-of-\d{5,}$", "", name).removesuffix(".tfrecord")
    return os.path.join(folder, name + MANIFEST_END)


def write_manifest(path: str, manifest: dict) -> None:
    """Writes a manifest, whole or not at all; equal ones give equal bytes.

    Raises:
        OSError: the file cannot be written.
    """
    text = json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False)
    atomic_write(path, f"{text}\n")


def read_manifest(path: str) -> dict:
    """The manifest in a file.

    Raises:
        ValueError: it is not one; names the file.
        OSError: it cannot be read.
    """
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            manifest = json.loads(file.read())
    except tf.errors.OpError as error:
        raise OSError(f"cannot read {path}: {error.message}") from error
    except ValueError as error:
        raise ValueError(f"{path} is not a manifest: no JSON ({error})") from None
    shards = manifest.get("shards") if isinstance(manifest, dict) else None
    if not isinstance(shards, list) or not all(map(_is_shard, shards)):
        keys = ", ".join(_SHARD_KEYS)
        raise ValueError(f"{path} is not a manifest: it has no list 'shards' of objects of {keys}")
    return manifest


def find_manifest(file: str) -> dict | None:
    """Returns the manifest beside a shard, or None if there is none.

    Raises:
        ValueError: the manifest is damaged.
        OSError: the manifest cannot be read.
    """
    path = manifest_path(file)
    return read_manifest(path) if tf.io.gfile.exists(path) else None


def shard_entry(path: str, records: int) -> dict:
    """What the manifest says of a finished shard of so many records.

    Raises:
        OSError: the file cannot be read.
    """
    digest = file_sha256(path)
    return {
        "file": os.path.basename(path),
        "bytes": tf.io.gfile.stat(path).length,
        "records": records,
        "sha256": digest,
    }


def lines_sha256(lines: Iterable[str]) -> str:
    """The checksum of a list of lines, whatever ends them in a file."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def file_sha256(path: str, on_read: Callable[[int], object] = lambda size: None) -> str:
    """The checksum of a file, in hexadecimal; it is read once, in parts.

    Args:
        on_read: is told how many bytes were read, after each part.

    Raises:
        OSError: the file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            while block := file.read(2**22):
                digest.update(block)
                on_read(len(block))
    except tf.errors.OpError as error:
        raise OSError(f"cannot read {path}: {error.message}") from error
    return digest.hexdigest()


def _is_shard(entry: object) -> bool:
    return isinstance(entry, dict) and all(
        isinstance(entry.get(key), kind) for key, kind in _SHARD_KEYS.items()
    )

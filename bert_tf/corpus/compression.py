"""Reads files that may be compressed with gzip, bzip2, xz or zstd, part by part.

The format is recognized by content, not by name. A file may hold any number of compressed members,
as parallel compressors write them, with zeros between and after them.

This module decompresses the members one by one because the libraries' own file objects lose data
without an error: `bz2.BZ2File` and `lzma.LZMAFile` stop at anything that is not a member, such as
padding, and zstandard's `stream_reader` accepts a truncated file as complete. Only `gzip.GzipFile`
reports all damage.
"""

import bz2
import functools
import itertools
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import tensorflow as tf

from tfrecords.files import named_errors

READ_BYTES = 2**20
# Less than for plain text, because the decompressed part is many times as large.
COMPRESSED_READ_BYTES = 2**16


def read_content(file: str) -> Iterator[bytes]:
    """Yields the decompressed content of a file in parts."""
    with named_errors(f"cannot read {file}"), tf.io.gfile.GFile(file, "rb") as stream:
        head = stream.read(COMPRESSED_READ_BYTES)
        compression = _detect(head, file)
        size = COMPRESSED_READ_BYTES if compression else READ_BYTES
        parts = itertools.chain([head], iter(functools.partial(stream.read, size), b""))
        yield from _decompress(parts, compression, file) if compression else parts


def estimate_content_bytes(files: Sequence[str]) -> int:
    """Returns the total size of the files' content.

    The size is exact for plain files and extrapolated from the beginning for compressed ones.
    """
    total = 0.0
    for file in files:
        with named_errors(f"cannot read {file}"), tf.io.gfile.GFile(file, "rb") as stream:
            size = tf.io.gfile.stat(file).length
            head = stream.read(READ_BYTES)
        if compression := _detect(head, file):
            decompressor = compression.new_decompressor()
            try:
                content = decompressor.decompress(head)
            except compression.error as error:
                raise OSError(f"{file} is damaged: {error}") from None
            used = len(head) - (len(decompressor.unused_data) if decompressor.eof else 0)
            size *= len(content) / used
        total += size
    return round(total)


class _Decompressor(Protocol):
    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes) -> bytes: ...


@dataclass(frozen=True)
class _Compression:
    """A decompressor of one member of a file, and the error it raises for damaged data."""

    new_decompressor: Callable[[], _Decompressor]
    error: type[Exception]


def _detect(head: bytes, file: str) -> _Compression | None:
    """Returns the compression of the file that begins with `head`; None for a plain file."""
    if head.startswith(b"\x1f\x8b"):
        return _Compression(functools.partial(zlib.decompressobj, wbits=31), zlib.error)
    # More than "BZh9", because plain text may begin with these letters.
    if re.match(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", head):
        return _Compression(bz2.BZ2Decompressor, OSError)
    if head.startswith(b"\xfd7zXZ\0"):
        return _Compression(
            functools.partial(lzma.LZMADecompressor, lzma.FORMAT_XZ), lzma.LZMAError
        )
    # A frame, or a skippable frame, with which the files of parallel compressors begin.
    if re.match(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", head):
        try:
            import zstandard
        except ImportError:
            raise OSError(
                f"cannot read {file}: zstd files need 'zstandard': pip install zstandard"
            ) from None
        # `zstd --long=31` needs a window of 2 GB.
        zstd = zstandard.ZstdDecompressor(max_window_size=2**31)
        return _Compression(zstd.decompressobj, zstandard.ZstdError)
    return None


def _decompress(parts: Iterator[bytes], compression: _Compression, file: str) -> Iterator[bytes]:
    """Yields the content of all members of a file that is read in `parts`."""
    decompressor = compression.new_decompressor()
    for part in parts:
        while part:
            if decompressor.eof:
                # Zeros may pad a file to whole blocks.
                part = part.lstrip(b"\0")
                if not part:
                    break
                decompressor = compression.new_decompressor()
            try:
                content = decompressor.decompress(part)
            except compression.error as error:
                raise OSError(f"{file} is damaged: {error}") from None
            part = decompressor.unused_data if decompressor.eof else b""
            yield content
    if not decompressor.eof:
        raise OSError(f"{file} is truncated: its compressed data ends early")

"""Text from files and TFDS datasets, as blocks of whole documents.

A file is plain text, one line after the other with a blank line between documents, or, if its name
ends in .jsonl or .json (before a suffix such as .gz), JSON lines. Compression is recognised by
content, not by name: gzip, bzip2, xz and zstd, each with any number of members, as parallel
compressors write them.
"""

import bz2
import codecs
import functools
import itertools
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import tensorflow as tf

READ_BYTES = 2**20
# Decompressed at once: what comes out is many times as large.
_COMPRESSED_BYTES = 2**16
# A line of bytes of which white space consists; whether it is, is seen when it is decoded.
_MAYBE_BLANK = re.compile(
    rb"\n([\t\x0b-\r\x1c- \xc2\x85\xa0\xe1-\xe3\x80-\x8a\x9a\x9f\xa8\xa9\xaf]*)(?=\n)"
)


@dataclass(frozen=True)
class Block:
    """Some whole documents.

    Attributes:
        kind: "text" (lines, blank ones between documents) or "json" (a JSON object a line).
        data: what the files hold, decompressed; not necessarily UTF-8.
        name: where it comes from, for messages.
    """

    kind: str
    data: bytes
    name: str


def group_files(files: Sequence[str], min_bytes: int) -> list[list[str]]:
    """Groups the files, in order: small ones together, up to `min_bytes` on disk, large ones alone.

    Raises:
        OSError: there is no such file.
    """
    groups: list[list[str]] = []
    room = 0
    for file in files:
        try:
            size = tf.io.gfile.stat(file).length
        except tf.errors.OpError as error:
            raise OSError(f"cannot read {file}: {error.message}") from error
        if room <= 0 or size >= min_bytes:
            groups.append([])
            room = min_bytes
        groups[-1].append(file)
        room -= size
    return groups


def estimated_text_bytes(files: Sequence[str]) -> int:
    """How much text the files hold: exactly, but for compressed ones, judged by their beginning.

    Raises:
        OSError: a file cannot be read.
    """
    total = 0.0
    for file in files:
        try:
            size = tf.io.gfile.stat(file).length
            with tf.io.gfile.GFile(file, "rb") as stream:
                head = stream.read(READ_BYTES)
        except tf.errors.OpError as error:
            raise OSError(f"cannot read {file}: {error.message}") from error
        if how := _format(head, file):
            decompressor = how.decompressor()
            try:
                content = decompressor.decompress(head)
            except how.error as error:
                raise OSError(f"{file} is damaged: {error}") from None
            used = len(head) - (len(decompressor.unused_data) if decompressor.eof else 0)
            size *= len(content) / used
        total += size
    return round(total)


def read_blocks(
    files: Sequence[str], block_bytes: int, whole_documents: bool = True
) -> Iterator[Block]:
    """The files, one after the other, in blocks of `block_bytes` to about twice that.

    A block of text ends with a document, so it is larger where a document is; one of JSON lines
    ends with a line, and so does one of text without `whole_documents`. The last block is what is
    left. Byte order marks are dropped. Memory does not grow with the files.

    Raises:
        OSError: a file cannot be read, is damaged, or needs a library that is not installed.
        ValueError: a file is UTF-16.
    """
    cutter: _Cutter | None = None
    for file in files:
        kind = _kind(file)
        if cutter and kind != cutter.kind:
            yield from cutter.rest()
            cutter = None
        cutter = cutter or _Cutter(kind, block_bytes, whole_documents)
        cutter.begin_file(file)
        for data in _without_mark(_content(file), file):
            yield from cutter.add(data)
    if cutter:
        yield from cutter.rest()


def tfds_blocks(name: str, block_bytes: int, data_dir: str | None = None) -> Iterator[Block]:
    """The feature "text" of a TensorFlow Datasets data set, as JSON lines.

    Args:
        name: such as "wikipedia/20230601.en", with ":" and a split, otherwise all of "train".
        block_bytes: as for `read_blocks`.
        data_dir: where TFDS keeps its data; it is downloaded and prepared if it is not there.

    Raises:
        ValueError: there is no such data set or split, or no string feature "text".
    """
    cutter = _Cutter("json", block_bytes)
    cutter.begin_file(f"TFDS {name}")
    for text in _tfds_texts(name, data_dir):
        line = json.dumps({"text": text.decode("utf-8", "replace")}, ensure_ascii=False)
        yield from cutter.add(line.encode("utf-8") + b"\n")
    yield from cutter.rest()


class _Cutter:
    """Cuts what is added into blocks."""

    def __init__(self, kind: str, block_bytes: int, whole_documents: bool = True) -> None:
        self.kind = kind
        self._block_bytes = block_bytes
        by_document = kind == "text" and whole_documents
        self._find_end = _end_of_document if by_document else _end_of_line
        self._parts: list[bytes] = []
        self._size = 0
        # Half a block more than a block, so that the last one is not tiny.
        self._enough = self._least = block_bytes + block_bytes // 2
        self._files: list[str] = []

    def begin_file(self, file: str) -> None:
        if self._size:
            self._append({"text": b"\n\n", "json": b"\n"}[self.kind])
        else:
            self._files.clear()
        self._files.append(file)

    def add(self, data: bytes) -> Iterator[Block]:
        self._append(data)
        if self._size >= self._enough:
            yield from self._cut()

    def rest(self) -> Iterator[Block]:
        yield from self._cut()
        if self._size:
            yield self._block(self._parts[0])

    def _cut(self) -> Iterator[Block]:
        data, start = b"".join(self._parts), 0
        while len(data) - start >= self._least:
            end = self._find_end(data, start + self._block_bytes)
            if end is None:
                break
            yield self._block(data[start:end])
            self._files = self._files[-1:]
            start = end
        self._parts, self._size = [data[start:]], len(data) - start
        # A long document is looked at again only when there is twice as much of it.
        self._enough = 2 * self._size if self._size >= self._least else self._least

    def _append(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)

    def _block(self, data: bytes) -> Block:
        first, last = self._files[0], self._files[-1]
        return Block(self.kind, data, first if first == last else f"{first} to {last}")


def _end_of_document(data: bytes, start: int) -> int | None:
    for match in _MAYBE_BLANK.finditer(data, start):
        if not match[1].decode("utf-8", "replace").strip():
            return match.end() + 1
    return None


def _end_of_line(data: bytes, start: int) -> int | None:
    return data.find(b"\n", start) + 1 or None


def _kind(file: str) -> str:
    name = re.sub(r"\.(gz|bz2|xz|zst)$", "", file.lower())
    return "json" if name.endswith((".jsonl", ".json")) else "text"


def _without_mark(parts: Iterator[bytes], file: str) -> Iterator[bytes]:
    head = b""
    for part in parts:
        head += part
        if len(head) >= len(codecs.BOM_UTF8):
            break
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(f"{file} is UTF-16: save it as UTF-8")
    yield head.removeprefix(codecs.BOM_UTF8)
    yield from parts


def _content(file: str) -> Iterator[bytes]:
    """The content of a file in parts, decompressed."""
    try:
        with tf.io.gfile.GFile(file, "rb") as stream:
            head = stream.read(_COMPRESSED_BYTES)
            how = _format(head, file)
            size = _COMPRESSED_BYTES if how else READ_BYTES
            parts = itertools.chain([head], iter(functools.partial(stream.read, size), b""))
            yield from _decompressed(parts, how, file) if how else parts
    except tf.errors.OpError as error:
        raise OSError(f"cannot read {file}: {error.message}") from error


class _Decompressor(Protocol):
    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes) -> bytes: ...


@dataclass(frozen=True)
class _Format:
    """How to decompress one member of a file, and what is raised if it is damaged."""

    decompressor: Callable[[], _Decompressor]
    error: type[Exception]


def _format(head: bytes, file: str) -> _Format | None:
    """How the file that begins with `head` is compressed."""
    if head.startswith(b"\x1f\x8b"):
        return _Format(functools.partial(zlib.decompressobj, wbits=31), zlib.error)
    # Not "BZh9" alone, with which a text may begin.
    if re.match(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", head):
        return _Format(bz2.BZ2Decompressor, OSError)
    if head.startswith(b"\xfd7zXZ\0"):
        return _Format(functools.partial(lzma.LZMADecompressor, lzma.FORMAT_XZ), lzma.LZMAError)
    # A frame, or a skippable one, with which parallel compressors begin.
    if re.match(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", head):
        try:
            import zstandard
        except ImportError:
            raise OSError(
                f"cannot read {file}, compressed with zstd: pip install 'bert-tf[zst]'"
            ) from None
        # `zstd --long=31` needs a window of 2 GB.
        zstd = zstandard.ZstdDecompressor(max_window_size=2**31)
        return _Format(zstd.decompressobj, zstandard.ZstdError)
    return None


def _decompressed(parts: Iterator[bytes], how: _Format, file: str) -> Iterator[bytes]:
    """All members of a file that is read in `parts`."""
    decompressor = how.decompressor()
    for part in parts:
        while part:
            if decompressor.eof:
                # Zeros may pad a file to whole blocks.
                part = part.lstrip(b"\0")
                if not part:
                    break
                decompressor = how.decompressor()
            try:
                content = decompressor.decompress(part)
            except how.error as error:
                raise OSError(f"{file} is damaged: {error}") from None
            part = decompressor.unused_data if decompressor.eof else b""
            yield content
    if not decompressor.eof:
        raise OSError(f"{file} is cut short: its compressed data end too early")


def _tfds_texts(name: str, data_dir: str | None) -> Iterator[bytes]:
    # Half a second to import, for few.
    import tensorflow_datasets as tfds

    name, _, split = name.partition(":")
    split = split or "train"
    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except (tfds.core.DatasetNotFoundError, ValueError) as error:
        raise ValueError(f"no TFDS data set {name!r}: {str(error).splitlines()[0]}") from None
    specs = builder.info.features.get_tensor_spec()
    if not isinstance(specs, dict) or specs.get("text") != tf.TensorSpec((), tf.string):
        raise ValueError(f"the TFDS data set {name} has no feature 'text' that is a string")
    builder.download_and_prepare()
    # In the order in which it is kept, and never held in memory.
    reading = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    try:
        dataset = builder.as_dataset(split=split, shuffle_files=False, read_config=reading)
    except ValueError as error:
        raise ValueError(f"TFDS {name}, split {split!r}: {error}") from None
    for example in dataset:
        yield example["text"].numpy()

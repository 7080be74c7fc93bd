"""Reads text from files and TFDS datasets, in blocks of whole documents.

A file is plain text, or JSON lines if its name ends in .jsonl or .json (before a suffix such as
.gz). Either may be compressed.
"""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import tensorflow as tf

from bert_tf.base.content import checked_content, decode
from bert_tf.base.files import named_errors
from bert_tf.corpus.tfds import read_tfds_texts

# A line of bytes that occur in encoded whitespace. Only decoding shows whether it is blank.
_MAYBE_BLANK = re.compile(
    rb"\n([\t\x0b-\r\x1c- \xc2\x85\xa0\xe1-\xe3\x80-\x8a\x9a\x9f\xa8\xa9\xaf]*)(?=\n)"
)


@dataclass(frozen=True)
class Block:
    """A piece of the input that consists of whole documents.

    Attributes:
        kind: "text" (lines) or "json" (a JSON object per line).
        data: the decompressed bytes, not necessarily valid UTF-8.
        files: the name of every file in the block, and where in `data` it begins.
    """

    kind: str
    data: bytes
    files: tuple[tuple[str, int], ...]

    def texts(self, invalid_lines: dict[str, int]) -> Iterator[tuple[str, str]]:
        """Yields the name and the text of every file in the block; counts lines that are not UTF-8.

        Invalid bytes become U+FFFD, which the tokenizer drops.
        """
        ends = [start for _, start in self.files[1:]]
        for (file, start), end in zip(self.files, [*ends, len(self.data)], strict=True):
            text, invalid = decode(self.data[start:end])
            if invalid:
                invalid_lines[file] = invalid
            yield file, text


def is_json(file: str) -> bool:
    """Returns whether a file holds JSON lines, judged by its name."""
    name = re.sub(r"\.(gz|bz2|xz|zst)$", "", file.lower())
    return name.endswith((".jsonl", ".json"))


def group_files(files: Sequence[str], min_bytes: int) -> list[list[str]]:
    """Groups consecutive files: small ones up to `min_bytes` on disk together, large ones alone."""
    groups: list[list[str]] = []
    room = 0
    for file in files:
        with named_errors(f"cannot read {file}"):
            size = tf.io.gfile.stat(file).length
        if room <= 0 or size >= min_bytes:
            groups.append([])
            room = min_bytes
        groups[-1].append(file)
        room -= size
    return groups


def read_blocks(
    files: Sequence[str], block_bytes: int, separator: str | None = "blank_line"
) -> Iterator[Block]:
    """Yields the content of the files in blocks of `block_bytes` to about twice as many bytes.

    A block of plain text ends where a document ends, so a long document makes a larger block; the
    separator is that of `read_documents`. A block of JSON lines ends where a line ends, and so does
    one of text without a separator. The last block holds the remainder. Byte order
    marks are removed. Memory use grows with the longest document, not with the size of the files.
    """
    for has_json, group in itertools.groupby(files, is_json):
        parts = ((file, part) for file in group for part in checked_content(file))
        yield from _blocks("json" if has_json else "text", parts, block_bytes, separator)


def tfds_blocks(name: str, block_bytes: int, data_dir: str | None = None) -> Iterator[Block]:
    """Yields the texts of a TFDS dataset as blocks of JSON lines with the field "text"."""
    lines = (
        json.dumps({"text": text.decode("utf-8", "replace")}, ensure_ascii=False) + "\n"
        for text in read_tfds_texts(name, data_dir)
    )
    yield from _blocks("json", ((f"TFDS {name}", x.encode()) for x in lines), block_bytes, None)


def _blocks(
    kind: str, parts: Iterable[tuple[str, bytes]], block_bytes: int, separator: str | None
) -> Iterator[Block]:
    """Cuts files, given as pairs of a name and a part of the content, into blocks."""
    # The files that have data in the buffer, and where they begin there.
    data, files = bytearray(), []
    # One and a half blocks, so that the last block is not tiny.
    cut_size = min_cut_size = block_bytes + block_bytes // 2

    def full_blocks() -> Iterator[Block]:
        nonlocal files
        while len(data) >= min_cut_size:
            if kind == "json" or not separator:
                end = _end_of_line(data, block_bytes)
            else:
                end = _end_of_document(data, files, block_bytes, separator)
            if not end:
                return
            yield Block(kind, bytes(data[:end]), tuple(_files_between(files, 0, end)))
            files = _files_between(files, end, len(data) + 1)
            del data[:end]

    for file, part in parts:
        if not files or file != files[-1][0]:
            # The end of a file ends its last document or line.
            if data:
                data += {"text": b"\n\n", "json": b"\n"}[kind]
            else:
                files = []
            files.append((file, len(data)))
        data += part
        if len(data) >= cut_size:
            yield from full_blocks()
            # Searches a long document again only when it has doubled, which keeps the time linear.
            cut_size = 2 * len(data) if len(data) >= min_cut_size else min_cut_size
    yield from full_blocks()
    if data:
        yield Block(kind, bytes(data), tuple(files))


def _files_between(files: list[tuple[str, int]], start: int, end: int) -> list[tuple[str, int]]:
    """Returns the files that have data or begin between two positions, relative to `start`."""
    ends = [begin for _, begin in files[1:]] + [end]
    return [
        (file, max(0, begin - start))
        for (file, begin), file_end in zip(files, ends, strict=True)
        if begin < end and file_end > start
    ]


def _end_of_document(
    data: bytearray, files: list[tuple[str, int]], start: int, separator: str
) -> int | None:
    """Returns the first end of a document from `start` on."""
    if separator == "blank_line":
        for match in _MAYBE_BLANK.finditer(data, start):
            if not match[1].decode("utf-8", "replace").strip():
                return match.end() + 1
        return None
    next_file = next((begin for _, begin in files if begin >= start), None)
    if separator == "file" or not (position := _end_of_line(data[:next_file], start)):
        return next_file
    # The last line may be incomplete.
    for line in data[position:next_file].split(b"\n")[:-1]:
        if re.search(separator, line.decode("utf-8", "replace").strip()):
            return position
        position += len(line) + 1
    return next_file


def _end_of_line(data: bytearray, start: int) -> int | None:
    return data.find(b"\n", start) + 1 or None

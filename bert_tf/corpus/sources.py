"""Reads text from files and TFDS datasets, in blocks of whole documents.

A file is plain text, in which a `Layout` says what a document is, or JSON lines if its name ends in
.jsonl or .json (before a suffix such as .gz). Either may be compressed.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import tensorflow as tf

from bert_tf.corpus.content import checked_content, decode
from bert_tf.corpus.lines import DEFAULT_LAYOUT, Layout
from bert_tf.corpus.tfds import read_tfds_texts
from tfrecords.files import named_errors

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
    files: Sequence[str], block_bytes: int, layout: Layout | None = DEFAULT_LAYOUT
) -> Iterator[Block]:
    """Yields the content of the files in blocks of `block_bytes` to about twice as many bytes.

    A block of plain text ends where a document ends, so a long document makes a larger block. A
    block of JSON lines ends where a line ends. The last block holds the remainder. Byte order marks
    are removed. Memory use grows with the longest document, not with the size of the files.

    Args:
        layout: what a document is in plain text; None to end blocks of text at any line.
    """
    cutter: _BlockCutter | None = None
    for file in files:
        kind = "json" if is_json(file) else "text"
        if cutter and kind != cutter.kind:
            yield from cutter.finish()
            cutter = None
        cutter = cutter or _BlockCutter(kind, block_bytes, layout)
        cutter.begin_file(file)
        for data in checked_content(file):
            yield from cutter.add(data)
    if cutter:
        yield from cutter.finish()


def tfds_blocks(name: str, block_bytes: int, data_dir: str | None = None) -> Iterator[Block]:
    """Yields the texts of a TFDS dataset as blocks of JSON lines with the field "text"."""
    cutter = _BlockCutter("json", block_bytes)
    cutter.begin_file(f"TFDS {name}")
    for text in read_tfds_texts(name, data_dir):
        line = json.dumps({"text": text.decode("utf-8", "replace")}, ensure_ascii=False)
        yield from cutter.add(line.encode("utf-8") + b"\n")
    yield from cutter.finish()


class _BlockCutter:
    """Cuts data that is added in parts into blocks."""

    def __init__(self, kind: str, block_bytes: int, layout: Layout | None = None) -> None:
        self.kind = kind
        self._block_bytes = block_bytes
        self._layout = layout if kind == "text" else None
        self._parts: list[bytes] = []
        self._size = 0
        # One and a half blocks, so that the last block is not tiny.
        self._cut_size = self._min_cut_size = block_bytes + block_bytes // 2
        self._files: list[tuple[str, int]] = []

    def begin_file(self, file: str) -> None:
        """Ends the document or line of the previous file."""
        if self._size:
            self._append({"text": b"\n\n", "json": b"\n"}[self.kind])
        else:
            self._files.clear()
        self._files.append((file, self._size))

    def add(self, data: bytes) -> Iterator[Block]:
        """Adds data and yields the blocks that are complete."""
        self._append(data)
        if self._size >= self._cut_size:
            yield from self._full_blocks()

    def finish(self) -> Iterator[Block]:
        """Yields everything that is left."""
        yield from self._full_blocks()
        if self._size:
            yield Block(self.kind, self._parts[0], tuple(self._files))

    def _full_blocks(self) -> Iterator[Block]:
        data, start = b"".join(self._parts), 0
        while len(data) - start >= self._min_cut_size:
            end = self._find_end(data, start + self._block_bytes)
            if end is None:
                break
            yield Block(self.kind, data[start:end], tuple(self._files_between(start, end)))
            start = end
        self._files = self._files_between(start, len(data) + 1)
        self._parts, self._size = [data[start:]], len(data) - start
        # Searches a long document again only when it has doubled, which keeps the time linear.
        is_long = self._size >= self._min_cut_size
        self._cut_size = 2 * self._size if is_long else self._min_cut_size

    def _append(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)

    def _files_between(self, start: int, end: int) -> list[tuple[str, int]]:
        """Returns the files that have data or begin between two positions, relative to `start`."""
        ends = [begin for _, begin in self._files[1:]] + [end]
        return [
            (file, max(0, begin - start))
            for (file, begin), file_end in zip(self._files, ends, strict=True)
            if begin < end and file_end > start
        ]

    def _find_end(self, data: bytes, start: int) -> int | None:
        """Returns the first end of a document, or of a line, from `start` on."""
        if not self._layout:
            return _end_of_line(data, start)
        separator = self._layout.document_separator
        if separator == "blank_line":
            for match in _MAYBE_BLANK.finditer(data, start):
                if not match[1].decode("utf-8", "replace").strip():
                    return match.end() + 1
            return None
        next_file = next((begin for _, begin in self._files if begin >= start), None)
        if separator == "file" or not (position := _end_of_line(data[:next_file], start)):
            return next_file
        # The last line may be incomplete.
        for line in data[position:next_file].split(b"\n")[:-1]:
            if re.search(separator, line.decode("utf-8", "replace").strip()):
                return position
            position += len(line) + 1
        return next_file


def _end_of_line(data: bytes, start: int) -> int | None:
    return data.find(b"\n", start) + 1 or None

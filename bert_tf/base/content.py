"""The content of text files: decompressed part by part, checked and decoded.

A file may hold any number of members compressed with gzip, bzip2, xz or zstd, with zeros between
and after them. They are decompressed one by one because the libraries' own file objects lose data
without an error: `bz2.BZ2File` and `lzma.LZMAFile` stop at anything that is not a member, such as
padding, and zstandard's `stream_reader` accepts a truncated file as complete.
"""

import bz2
import codecs
import functools
import itertools
import lzma
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bert_tf.base.files import LFS_POINTER, check_single, reading, shortened
from bert_tf.base.storage import file_size

READ_BYTES = 2**20
# Less than for plain text, because the decompressed part is many times as large.
COMPRESSED_READ_BYTES = 2**16
# UTF-32 comes first, because its mark may begin with that of UTF-16.
_MARKS = {
    "UTF-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "UTF-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}
_WITHOUT_MARK = ("UTF-32LE", "UTF-32BE", "UTF-16LE", "UTF-16BE")
# How files that are no text begin, whatever their names, and what to do about them.
_NOT_TEXT = {
    rb"PK\x03\x04": "a zip archive, such as an Excel file: extract it, or save the table as CSV",
    rb"\xd0\xcf\x11\xe0": "an Excel or Word file: save it as CSV or as plain text",
    rb"PAR1": "a Parquet file: let its name end in .parquet",
    rb"%PDF-": "a PDF: save it as plain text",
    re.escape(LFS_POINTER): "a Git LFS pointer: run git lfs pull",
    rb"\s*<(!doctype\s+html|html)\b": "a web page: download the file itself, or extract the text",
}
# Enough of a text to show its encoding.
SAMPLE_BYTES = 4096
# A text with a larger share of unreadable characters is not UTF-8.
_MAX_UNREADABLE = 0.2
# Fewer, such as "a\0b\0", may as well be letters and NULs.
_FEWEST_CHARACTERS = 3
# Enough for a compressed file without content.
_SMALL = 100

NewDecompressor = Callable[[], Any]


def checked_content(file: str) -> Iterator[bytes]:
    """Yields the decompressed content of a text file in parts, without a byte order mark.

    Raises a ValueError if the first bytes are of UTF-16 or UTF-32, or of no text at all.
    """
    head, parts = b"", read_content(file)
    for part in parts:
        head += part
        if len(head) >= SAMPLE_BYTES:
            break
    check_encoding(head, file)
    head = head.removeprefix(codecs.BOM_UTF8)
    for start, what in _NOT_TEXT.items():
        if re.match(start, head, re.IGNORECASE):
            raise ValueError(f"{file} is not text but {what}")
    yield head
    yield from parts


def read_text(file: str) -> bytes:
    """Returns the decompressed content of a text file without a byte order mark."""
    check_single(file)
    return b"".join(checked_content(file))


def read_lines(file: str, size: int = READ_BYTES) -> Iterator[bytes]:
    """Yields the decompressed content of a file in parts of whole lines, `size` bytes or more."""
    data = bytearray()
    for part in checked_content(file):
        start = max(len(data), size - 1)
        data += part
        while end := data.find(b"\n", start) + 1:
            yield bytes(data[:end])
            del data[:end]
            start = size - 1
    if data:
        yield bytes(data)


def read_content(file: str) -> Iterator[bytes]:
    """Yields the decompressed content of a file in parts."""
    with reading(file) as stream:
        head = stream.read(COMPRESSED_READ_BYTES)
        new_decompressor = _detect(head, file)
        size = COMPRESSED_READ_BYTES if new_decompressor else READ_BYTES
        parts = itertools.chain([head], iter(functools.partial(stream.read, size), b""))
        yield from _decompress(parts, new_decompressor, file) if new_decompressor else parts


def estimate_content_bytes(files: Sequence[str]) -> int:
    """Returns the total size of the files' content; that of compressed ones is extrapolated."""
    total = 0.0
    for file in files:
        with reading(file) as stream:
            size = file_size(file)
            head = stream.read(READ_BYTES)
        if new_decompressor := _detect(head, file):
            decompressor = new_decompressor()
            content = _decompressed(decompressor, head, file)
            used = len(head) - (len(decompressor.unused_data) if decompressor.eof else 0)
            size *= len(content) / used
        total += size
    return round(total)


def _detect(head: bytes, file: str) -> NewDecompressor | None:
    """Returns what decompresses a member of the file that begins with `head`; None if plain."""
    if head.startswith(b"\x1f\x8b"):
        return functools.partial(zlib.decompressobj, wbits=31)
    # More than "BZh9", because plain text may begin with these letters.
    if re.match(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", head):
        return bz2.BZ2Decompressor
    if head.startswith(b"\xfd7zXZ\0"):
        return functools.partial(lzma.LZMADecompressor, lzma.FORMAT_XZ)
    # A frame, or a skippable frame, with which the files of parallel compressors begin.
    if re.match(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", head):
        try:
            import zstandard
        except ImportError:
            raise OSError(f"{file} needs zstandard: pip install zstandard") from None
        # `zstd --long=31` needs a window of 2 GB.
        return zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj
    return None


def _decompressed(decompressor: Any, data: bytes, file: str) -> bytes:
    try:
        return decompressor.decompress(data)
    except Exception as error:  # Each library has errors of its own.
        raise OSError(f"{file} is damaged ({error}): download or copy it again") from None


def _decompress(parts: Iterator[bytes], new: NewDecompressor, file: str) -> Iterator[bytes]:
    """Yields the content of all members of a file that is read in `parts`."""
    decompressor = new()
    for part in parts:
        while part:
            if decompressor.eof:
                # Zeros may pad a file to whole blocks.
                part = part.lstrip(b"\0")
                if not part:
                    break
                decompressor = new()
            yield _decompressed(decompressor, part, file)
            part = decompressor.unused_data if decompressor.eof else b""
    if not decompressor.eof:
        raise OSError(f"{file} is truncated: download or copy it again")


def decode(data: bytes) -> tuple[str, int]:
    """Returns the text, with U+FFFD for invalid bytes, and the number of lines that hold some."""
    try:
        return data.decode("utf-8"), 0
    except UnicodeDecodeError:
        invalid = sum(not is_utf8(line) for line in data.split(b"\n"))
        return data.decode("utf-8", "replace"), invalid


def is_utf8(text: bytes) -> bool:
    """Returns whether all bytes of a text are UTF-8."""
    return text.decode(errors="ignore").encode() == text


def is_unicode(text: str) -> bool:
    """Returns whether a string can be written as UTF-8: whether it has no lone surrogates."""
    return text.encode(errors="ignore").decode() == text


def check_encoding(data: bytes, name: str) -> None:
    """Raises a ValueError if a text, or its first `SAMPLE_BYTES`, is UTF-16 or UTF-32."""
    head = data[:SAMPLE_BYTES]
    found = [encoding for encoding, marks in _MARKS.items() if head.startswith(marks)]
    # Even text without Latin letters has NULs there, in its spaces and line ends.
    if b"\0" in head and _unreadable(head.decode("utf-8", "replace")) > _MAX_UNREADABLE:
        for encoding in _WITHOUT_MARK:
            text = head.decode(encoding, "ignore")
            # Only the last character may be incomplete.
            whole = len(text.encode(encoding)) > len(head) - 4
            enough = len(text) >= _FEWEST_CHARACTERS and text.strip()
            if enough and whole and _unreadable(text) < _MAX_UNREADABLE / 10:
                found.append(encoding)
    if found:
        raise ValueError(
            f"{name} is {found[0]}: save it as UTF-8, for example with iconv -f {found[0]} -t UTF-8"
        )


def _unreadable(text: str) -> float:
    """Returns the share of characters that do not occur in text."""
    bad = sum(
        char == "\ufffd"
        or (unicodedata.category(char) in ("Cc", "Cn", "Co") and char not in "\t\n\f\r")
        for char in text
    )
    return bad / max(1, len(text))


def describe_problems(files: Sequence[str], invalid_lines: Mapping[str, int]) -> list[str]:
    """Returns warnings about files without text, and about lines that are not UTF-8, by file."""
    warnings = []
    small = [file for file in files if file_size(file) <= _SMALL]
    if empty := [file for file in small if not b"".join(read_content(file)).strip()]:
        warnings.append(
            f"WARNING: {len(empty):,} of {len(files):,} files are empty: {shortened(empty)}."
        )
    if invalid_lines:
        most = sorted(invalid_lines, key=lambda file: (-invalid_lines[file], file))
        counted = [f"{file} ({invalid_lines[file]:,})" for file in most]
        warnings.append(
            f"WARNING: dropped invalid bytes in {sum(invalid_lines.values()):,} lines that are not "
            f"UTF-8: {shortened(counted)}. Convert such files, for example with iconv."
        )
    return warnings

"""Tests decompression. Oracles: the bytes that Python's and zstandard's compressors were given."""

import bz2
import gzip
import io
import lzma
import random
import sys
import zipfile

import pytest
from support import one_line

from bert_tf.base import content
from bert_tf.base.content import estimate_content_bytes, read_content, read_text

zstandard = pytest.importorskip("zstandard")

COMPRESS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


def _text(count: int) -> bytes:
    rng = random.Random(count)
    return "".join("word " * rng.randrange(1, 8) + "\n" for _ in range(count)).encode()


def _read(path, data: bytes) -> bytes:
    path.write_bytes(data)
    return b"".join(read_content(str(path)))


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compression_is_recognized_by_content(tmp_path, suffix):
    data = _text(3000)
    compress = COMPRESS[suffix]
    for name, parts in {
        f"one.{suffix}": [data],
        "no_suffix": [data],
        f"members.{suffix}": [data[:7], data[7:5000], b"", data[5000:]],
    }.items():
        assert _read(tmp_path / name, b"".join(map(compress, parts))) == data


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("size", [1, 2, 3, 17])
def test_members_may_end_and_be_padded_anywhere(tmp_path, monkeypatch, suffix, size):
    """Small reads put the border between two reads at every place of every member."""
    monkeypatch.setattr(content, "COMPRESSED_READ_BYTES", max(size, 10))
    data = _text(100)
    members = (COMPRESS[suffix](part) + b"\0" * 8 for part in (data[:300], data[300:]))
    assert _read(tmp_path / "padded", b"".join(members)) == data


@pytest.mark.parametrize("suffix", COMPRESS)
def test_damaged_files_are_os_errors_that_name_them(tmp_path, suffix):
    good = COMPRESS[suffix](_text(3000))
    for damaged in (good[:-1], good[: len(good) // 2], good + good[:20], good[:12]):
        with pytest.raises(OSError, match=f"cut.{suffix} is truncated"):
            _read(tmp_path / f"cut.{suffix}", damaged)
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 255
    for damaged in (bytes(flipped), good + b"garbage after the last member"):
        # Without a checksum in zstd's frame, the damage may show as a missing end.
        with pytest.raises(OSError, match=f"bad.{suffix} is (damaged|truncated)"):
            _read(tmp_path / f"bad.{suffix}", damaged)


def test_skippable_frames_of_parallel_zstd(tmp_path):
    frame = b"\x50\x2a\x4d\x18\x04\x00\x00\x00size"
    data = COMPRESS["zst"](b"one\n")
    assert _read(tmp_path / "a.zst", frame + data + frame + data) == b"one\none\n"


def test_zstd_without_the_library_is_one_line(tmp_path, monkeypatch):
    data = COMPRESS["zst"](b"one\n")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(OSError, match=r"a.txt.zst.*pip install zstandard"):
        _read(tmp_path / "a.txt.zst", data)


def _zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    return file.getvalue()


_PAGE = b'<!DOCTYPE html>\n<html lang="en"><head><title>404</title></head></html>'


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (_zip(), "a zip archive, such as an Excel file: extract it, or save the table as CSV"),
        (bytes.fromhex("d0cf11e0a1b11ae1"), "an Excel or Word file: save it as CSV"),
        (b"PAR1\x15\x04", "a Parquet file: let its name end in .parquet"),
        (b"%PDF-1.7\n", "a PDF: save it as plain text"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer: run git lfs pull"),
        (_PAGE, "a web page: download the file itself"),
        (b"\xef\xbb\xbf\n " + _PAGE.lower(), "a web page: download the file itself"),
        (gzip.compress(b"<HTML>" + _PAGE, mtime=0), "a web page: download the file itself"),
    ],
)
def test_files_that_are_no_text_are_recognized_by_content(tmp_path, data, message):
    """Oracle: the first bytes that other programs write. The words alone are text."""
    path = tmp_path / "data.csv"
    path.write_bytes(data)
    with one_line(f"{path} is not text but {message}"):
        read_text(str(path))
    path.write_text("PK: <html>, a <!doctype html>, PDF-1.7, PAR1\n<htmlx>")
    assert read_text(str(path)) == path.read_bytes()


def test_text_that_begins_like_bzip2(tmp_path):
    data = b"BZh9 is a name\n"
    assert _read(tmp_path / "a", data) == data


def test_the_estimated_size_is_exact_for_what_fits_one_read(tmp_path):
    data = _text(3000)
    files = []
    for suffix, compress in COMPRESS.items():
        (tmp_path / suffix).write_bytes(compress(data))
        files.append(str(tmp_path / suffix))
    (tmp_path / "plain").write_bytes(data)
    assert estimate_content_bytes([*files, str(tmp_path / "plain")]) == 5 * len(data)

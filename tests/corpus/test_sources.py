"""Oracles: the files' own bytes, what Python's and zstandard's compressors made, and by hand."""

import bz2
import gzip
import itertools
import json
import lzma
import random
import sys
import time

import numpy as np
import pytest
import tensorflow_datasets as tfds

from bert_tf.corpus import sources
from bert_tf.corpus.sources import Block, group_files, read_blocks, tfds_blocks

zstandard = pytest.importorskip("zstandard")

COMPRESS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


def _write(path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def _documents(count: int, seed: int) -> bytes:
    rng = random.Random(seed)
    lines = ["word " * rng.randrange(1, 8) for _ in range(count)]
    return "".join(
        f"{line}\n" + rng.choice(["", "", "\n", " \t\n", "\r\n"]) for line in lines
    ).encode()


def _data(blocks) -> bytes:
    return b"".join(block.data for block in blocks)


@pytest.mark.parametrize("read_bytes", [1, 100, 10**6])
def test_blocks_are_whole_documents(tmp_path, monkeypatch, read_bytes):
    monkeypatch.setattr(sources, "READ_BYTES", read_bytes)
    data = _documents(400, seed=1)
    file = _write(tmp_path / "a.txt", data)
    blocks = list(read_blocks([file], 500))
    assert _data(blocks) == data
    assert len(blocks) > 5
    for block in blocks[:-1]:
        # The last line is blank, and the next block does not go on in the document.
        assert block.data.endswith(b"\n")
        assert not block.data.split(b"\n")[-2].strip()
    # At the first end of a document from 500 bytes on: documents here are far below 500 bytes.
    assert all(500 <= len(block.data) < 1000 for block in blocks[:-1])
    assert 0 < len(blocks[-1].data) < 1000
    assert {(block.kind, block.name) for block in blocks} == {("text", file)}


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compression_is_recognised_by_content(tmp_path, suffix):
    data = _documents(3000, seed=2)
    compress = COMPRESS[suffix]
    plain = list(read_blocks([_write(tmp_path / "a.txt", data)], 5000))
    for name, parts in {
        "one": [data],
        "without": [data],
        "members": [data[:7], data[7:5000], b"", data[5000:]],
    }.items():
        file = tmp_path / (name if name == "without" else f"{name}.txt.{suffix}")
        compressed = b"".join(compress(part) for part in parts)
        blocks = list(read_blocks([_write(file, compressed)], 5000))
        assert [block.data for block in blocks] == [block.data for block in plain]
    # Bytes of every member in every place between two reads.
    monkey = pytest.MonkeyPatch()
    for size in (1, 2, 3, 17):
        monkey.setattr(sources, "_COMPRESSED_BYTES", max(size, 10))
        padded = b"".join(compress(part) + b"\0" * 8 for part in (data[:300], data[300:]))
        assert _data(read_blocks([_write(tmp_path / "b", padded)], 5000)) == data
    monkey.undo()


@pytest.mark.parametrize("suffix", COMPRESS)
def test_damaged_files_are_os_errors_that_name_them(tmp_path, suffix):
    good = COMPRESS[suffix](_documents(3000, seed=3))
    for damaged in (good[:-1], good[: len(good) // 2], good + good[:20], good[:12]):
        file = _write(tmp_path / f"cut.{suffix}", damaged)
        with pytest.raises(OSError, match=f"cut.{suffix} is cut short"):
            list(read_blocks([file], 10**6))
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 255
    for damaged in (bytes(flipped), good + b"garbage after the last member"):
        file = _write(tmp_path / f"bad.{suffix}", damaged)
        # A zstd frame of this compressor has no checksum; its structure suffers.
        with pytest.raises(OSError, match=f"bad.{suffix} is (damaged|cut short)"):
            list(read_blocks([file], 10**6))


def test_skippable_frames_of_parallel_zstd(tmp_path):
    frame = b"\x50\x2a\x4d\x18\x04\x00\x00\x00size"
    data = COMPRESS["zst"](b"one\n")
    file = _write(tmp_path / "a.zst", frame + data + frame + data)
    assert _data(read_blocks([file], 100)) == b"one\none\n"


def test_zstd_without_the_library_is_one_line(tmp_path, monkeypatch):
    file = _write(tmp_path / "a.txt.zst", COMPRESS["zst"](b"one\n"))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(OSError, match=r"a.txt.zst.*pip install 'bert-tf\[zst\]'"):
        list(read_blocks([file], 100))


def test_text_that_begins_like_bzip2(tmp_path):
    data = b"BZh9 is a name\n"
    assert _data(read_blocks([_write(tmp_path / "a", data)], 100)) == data


def test_files_of_a_group(tmp_path):
    mark = b"\xef\xbb\xbf"
    files = [
        _write(tmp_path / "a.txt", mark + b"one\n" + mark + b"two"),
        _write(tmp_path / "b.txt", b""),
        _write(tmp_path / "c.txt", gzip.compress(mark + b"three")),
        _write(tmp_path / "d.jsonl", mark + b'{"text": "four"}'),
        _write(tmp_path / "e.json.gz", gzip.compress(b'{"text": "five"}\n')),
        _write(tmp_path / "f.txt", b"six"),
        _write(tmp_path / "json", b"seven"),
    ]
    # The mark of a file's start is dropped; the end of a file ends a document or a line.
    assert list(read_blocks(files, 100)) == [
        Block("text", b"one\n" + mark + b"two\n\n\n\nthree", f"{files[0]} to {files[2]}"),
        Block("json", b'{"text": "four"}\n{"text": "five"}\n', f"{files[3]} to {files[4]}"),
        Block("text", b"six\n\nseven", f"{files[5]} to {files[6]}"),
    ]
    assert list(read_blocks(files[1:2], 100)) == []


def test_json_lines_end_blocks(tmp_path):
    lines = [json.dumps({"text": "word " * (number % 30)}) + "\n" for number in range(200)]
    file = _write(tmp_path / "A.JSONL", "".join(lines).encode())
    blocks = list(read_blocks([file], 300))
    assert _data(blocks) == "".join(lines).encode()
    assert {block.kind for block in blocks} == {"json"}
    assert all(block.data.endswith(b"\n") for block in blocks)
    assert all(300 <= len(block.data) < 300 + 180 for block in blocks[:-1])


@pytest.mark.parametrize("blank", ["\u3000", "\u00a0\u2003 ", "\x85", "\u2028\t", "\x1c\x1d"])
def test_lines_of_any_white_space_are_blank(tmp_path, blank):
    data = f"one\n{blank}\ntwo\n{blank}\nthree".encode()
    blocks = list(read_blocks([_write(tmp_path / "a", data)], 3))
    assert [block.data.decode() for block in blocks] == [
        f"one\n{blank}\n",
        f"two\n{blank}\n",
        "three",
    ]


@pytest.mark.parametrize("line", ["\u00ab\u00e0", "\u1000", "\x00", "\u200b", "\u00e2"])
def test_lines_of_other_characters_are_not(tmp_path, line):
    data = f"one\n{line}\ntwo\n{line}\nthree".encode()
    assert len(list(read_blocks([_write(tmp_path / "a", data)], 3))) == 1


@pytest.mark.parametrize("part", [b"x" * 80, b"x\n", b" ", "\u3000".encode(), b"\x00"])
def test_a_long_document_takes_linear_time(tmp_path, part):
    sizes = (2 * 10**6, 16 * 10**6)
    took = []
    for size in sizes:
        file = _write(tmp_path / "a", part * (size // len(part)))
        start = time.process_time()
        blocks = list(read_blocks([file], 10**5))
        took.append(time.process_time() - start)
        assert len(blocks) == 1
        assert blocks[0].data == part * (size // len(part))
    # Eight times the text; were it quadratic, 64 times the time.
    assert took[1] < 30 * took[0] + 0.2


def test_unreadable_files(tmp_path):
    with pytest.raises(OSError, match="cannot read .*missing"):
        list(read_blocks([str(tmp_path / "missing")], 100))
    with pytest.raises(OSError, match="cannot read .*missing"):
        group_files([str(tmp_path / "missing")], 100)
    with pytest.raises(OSError, match="cannot read"):
        list(read_blocks([str(tmp_path)], 100))
    for encoding in ("utf-16-le", "utf-16-be", "utf-32-le"):
        file = _write(tmp_path / "wide.txt", "\ufeffone".encode(encoding))
        with pytest.raises(ValueError, match="wide.txt is UTF-16: save it as UTF-8"):
            list(read_blocks([file], 100))


def test_groups(tmp_path):
    sizes = [10, 20, 80, 5, 100, 300, 40, 40, 40, 5]
    files = [_write(tmp_path / f"{number}", b"x" * size) for number, size in enumerate(sizes)]
    groups = group_files(files, 100)
    found = [[sizes[files.index(file)] for file in group] for group in groups]
    assert found == [[10, 20, 80], [5], [100], [300], [40, 40, 40], [5]]
    assert list(itertools.chain(*groups)) == files
    assert group_files([], 100) == []


class Articles(tfds.core.GeneratorBasedBuilder):
    """A data set like TFDS's wikipedia."""

    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name="en"), tfds.core.BuilderConfig(name="bare")]

    def _info(self):
        features = {"title": tfds.features.Text(), "text": tfds.features.Text()}
        if self.builder_config.name == "bare":
            features["text"] = tfds.features.Scalar(np.int64)
        return self.dataset_info_from_configs(features=tfds.features.FeaturesDict(features))

    def _split_generators(self, manager):
        return {"train": self._generate_examples(), "test": self._generate_examples()}

    def _generate_examples(self):
        for number in range(20):
            yield number, {"title": "t", "text": ARTICLES[number]}


ARTICLES = [f"Article {number}.\n\nIt's “{'é' * number}”.\n" for number in range(20)]


def test_tfds(tmp_path):
    blocks = list(tfds_blocks("articles/en", 200, str(tmp_path)))
    assert len(blocks) > 3
    assert {(block.kind, block.name) for block in blocks} == {("json", "TFDS articles/en")}
    found = [json.loads(line)["text"] for line in _data(blocks).splitlines()]
    assert sorted(found) == sorted(ARTICLES)
    assert list(tfds_blocks("articles/en", 200, str(tmp_path))) == blocks
    part = list(tfds_blocks("articles/en:test[:25%]", 10**6, str(tmp_path)))
    assert len(_data(part).splitlines()) == 5


def test_tfds_that_is_not_there(tmp_path):
    for name, message in {
        "nothing_of_the_kind": "no TFDS data set 'nothing_of_the_kind'",
        "articles/xx": "no TFDS data set 'articles/xx'",
        "articles/bare": "the TFDS data set articles/bare has no feature 'text' that is a string",
        "articles/en:dev": "TFDS articles/en, split 'dev'",
    }.items():
        with pytest.raises(ValueError, match=message) as caught:
            list(tfds_blocks(name, 100, str(tmp_path)))
        assert "\n" not in str(caught.value)

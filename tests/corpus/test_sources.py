"""Tests reading blocks. Oracles: the bytes of the files themselves, and results worked by hand."""

import codecs
import gzip
import itertools
import json
import random
import re
import sys
import time

import pytest

from bert_tf.base import content
from bert_tf.corpus.lines import read_documents
from bert_tf.corpus.sources import Block, estimate_bytes, group_files, read_blocks


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
    monkeypatch.setattr(content, "READ_BYTES", read_bytes)
    data = _documents(400, seed=1)
    file = _write(tmp_path / "a.txt", data)
    blocks = list(read_blocks([file], 500))
    assert _data(blocks) == data
    assert len(blocks) > 5
    for block in blocks[:-1]:
        # The last line is blank: the next block begins with a new document.
        assert block.data.endswith(b"\n")
        assert not block.data.split(b"\n")[-2].strip()
    # Cut at the first end of a document after 500 bytes; the documents are far below 500 bytes.
    assert all(500 <= len(block.data) < 1000 for block in blocks[:-1])
    assert 0 < len(blocks[-1].data) < 1000
    assert {(block.kind, block.files) for block in blocks} == {("text", ((file, 0),))}


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
    # The mark at a file's start is removed. The end of a file ends a document or a line.
    blocks = list(read_blocks(files, 100))
    one = b"one\n" + mark + b"two\n\n"
    assert blocks == [
        Block("text", one + b"\n\nthree", ((files[0], 0), (files[1], 12), (files[2], 14))),
        Block("json", b'{"text": "four"}\n{"text": "five"}\n', ((files[3], 0), (files[4], 17))),
        Block("text", b"six\n\nseven", ((files[5], 0), (files[6], 5))),
    ]
    texts = [(files[0], one.decode()), (files[1], "\n\n"), (files[2], "three")]
    assert list(blocks[0].texts({})) == texts
    assert list(read_blocks(files[1:2], 100)) == []


@pytest.mark.parametrize("read_bytes", [1, 10**6])
@pytest.mark.parametrize("separator", ["blank_line", "file", "^# ", "^-+$"])
def test_blocks_keep_documents_and_files_together(tmp_path, monkeypatch, read_bytes, separator):
    """Oracle: the documents of every file, read as a whole."""
    monkeypatch.setattr(content, "READ_BYTES", read_bytes)
    rng = random.Random(1)
    texts = [
        "",
        *("\n".join(rng.choices(["a b", "", "# c", "--", "-- d"], k=n)) for n in range(40)),
    ]
    files = [_write(tmp_path / f"{n:02}", text.encode()) for n, text in enumerate(texts)]
    whole = [
        (file, document)
        for file, text in zip(files, texts, strict=True)
        for document in read_documents(text, "text", file, separator=separator)
    ]
    blocks = list(read_blocks(files, 100, separator))
    found = [
        (file, document)
        for block in blocks
        for file, data in block.texts({})
        for document in read_documents(data, "text", file, separator=separator)
    ]
    assert found == whole
    assert len(blocks) > 10


def test_json_lines_end_blocks(tmp_path):
    lines = [json.dumps({"text": "word " * (number % 30)}) + "\n" for number in range(200)]
    file = _write(tmp_path / "A.JSONL", "".join(lines).encode())
    blocks = list(read_blocks([file], 300))
    assert _data(blocks) == "".join(lines).encode()
    assert {block.kind for block in blocks} == {"json"}
    assert all(block.data.endswith(b"\n") for block in blocks)
    assert all(300 <= len(block.data) < 300 + 180 for block in blocks[:-1])


@pytest.mark.parametrize("blank", ["\u3000", "\u00a0\u2003 ", "\x85", "\u2028\t", "\x1c\x1d"])
@pytest.mark.parametrize("other", ["\u00ab\u00e0", "\u1000", "\x00", "\u200b", "\u00e2"])
def test_only_lines_of_white_space_are_blank(tmp_path, blank, other):
    parts = [f"one\n{blank}\n", f"two\n{other}\n{blank}\n", f"three\n{other}"]
    blocks = read_blocks([_write(tmp_path / "a", "".join(parts).encode())], 3)
    assert [block.data.decode() for block in blocks] == parts


@pytest.mark.parametrize("part", [b"x\n", "\u3000".encode(), b"\x00"])
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
    # Eight times the text: a quadratic search would take 64 times as long.
    assert took[1] < 30 * took[0] + 0.2


def test_unreadable_files(tmp_path):
    with pytest.raises(OSError, match="cannot read .*missing"):
        list(read_blocks([str(tmp_path / "missing")], 100))
    with pytest.raises(OSError, match="cannot read .*missing"):
        group_files([str(tmp_path / "missing")], 100)
    with pytest.raises(OSError, match="cannot read"):
        list(read_blocks([str(tmp_path)], 100))


_TEXTS = [
    "The cat sat.\nIt ran.\n",
    "Кошка сидела.\n\nОна ушла.\n",
    "我们今天学习。上海很大。\n第二行。\n",
    "اللغة العربية جميلة\nنعم\n",
    "ok 👍🏽 fine\n",
    "hi\n",
]


@pytest.mark.parametrize("text", _TEXTS)
def test_wide_encodings_are_named(tmp_path, text):
    """Oracle: the codec of Python that iconv has under the same name."""
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"):
        for times in (1, 500):
            file = _write(tmp_path / "wide.txt", (text * times).encode(encoding))
            with pytest.raises(ValueError, match="wide.txt is UTF-.*iconv") as error:
                list(read_blocks([file], 100))
            name = str(error.value).split("-f ")[1].split()[0]
            assert codecs.lookup(name).name == encoding
            assert (tmp_path / "wide.txt").read_bytes().decode(name) == text * times


def test_stray_nuls_are_no_wide_encoding(tmp_path):
    """Oracle: the bytes, which stay as they are."""
    french = ("Où êtes-vous allé cet été, Zoë?\n" * 90).encode("latin-1")
    for data in (french, b"a\0b", *((text * 90).encode() for text in _TEXTS)):
        for position in (0, 7, 8, len(data)):
            data = data[:position] + b"\0" + data[position:]
            file = _write(tmp_path / "narrow.txt", data)
            assert b"".join(block.data for block in read_blocks([file], 2**30)) == data


def test_groups(tmp_path):
    sizes = [10, 20, 80, 5, 100, 300, 40, 40, 40, 5]
    files = [_write(tmp_path / f"{number}", b"x" * size) for number, size in enumerate(sizes)]
    groups = group_files(files, 100)
    found = [[sizes[files.index(file)] for file in group] for group in groups]
    assert found == [[10, 20, 80], [5], [100], [300], [40, 40, 40], [5]]
    assert list(itertools.chain(*groups)) == files
    assert group_files([], 100) == []


def test_parquet_files_give_the_blocks_of_json_lines(tmp_path, monkeypatch):
    """Oracles: the same texts as JSON lines, which hard-wrapped ones become, and as plain text.

    A byte that is not UTF-8 is counted, as there.
    """
    pyarrow, parquet = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet"))
    texts = [f"größer {n}\n\n{'a cat ' * (n % 7)}".encode() for n in range(3000)]
    texts[9] += b"\xff"
    columns = {"id": [*range(3000)], "body": texts}
    path = str(tmp_path / "a.parquet")
    parquet.write_table(pyarrow.table(columns), path, row_group_size=700)
    lines = [b'{"body": "%s"}\n' % text.replace(b"\n", b"\\n") for text in texts]
    other = _write(tmp_path / "a.jsonl", b"".join(lines))
    for size in (100, 5000, 10**6):
        blocks = [*read_blocks([path], size, field="body", is_wrapped=True)]
        assert [(x.kind, x.data) for x in blocks] == [
            (x.kind, x.data) for x in read_blocks([other], size)
        ]
        assert {x.files for x in blocks} == {((path, 0),)}
        documents = b"".join(re.sub(b"\n+", b"\n", x).strip(b"\n") + b"\n\n" for x in texts)
        plain = _write(tmp_path / "a.txt", documents)
        assert [x.data.strip() for x in read_blocks([path], size, field="body")] == [
            x.data.strip() for x in read_blocks([plain], size)
        ]
    (block,) = blocks
    assert len([*block.texts(invalid := {})]) == 1 and invalid == {path: 1}
    assert estimate_bytes([path, other], "body") == pytest.approx(2 * len(block.data), rel=0.3)
    with pytest.raises(ValueError, match="a.parquet has no column 'text', only 'id', 'body'$"):
        next(read_blocks([path], 100))
    with pytest.raises(ValueError, match="a.parquet, row 1: 'id' holds no text"):
        next(read_blocks([path], 100, field="id"))
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=r"need pyarrow: pip install pyarrow$"):
        next(read_blocks([path], 100))

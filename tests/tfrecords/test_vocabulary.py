"""Oracles: worked examples, and the published vocabularies read byte by byte."""

import hashlib

import pytest

from tfrecords.vocabulary import Vocabulary, load_vocab

SPECIAL = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"


def write(folder, data: bytes) -> str:
    path = folder / "vocab.txt"
    path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize(
    "name, size, specials",
    [
        ("uncased", 30522, [0, 100, 101, 102, 103]),
        ("cased", 28996, [0, 100, 101, 102, 103]),
        ("chinese", 21128, [0, 100, 101, 102, 103]),
        ("multilingual-cased", 119547, [0, 100, 101, 102, 103]),
    ],
)
def test_published_vocabularies(shared_data, name, size, specials):
    path = shared_data / "vocab" / f"bert-base-{name}" / "vocab.txt"
    vocab = load_vocab(str(path))
    assert len(vocab) == size
    assert "\n".join(vocab.tokens).encode() + b"\n" == path.read_bytes()
    assert [vocab.pad_id, vocab.unk_id, vocab.cls_id, vocab.sep_id, vocab.mask_id] == specials


@pytest.mark.parametrize(
    "data",
    [
        SPECIAL + b"a\n##b\n",
        SPECIAL + b"a\n##b",
        (SPECIAL + b"a\n##b\n\n\n").replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + SPECIAL + b"a\n##b\n",
        SPECIAL + b"a \n\t##b\n",
    ],
    ids=["plain", "no last line end", "CRLF and blank lines", "byte order mark", "padding"],
)
def test_line_ends(tmp_path, data):
    vocab = load_vocab(write(tmp_path, data))
    assert vocab.tokens == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b")
    assert vocab.ids["##b"] == 6
    assert vocab.mask_id == 4
    assert vocab.sha256 == hashlib.sha256(SPECIAL + b"a\n##b").hexdigest()


def test_line_separators_are_tokens(tmp_path):
    tokens = ["\u2028", "\u0085", "\x0b", "\x1c", "\u00a0"]
    vocab = load_vocab(write(tmp_path, SPECIAL + "\n".join(tokens).encode()))
    assert vocab.tokens[5:] == tuple(tokens)


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "has no tokens"),
        (b"\n\n", "has no tokens"),
        (b"[PAD]\n[UNK]\n[SEP]\n", r"lacks \[CLS\] \[MASK\]: add each"),
        (SPECIAL + b"a\nb\na\n", "token 'a' is on lines 6 and 8: keep one"),
        (SPECIAL + b"\na\n", "line 6 is empty: remove it"),
        (SPECIAL + b"a\n\xff\n", r"vocab.txt, line 7: not UTF-8 text"),
    ],
)
def test_bad_vocabularies_are_named(tmp_path, data, message):
    with pytest.raises(ValueError, match=message) as error:
        load_vocab(write(tmp_path, data))
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_file(tmp_path):
    with pytest.raises(OSError, match="cannot read the vocabulary .*nothing.txt"):
        load_vocab(str(tmp_path / "nothing.txt"))
    with pytest.raises(OSError, match="cannot read the vocabulary"):
        load_vocab(str(tmp_path))


def test_a_vocabulary_built_in_memory_is_checked():
    with pytest.raises(ValueError, match=r"lacks \[PAD\]"):
        Vocabulary(("[UNK]",))

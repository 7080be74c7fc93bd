"""Oracles: worked examples, and the published vocabularies read byte by byte."""

import hashlib

import pytest
from support import one_line

from tfrecords import vocabulary
from tfrecords.vocabulary import SPECIAL_TOKENS, AddedToken, Vocabulary, is_cased, load_vocab

SPECIAL = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"


def write(folder, data: bytes) -> str:
    path = folder / "vocab.txt"
    path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize(
    ("name", "size", "cased"),
    [
        ("uncased", 30522, False),
        ("cased", 28996, True),
        ("chinese", 21128, False),
        ("multilingual-cased", 119547, True),
    ],
)
def test_published_vocabularies(shared_data, name, size, cased):
    """Oracles: the file, byte by byte; the casing that google-research/bert gives for each."""
    path = shared_data / "vocab" / f"bert-base-{name}" / "vocab.txt"
    vocab = load_vocab(str(path))
    assert len(vocab) == size
    assert "\n".join(vocab.tokens).encode() + b"\n" == path.read_bytes()
    found = [vocab.pad_id, vocab.unk_id, vocab.cls_id, vocab.sep_id, vocab.mask_id]
    assert found == [0, 100, 101, 102, 103]
    assert is_cased(vocab) == cased
    assert _warnings(vocab, not cased) == []
    assert _warnings(vocab, cased)[0].startswith("WARNING: v.txt is ")


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
        (b"[PAD]\n[UNK]\n[SEP]\n", r"lacks \[CLS\] \[MASK\]: .* over tokens that no"),
        (SPECIAL + b"a\n\xff\n", r"vocab.txt, line 7: not UTF-8 text"),
        (b'{"[PAD]": 0,\n"[UNK]": 1}', "vocab.txt is JSON, not one token per line: .* tokenizer.j"),
        (b'["[PAD]", "[UNK]", "a"]', "vocab.txt is JSON, not one token per line"),
        (b"[PAD]\t0\na\t1\n", r"is not one token per line: .*'\[PAD\]\\t0' have several columns"),
        (b"0 [PAD]\n1 a\n\n", "is not one token per line"),
        (b"<html>", "vocab.txt is not text but a web page"),
    ],
)
def test_bad_vocabularies_are_named(tmp_path, data, message):
    """Oracle: the file, and what it lacks."""
    with one_line(f"{tmp_path}.*{message}"):
        load_vocab(write(tmp_path, data))
    for path, problem in ((tmp_path / "nothing.txt", "no such file"), (tmp_path, "is a directory")):
        with one_line(f"{path}:? {problem}"):
            load_vocab(str(path))


def test_blank_and_repeated_lines_keep_all_ids(tmp_path):
    """Oracle: Hugging Face's tokenizers, which read the lines into a dict."""
    vocab = load_vocab(write(tmp_path, SPECIAL + b"a\n\nb\na\n\nc\n"))
    assert vocab.tokens[5:] == ("a", "", "b", "a", "", "c")
    assert [vocab.ids[token] for token in "abc"] == [8, 7, 10]
    assert load_vocab(write(tmp_path, vocab.text.encode())) == vocab


def test_added_tokens_have_ids_after_the_lines():
    """Oracle: worked out by hand; a checksum that differs from that of the same tokens as lines."""
    tokens = (AddedToken(5, "a", single_word=True), AddedToken(7, "New York"))
    vocab = Vocabulary((*SPECIAL_TOKENS, "a", "b"), tokens, strip_accents=True)
    assert vocab.tokens == (*SPECIAL_TOKENS, "a", "b", "New York")
    assert (len(vocab), vocab.ids["New York"], vocab.text) == (8, 7, SPECIAL.decode() + "a\nb\n")
    assert Vocabulary.from_values(vocab.lines, vocab.tokenizer_values()) == vocab
    assert vocab.sha256 != Vocabulary(vocab.tokens).sha256
    for flags in ({}, {"normalized": False, "rstrip": True}):
        with pytest.raises(ValueError, match="added token ' ' begins or ends with a space"):
            Vocabulary(SPECIAL_TOKENS, (AddedToken(5, " ", **flags),))
    with pytest.raises(ValueError, match="content of an added token is 3"):
        Vocabulary.from_values(vocab.lines, {"added_tokens_decoder": {"5": {"content": 3}}})
    with pytest.raises(ValueError, match="damaged"):
        Vocabulary.from_values(vocab.lines, {"added_tokens_decoder": {"5": {"text": "a"}}})


def _warnings(vocab: Vocabulary | None, lower_case: bool | None) -> list[str]:
    said: list[str] = []
    vocabulary.warn_about_casing(vocab, lower_case, "v.txt", said.append)
    return said


def test_the_warnings_count_by_hand():
    """Oracle: é, Ä and B never occur in lower-cased text without accents; nine small letters."""
    cased = Vocabulary((*SPECIAL_TOKENS, "é", "##Ä", "B", "c", "[E1]", "<S>", "我"))
    uncased = Vocabulary((*SPECIAL_TOKENS, *"abcdefghi", "[E1]", "<S>", "我"))
    (warning,) = _warnings(cased, True)
    assert "v.txt is cased" in warning
    assert "3 of 12 tokens, such as ##Ä, B, can never occur. Use --nodo_lower_case" in warning
    (warning,) = _warnings(uncased, False)
    assert "of 17 tokens, 9 have small letters and 0 have capitals" in warning
    assert "Use --do_lower_case" in warning
    # Thai, Chinese and ordinary Georgian text have no capitals. An unknown vocabulary or casing
    # contradicts nothing.
    either = Vocabulary((*SPECIAL_TOKENS, "ไ", "我", "ქართული", "##ა"))
    for vocab, lower_case in (
        *((cased, False), (uncased, True), (either, True), (either, False)),
        *((None, True), (cased, None)),
    ):
        assert _warnings(vocab, lower_case) == []

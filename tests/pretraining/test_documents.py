"""Oracle: the documents written down by hand."""

import numpy as np
import pytest

from bert_tf.pretraining import documents
from bert_tf.pretraining.documents import (
    TextCounts,
    chunk_documents,
    read_lines,
    tokenized_documents,
)
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.text.vocab import Vocabulary

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCAB = Vocabulary((*SPECIAL, "one", "two", "three", "##s", "é"))


@pytest.fixture(scope="module")
def tokenizer() -> WordPieceTokenizer:
    return WordPieceTokenizer(VOCAB, lower_case=False)


def _tokens(pieces, lengths) -> list[list[str]]:
    sentences = np.split(pieces, np.cumsum(lengths)[:-1])
    return [[VOCAB.tokens[index] for index in sentence] for sentence in sentences]


def _read(files, tokenizer) -> tuple[list[list[list[str]]], TextCounts]:
    counts = TextCounts()
    found = tokenized_documents(
        read_lines([str(file) for file in files], counts), tokenizer, counts
    )
    return [_tokens(*document) for document in found], counts


EXPECTED = [[["one", "##s", "two"], ["three"]], [["two"], ["é", "one"]], [["one"]]]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("read_bytes", [1, 7, 1000])
@pytest.mark.parametrize("tokenize_characters", [1, 1000])
def test_lines_and_documents(
    tmp_path, tokenizer, monkeypatch, end, mark, read_bytes, tokenize_characters
):
    monkeypatch.setattr(documents, "READ_BYTES", read_bytes)
    monkeypatch.setattr(documents, "TOKENIZE_CHARACTERS", tokenize_characters)
    lines = ["", "ones two", " three ", "\u3000", "", "two", "\u200b", "é one", "", "", "\x00", ""]
    (tmp_path / "a").write_bytes(mark + end.join(line.encode() for line in lines))
    (tmp_path / "b").write_bytes(b"one")  # a file ends a document; no line end at the end
    found, counts = _read([tmp_path / "a", tmp_path / "b"], tokenizer)
    assert found == EXPECTED
    assert (counts.documents, counts.sentences, counts.tokens) == (3, 5, 8)
    assert (counts.empty_documents, counts.empty_sentences) == (1, 2)
    assert (counts.unknown_tokens, counts.invalid_lines) == (0, 0)


def test_invalid_utf8_is_dropped_and_counted(tmp_path, tokenizer):
    (tmp_path / "a").write_bytes(b"one\xff two\nt\xc3wo\n\xed\xa0\x80three unknown\n")
    found, counts = _read([tmp_path / "a"], tokenizer)
    assert found == [[["one", "two"], ["two"], ["three", "[UNK]"]]]
    assert (counts.invalid_lines, counts.unknown_tokens) == (3, 1)


def test_an_unreadable_file_is_an_os_error(tmp_path):
    with pytest.raises(OSError, match="cannot read .*missing"):
        list(read_lines([str(tmp_path / "missing")], TextCounts()))


def _documents(*sizes: int):
    """One document of one-piece sentences for each size; its pieces are its number."""
    for number, size in enumerate(sizes):
        yield np.full(size, number, np.int32), np.ones(size, np.int64)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((3, 3, 3, 3), [[0, 1], [2, 3]]),
        ((9, 1, 9, 1), [[0, 1], [2, 3]]),  # never one document alone, however long
        ((3, 3, 4), [[0, 1, 2]]),  # one document left over joins the last chunk
        ((3, 3, 1, 1), [[0, 1, 2, 3]]),  # so does less than half a chunk
        ((3, 3, 1, 2), [[0, 1], [2, 3]]),
        ((20,), [[0]]),
        ((1, 1), [[0, 1]]),
    ],
)
def test_chunks_are_whole_documents(sizes, expected):
    chunks = list(chunk_documents(_documents(*sizes), 6, VOCAB))
    assert [list(dict.fromkeys(chunk.pieces.tolist())) for chunk in chunks] == expected
    for chunk, numbers in zip(chunks, expected, strict=True):
        lengths = [sizes[number] for number in numbers]
        assert chunk.num_documents == len(numbers)
        assert chunk.document_starts.tolist() == [0, *np.cumsum(lengths)]
        assert chunk.sentence_starts.tolist() == list(range(sum(lengths) + 1))
        assert chunk.unit_starts.all()

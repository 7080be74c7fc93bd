"""Tests tokenizing a block of text, segmenters and lexicons. Oracles: documents, units by hand."""

import dataclasses
import itertools
import json
import sys
import types

import numpy as np
import pytest
from support import one_line

from bert_tf.corpus.sources import Block, read_blocks
from bert_tf.examples import documents
from bert_tf.examples.chunk import CreationStatistics, ExampleCounts, TextCounts
from bert_tf.examples.documents import Lexicon, load_segmenter, make_chunk, tokenize_words
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

VOCAB = Vocabulary((*SPECIAL_TOKENS, "one", "two", "three", "##s", "é", ".", *"语言模型"))
PIECES = ("un", "##aff", "##able", "e", "-", "!", "a", "b", "c", "##a", "##b")
WORDS = Vocabulary((*SPECIAL_TOKENS, *"使用语言模型来预测中国人", *PIECES))


@pytest.fixture(scope="module")
def read(settings):
    """Returns the documents as lists of tokenized sentences, the chunk and the counts."""
    tokenizer = WordPieceTokenizer(VOCAB, lower_case=False)

    def read(data: bytes | str, kind: str = "text", lexicon: tuple[str, ...] = (), **flags):
        data = data.encode() if isinstance(data, str) else data
        block = Block(kind, data, (("a file", 0),))
        chunk, counts = make_chunk(block, tokenizer, settings(**flags), lexicon)
        tokens = [VOCAB.tokens[index] for index in chunk.token_ids]
        sentences = [" ".join(part) for part in _parts(tokens, chunk.sentence_starts)]
        found = _parts(sentences, chunk.document_starts)
        assert counts.bytes == len(data)
        assert counts.tokens == len(tokens) == len(chunk.unit_starts)
        assert counts.sentences == len(sentences)
        assert counts.documents == len(found) == chunk.num_documents
        dtypes = [array.dtype for array in vars(chunk).values()]
        assert dtypes == [np.int32, bool, np.int64, np.int64]
        return found, chunk, counts

    return read


def _parts(values: list, borders: np.ndarray) -> list[list]:
    return [values[start:end] for start, end in itertools.pairwise(borders)]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("tokenize_bytes", [1, 10, 1000])
def test_lines_and_documents(read, monkeypatch, end, tokenize_bytes):
    monkeypatch.setattr(documents, "TOKENIZE_BYTES", tokenize_bytes)
    lines = ["", "ones two", " three ", "\u3000", "", "two", "\u200b", "é one", "", "", "\x00", ""]
    found, chunk, counts = read(end.join([*lines, "one"]))
    assert found == [["one ##s two", "three"], ["two", "é one"], ["one"]]
    assert chunk.unit_starts.tolist() == [True, False, True, True, True, True, True, True]
    assert counts.lines == 7
    assert (counts.empty_documents, counts.empty_sentences) == (1, 2)
    assert (counts.unknown_tokens, counts.invalid_lines) == (0, {})


def test_invalid_utf8_is_dropped_and_counted(read):
    data = "one\ufffd\n".encode() + b"one\xff two\nt\xc3wo\n\xed\xa0\x80three unknown\n"
    found, _, counts = read(data)
    assert found == [["one", "one two", "two", "three [UNK]"]]
    assert (counts.invalid_lines, counts.unknown_tokens) == ({"a file": 3}, 1)


@pytest.mark.parametrize("data", [b"", b"\n\n \r\n", b"\x00\n\n\xe2\x80\x8b\n", b"\xff"])
def test_text_without_tokens(read, data):
    found, chunk, counts = read(data)
    assert found == []
    assert chunk.sentence_starts.tolist() == chunk.document_starts.tolist() == [0]
    assert counts.empty_documents == counts.empty_sentences == counts.lines


def test_json_lines(read):
    texts = ["one\ntwo\r\n\n \nthree\n", "", "one\u2028two", "\x00", "\ud800one\ud83d", " \n "]
    data = "\n".join(json.dumps({"id": 1, "body": text}) for text in texts) + "\n\n"
    found, _, counts = read(data, "json", text_field="body")
    assert found == [["one", "two", "three"], ["one two"], ["one"]]
    assert (counts.lines, counts.empty_documents) == (6, 3)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[" * 10**5,
        '["text"]',
        "3",
        '"text"',
        '{"body": "\xe9"}',
        '{"text": 3}',
        '{"text":null}',
    ],
)
def test_json_lines_without_text_are_errors(tmp_path, settings, line):
    """Oracle: the file, the line of it, the field and the flag in one short line."""
    path, tokenizer = tmp_path / "a.jsonl", WordPieceTokenizer(VOCAB, lower_case=False)
    path.write_text('{"text": "one"}\n\n' * 3 + f" {line}\n" * 2)
    with one_line(f"^{path}, line 7: .* field 'text': .*--text_field.{{,150}}$"):
        for block in read_blocks([str(path)], 1):
            make_chunk(block, tokenizer, settings())


@pytest.mark.parametrize("kind", ["text", "json"])
def test_paragraphs_are_split(read, kind):
    text = "one. two three. one?\ntwo. one\n"
    data = text if kind == "text" else json.dumps({"text": text})
    found, _, counts = read(data, kind, split_sentences=True, clean=False)
    assert found == [["one .", "two three .", "one [UNK]", "two .", "one"]]
    assert counts.lines == 2


def test_cleaning_is_counted(read):
    data = "One\none.\none two three one two three.\ntwo\none two | one two three.\n\nTwo\none\n"
    settings = {"split_sentences": True, "clean": True}
    found, _, counts = read(data, **settings)
    assert found == [["one two three one two three ."]]
    assert counts.left_out == {"title": 2, "heading": 1, "fragment": 2, "markup": 1}
    assert (counts.lines, counts.sentences, counts.empty_documents) == (7, 1, 1)
    assert read(data)[2].left_out == {}
    # Without splitting, a short sentence is not mistaken for a heading.
    assert read(data, clean=True)[0][0][0] == "one ."


@pytest.mark.parametrize("tokenize_bytes", [1, 1000])
def test_units_of_a_segmenter_and_a_lexicon(read, monkeypatch, tokenize_bytes):
    monkeypatch.setattr(documents, "TOKENIZE_BYTES", tokenize_bytes)
    data = "语言 模型 ones. one\n语言模型"
    words = {"masking": "whole_word"}
    token_ids = ["语", "言", "模", "型", "one", "##s", ".", "one", "语", "言", "模", "型"]
    for settings, expected in (
        ({}, "语 言 模 型 one##s . one 语 言 模 型"),
        ({"segmenter": "whitespace"} | words, "语言 模型 one##s. one 语言模型"),
        # A phrase may span white space, because only the tokens count.
        ({"lexicon": ("语言", "ones. one")}, "语言 模 型 one##s.one 语言 模 型"),
        (
            {"segmenter": "whitespace", "lexicon": ("模型 ones.", "言模")} | words,
            "语言 模型one##s. one 语言模型",
        ),
    ):
        found, chunk, _ = read(data, **settings)
        assert " ".join(found[0]).split() == token_ids
        starts = np.flatnonzero(chunk.unit_starts)
        units = ["".join(part) for part in np.split(token_ids, starts[1:])]
        assert " ".join(units) == expected


def test_counts_add_up_and_go_to_json():
    """Oracle: sums by hand, also of counts by name."""
    first = TextCounts(lines=2, tokens=3, left_out={"title": 1, "url": 2})
    second = TextCounts(lines=10, left_out={"url": 3, "markup": 4})
    examples = ExampleCounts(cut_pairs=2)
    total = CreationStatistics(first, 3, examples) + CreationStatistics(second, 4, examples)
    text = TextCounts(lines=12, tokens=3, left_out={"title": 1, "url": 5, "markup": 4})
    assert total == CreationStatistics(text, 7, ExampleCounts(cut_pairs=4))
    values = json.loads(json.dumps(dataclasses.asdict(total)))
    assert CreationStatistics.from_dict(values) == total
    assert first.left_out == {"title": 1, "url": 2}


@pytest.fixture(scope="module")
def tokenizer() -> WordPieceTokenizer:
    return WordPieceTokenizer(WORDS)


def _units(lines: list[str], tokenizer, name: str) -> list[list[str]]:
    lines = [line.encode() for line in lines]
    token_ids, splits, starts = tokenize_words(lines, tokenizer, name)
    plain = tokenizer.tokenize_flat(lines)
    np.testing.assert_array_equal(token_ids, plain.values)
    np.testing.assert_array_equal(splits, plain.row_splits)
    found = []
    for start, end in zip(splits, splits[1:], strict=False):
        units: list[str] = []
        assert start == end or starts[start]
        for place in range(start, end):
            if starts[place]:
                units.append("")
            units[-1] += WORDS.tokens[token_ids[place]]
        found.append(units)
    return found


def test_white_space(tokenizer):
    lines = ["使用 语言\u3000模型 来 预测!", "", "un-unaffable  é\x00é", "\u200b", "语\u200b言 x"]
    assert _units(lines, tokenizer, "whitespace") == [
        ["使用", "语言", "模型", "来", "预测!"],
        [],
        ["un-un##aff##able", "[UNK]"],
        [],
        ["语言", "[UNK]"],
    ]


def test_a_function(tokenizer, monkeypatch):
    """Like jieba, this segmenter returns white space as words."""
    words = ["使用", " ", "语言模型", "来", "", "预测", "\t", "un", "aff", "a", "ble"]
    module = types.SimpleNamespace(Words=types.SimpleNamespace(cut=lambda text: words))
    monkeypatch.setitem(sys.modules, "fake_segmenter", module)
    assert load_segmenter("fake_segmenter:Words.cut")("") == words
    # A word may begin inside a word of the tokenizer, at a token's start or inside a token.
    found = _units(["".join(words)], tokenizer, "fake_segmenter:Words.cut")
    assert found == [["使用", "语言模型", "来", "预测", "un", "##aff", "##able"]]


@pytest.mark.parametrize("name", ["nothing_of_the_kind:lcut", "json:nothing", "json"])
def test_a_missing_segmenter_is_an_error(name):
    with pytest.raises(ValueError, match=f"no segmenter '{name}'.*MODULE:FUNCTION"):
        load_segmenter(name)


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (lambda text: None, "fails on 'un e': TypeError"),
        (lambda text: [" "], "finds no words in 'un e'"),
        (lambda text: text.upper().split(" "), "returns 'UN', which .*'un e'"),
    ],
)
def test_a_function_that_fails_is_named(tokenizer, monkeypatch, cut, message):
    monkeypatch.setitem(sys.modules, "bad_segmenter", types.SimpleNamespace(cut=cut))
    load_segmenter.cache_clear()
    with pytest.raises(ValueError, match=f"segmenter 'bad_segmenter:cut' {message}"):
        _units(["un e"], tokenizer, "bad_segmenter:cut")


def _joined(phrases: list[str], sentences: list[str], tokenizer) -> list[str]:
    token_ids, splits = tokenizer.tokenize_lines([sentence.encode() for sentence in sentences])
    starts = tokenizer.starts_word[token_ids]
    before = starts.copy()
    joined = Lexicon(phrases, tokenizer).join_units(token_ids, starts, splits)
    np.testing.assert_array_equal(starts, before)
    parts = np.split([WORDS.tokens[token] for token in token_ids], np.flatnonzero(joined)[1:])
    return [" ".join(part) for part in parts]


@pytest.mark.parametrize(
    "phrases, sentences, expected",
    [
        (["a b"], ["c A B c"], ["c", "a b", "c"]),
        # The longest phrase wins, then the leftmost.
        (["a b", "a b c", "c a"], ["a b c a b a"], ["a b c", "a b", "a"]),
        (["a b c", "b c"], ["a b c b b c"], ["a b c", "b", "b c"]),
        (["a a"], ["a a a a a"], ["a a", "a a", "a"]),
        # A phrase begins and ends with words.
        (["a", "ba"], ["aa ba a"], ["a ##a", "b ##a", "a"]),
        (["a b"], ["a bb a b"], ["a", "b ##b", "a b"]),
        (["ab-a"], ["ab - aa ab-a"], ["a ##b", "-", "a ##a", "a ##b - a"]),
        # A phrase may end with its sentence, but not extend into the next one.
        (["a b"], ["c a", "b a b", "a b"], ["c", "a", "b", "a b", "a b"]),
        (["中国人", "中国", "国人"], ["中国国人中国人"], ["中 国", "国 人", "中 国 人"]),
        # Neither a phrase that the vocabulary cannot spell nor an empty one is ever found.
        (["a x", "x", "", " "], ["a y", "x"], ["a", "[UNK]", "[UNK]"]),
        ([], ["a b"], ["a", "b"]),
        (["a b c"], ["a b"], ["a", "b"]),
    ],
)
def test_by_hand(tokenizer, phrases, sentences, expected):
    assert _joined(phrases, sentences, tokenizer) == expected


def test_no_text(tokenizer):
    nothing = np.zeros(0, np.int32), np.zeros(0, bool), np.array([0])
    assert Lexicon(["a b"], tokenizer).join_units(*nothing).tolist() == []

"""Tests segmenters and lexicons.

Oracles: units worked by hand, and the tokens without a segmenter.
"""

import sys
import types

import numpy as np
import pytest

from bert_tf.examples.units import Lexicon, load_segmenter, tokenize_words
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

PIECES = ("un", "##aff", "##able", "e", "-", "!", "a", "b", "c", "##a", "##b")
VOCAB = Vocabulary((*SPECIAL_TOKENS, *"使用语言模型来预测中国人", *PIECES))


@pytest.fixture(scope="module")
def tokenizer() -> WordPieceTokenizer:
    return WordPieceTokenizer(VOCAB)


def _units(lines: list[str], tokenizer, name: str) -> list[list[str]]:
    """Returns the joined tokens of each unit, line by line."""
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
            units[-1] += VOCAB.tokens[token_ids[place]]
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
    parts = np.split([VOCAB.tokens[token] for token in token_ids], np.flatnonzero(joined)[1:])
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

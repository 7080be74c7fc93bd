"""Tests segmenters. Oracles: units worked by hand, and the tokens without a segmenter."""

import sys
import types

import numpy as np
import pytest

from bert_tf.examples.units import load_segmenter, tokenize_words
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import Vocabulary

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCAB = Vocabulary((*SPECIAL, *"使用语言模型来预测", "un", "##aff", "##able", "e", "-", "!"))


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


def test_words_that_are_not_in_the_text_are_an_error(tokenizer, monkeypatch):
    module = types.SimpleNamespace(cut=lambda text: text.upper().split(" "))
    monkeypatch.setitem(sys.modules, "upper_segmenter", module)
    with pytest.raises(ValueError, match="segmenter 'upper_segmenter:cut' returns 'UN'.*'un e'"):
        _units(["un e"], tokenizer, "upper_segmenter:cut")


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (lambda text: None, "fails on 'un e': TypeError"),
        (lambda text: [1], "fails on 'un e': AttributeError"),
        (lambda text: [text, "\ud800"], "fails on 'un e': UnicodeEncodeError"),
        (lambda text: [][0], "fails on 'un e': IndexError"),
        (lambda text: [" "], "finds no words in 'un e'"),
        ("not callable", "fails on 'un e': TypeError"),
    ],
)
def test_a_function_that_fails_is_named(tokenizer, monkeypatch, cut, message):
    monkeypatch.setitem(sys.modules, "bad_segmenter", types.SimpleNamespace(cut=cut))
    load_segmenter.cache_clear()
    with pytest.raises(ValueError, match=f"segmenter 'bad_segmenter:cut' {message}"):
        _units(["un e"], tokenizer, "bad_segmenter:cut")

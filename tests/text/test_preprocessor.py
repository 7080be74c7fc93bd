"""`BertPreprocessor`, against the tokenizer and the packing."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.text.preprocessor import BertPreprocessor, pack_segments
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

# U+2028 is a token of bert-base-chinese.
VOCAB = Vocabulary((*SPECIAL_TOKENS, "\u2028", "A", "É", "中", *"abcde", "##b", "##É"))
TEXTS = ["A b", "", "ÉÉ 中abc", "a b c d e a b c"]
OTHERS = ["b", "c d e a b", "", "e d c b a"]


def assert_equal(actual: dict, expected: dict) -> None:
    assert set(actual) == set(expected)
    for name in expected:
        assert actual[name].dtype == tf.int32
        np.testing.assert_array_equal(actual[name], expected[name])


@pytest.mark.parametrize(
    ("texts", "lower_case"), [([TEXTS], False), ([TEXTS, OTHERS], True)], ids=["single", "pairs"]
)
def test_equals_tokenizer_and_packing(texts, lower_case):
    """Oracle: `WordPieceTokenizer` and `pack_segments`."""
    layer = BertPreprocessor(VOCAB.tokens, lower_case=lower_case, seq_length=9)
    tokenizer = WordPieceTokenizer(VOCAB, lower_case)
    expected = pack_segments([tokenizer.tokenize_flat(x) for x in texts], 9, VOCAB)
    assert_equal(layer(*texts), expected)
    assert_equal(layer(*map(np.array, texts)), expected)
    batches = tf.data.Dataset.from_tensors(tuple(map(tf.constant, texts))).map(layer)
    assert_equal(next(iter(batches)), expected)
    symbolic = layer(*[keras.Input([], dtype="string") for _ in texts])
    assert {name: (x.shape, x.dtype) for name, x in symbolic.items()} == {
        name: ((None, 9), "int32") for name in expected
    }
    assert_equal(BertPreprocessor.from_config(layer.get_config())(*texts), expected)


def test_wrong_calls_are_named():
    """Oracle: the messages name the shape and the length."""
    layer = BertPreprocessor(VOCAB, lower_case=False, seq_length=4)
    with pytest.raises(ValueError, match=r"takes strings \[batch\], not of shape \(\)"):
        layer("a single text")
    with pytest.raises(ValueError, match=r"takes strings \[batch\], not of shape \(1, 1\)"):
        layer([["a"]])
    with pytest.raises(ValueError, match="seq_length 4 is too small"):
        layer(["a"], ["b"])

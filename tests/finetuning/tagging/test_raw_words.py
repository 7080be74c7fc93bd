"""Words of raw text."""

import pytest
import tensorflow as tf

from bert_tf.finetuning.tagging.module import split_words
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

_CASES = {
    "the U.N. and Jean-Luc, at AT&T": "the|U.N|.|and|Jean-Luc|,|at|AT&T",
    "(Paris's) O’Brien ... 1996-08-30!": "(|Paris|'s|)|O|’Brien|.|.|.|1996-08-30|!",
    "a--b 中国人 naïve é-a\x01x": "a|-|-|b|中|国|人|naïve|é-a\x01x",
    "": "",
    " \x01": "",
}


@pytest.mark.parametrize("lower_case", [True, False])
def test_words_are_those_of_annotated_corpora(lower_case):
    """Oracle: the words, written down, in the text at their offsets; each has its first token."""
    letters = [*"abcdefghijklmnopqrstuvwxyz.-&'"]
    vocab = Vocabulary((*SPECIAL_TOKENS, *letters, *(f"##{x}" for x in letters)))
    texts = [text.encode() for text in _CASES]
    tokenizer = WordPieceTokenizer(vocab, lower_case)
    words = split_words(tf.constant(texts), tokenizer)
    spans = zip(texts, words.starts.to_list(), words.limits.to_list(), strict=True)
    found = ["|".join(t[a:b].decode() for a, b in zip(*x, strict=True)) for t, *x in spans]
    assert found == list(_CASES.values())
    firsts = [
        tokenizer.tokenize_flat([text[a : a + 1]])[0, 0]
        for text, (a, *_) in zip(texts[:2], words.starts.to_list(), strict=False)
    ]
    assert tf.gather(words.ids.values, words.first[:2, :1].values).numpy().tolist() == firsts
    assert words.ids.row_splits.numpy().tolist()[-3:-1] == [words.ids.values.shape[0]] * 2

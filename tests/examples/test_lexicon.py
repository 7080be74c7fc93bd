"""Tests the lexicon. Oracles: units worked by hand, and a search over plain lists."""

import random

import numpy as np
import pytest

from bert_tf.examples.units import Lexicon
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import Vocabulary

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCAB = Vocabulary((*SPECIAL, "a", "b", "c", "##a", "##b", "中", "国", "人", "-"))


@pytest.fixture(scope="module")
def tokenizer() -> WordPieceTokenizer:
    return WordPieceTokenizer(VOCAB)


def _units(phrases: list[str], sentences: list[str], tokenizer) -> list[str]:
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
    assert _units(phrases, sentences, tokenizer) == expected


def test_no_text(tokenizer):
    nothing = np.zeros(0, np.int32), np.zeros(0, bool), np.array([0])
    assert Lexicon(["a b"], tokenizer).join_units(*nothing).tolist() == []


def _slow(phrases: set[tuple], sentences: list[list[int]], starts: list[list[bool]]) -> list[bool]:
    joined = []
    for sentence, begins in zip(sentences, starts, strict=True):
        begins = [*begins, True]
        place = 0
        while place < len(sentence):
            ends = range(len(sentence), place, -1)
            found = (
                end
                for end in ends
                if begins[place] and begins[end] and tuple(sentence[place:end]) in phrases
            )
            end = next(found, place + 1)
            joined += [begins[place]] + [False] * (end - place - 1)
            place = end
    return joined


@pytest.mark.parametrize("seed", range(10))
def test_equals_the_slow_search(tokenizer, seed):
    rng = random.Random(seed)
    words = ["a", "b", "c", "aa", "ab", "中", "国"]
    phrases = [" ".join(rng.choices(words, k=rng.randint(1, 4))) for _ in range(30)]
    sentences = [" ".join(rng.choices(words, k=rng.randint(0, 30))).encode() for _ in range(40)]
    token_ids, splits = tokenizer.tokenize_lines(sentences)
    starts = tokenizer.starts_word[token_ids]
    spelled = tokenizer.tokenize_flat(phrases).to_list()
    expected = _slow(
        {tuple(phrase) for phrase in spelled},
        [part.tolist() for part in np.split(token_ids, splits[1:-1])],
        [part.tolist() for part in np.split(starts, splits[1:-1])],
    )
    joined = Lexicon(phrases, tokenizer).join_units(token_ids, starts, splits)
    assert joined.tolist() == expected
    assert 0 < joined.sum() < starts.sum()

"""Tests learning. Oracles: merges worked by hand, the published order, and divided counts."""

from collections import Counter

from bert_tf.vocabulary.learning import learn_vocabulary
from tfrecords.vocabulary import SPECIAL_TOKENS

HUGS = Counter({"hug": 10, "pug": 5, "pun": 12, "bun": 4, "hugs": 5})


def test_merges_by_hand():
    """Pairs: ##u ##g 20, then ##u ##n 16, h ##ug 15, p ##un 12; next would be hug ##s 5."""
    alphabet = ["b", "g", "h", "n", "p", "s", "u", "##g", "##n", "##s", "##u"]
    expected = [*SPECIAL_TOKENS, *alphabet, "##ug", "##un", "hug", "pun"]
    assert learn_vocabulary(HUGS, len(expected), num_unused=0) == expected
    # Without b (4) and s (5): p ##u 17, then pu ##n 12. All other pairs are too rare.
    expected = [*SPECIAL_TOKENS, "g", "h", "n", "p", "u", "##g", "##n", "##u", "pu", "pun"]
    assert learn_vocabulary(HUGS, 100, min_frequency=12, num_unused=0) == expected


def test_a_sample_gives_what_fewer_occurrences_give():
    """Oracle: 1 in 7 of seven times as many occurrences gives the original counts."""
    words = Counter({word: 7 * times for word, times in HUGS.items()})
    sampled = learn_vocabulary(words, 100, 7 * 6, 0, max_occurrences=HUGS.total())
    assert sampled == learn_vocabulary(HUGS, 100, 6, 0)
    # 70 rare words share a token that none of them alone would bring into a sample of 1 in 7.
    rare = Counter({f"hug{chr(97 + i // 26)}{chr(97 + i % 26)}": 3 for i in range(70)})
    assert "hug" in learn_vocabulary(rare, 200, max_occurrences=30)


def test_published_order_of_the_special_tokens():
    tokens = learn_vocabulary(Counter({"ab": 3}), 200)
    unused = [f"[unused{slot}]" for slot in range(99)]
    assert tokens == ["[PAD]", *unused, *SPECIAL_TOKENS[1:], "a", "b", "##b", "ab"]


def test_ties_are_broken_deterministically():
    """Many tokens of equal count and room for half: the trainer alone would choose at random."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = Counter({first + second: 5 for first in letters for second in letters})
    vocabularies = {tuple(learn_vocabulary(words, 400, num_unused=0)) for _ in range(6)}
    assert len(vocabularies) == 1
    assert len(vocabularies.pop()) == 400


def test_rare_characters_get_no_token():
    words = Counter({"ab": 100_000, "cd": 3, "aé": 3})
    tokens = learn_vocabulary(words, 100, num_unused=0)
    assert "a" in tokens and "ab" in tokens
    assert not {"c", "##d", "é", "##é"} & set(tokens)

"""Tests learning and extending.

Oracles: merges worked by hand, the published order, divided counts, a slow greedy choice, and the
tokenizer.
"""

import itertools
import random
from collections import Counter

import pytest

from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.vocabulary import learning
from bert_tf.vocabulary.learning import choose_new_tokens, extend, learn_vocabulary
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

HUGS = Counter({"hug": 10, "pug": 5, "pun": 12, "bun": 4, "hugs": 5})
UNUSED = [f"[unused{slot}]" for slot in range(99)]
RESERVED = ["[PAD]", *UNUSED, *SPECIAL_TOKENS[1:]]
LETTERS = [f"{start}{letter}" for letter in "abcd" for start in ("", "##")]
OLD = Vocabulary((*SPECIAL_TOKENS, "[unused0]", *LETTERS, "ab", "[unused1]"))


def test_merges_by_hand(monkeypatch):
    """Pairs: ##u ##g 20, then ##u ##n 16, h ##ug 15, p ##un 12; next would be hug ##s 5."""
    alphabet = ["b", "g", "h", "n", "p", "s", "u", "##g", "##n", "##s", "##u"]
    expected = [*RESERVED, *alphabet, "##ug", "##un", "hug", "pun"]
    assert learn_vocabulary(HUGS, len(expected)) == expected
    monkeypatch.setattr(learning, "MIN_FREQUENCY", 12)
    # Without b (4) and s (5): p ##u 17, then pu ##n 12. All other pairs are too rare.
    expected = [*RESERVED, "g", "h", "n", "p", "u", "##g", "##n", "##u", "pu", "pun"]
    assert learn_vocabulary(HUGS, 200) == expected


def test_a_sample_gives_what_fewer_occurrences_give(monkeypatch):
    """Oracle: 1 in 7 of seven times as many occurrences gives the original counts."""
    words = Counter({word: 7 * times for word, times in HUGS.items()})
    with monkeypatch.context() as patch:
        patch.setattr(learning, "MIN_FREQUENCY", 7 * 6)
        sampled = learn_vocabulary(words, 200, HUGS.total())
        patch.setattr(learning, "MIN_FREQUENCY", 6)
        assert sampled == learn_vocabulary(HUGS, 200)
    # 70 rare words share a token that none of them alone would bring into a sample of 1 in 7.
    rare = Counter({f"hug{chr(97 + i // 26)}{chr(97 + i % 26)}": 3 for i in range(70)})
    assert "hug" in learn_vocabulary(rare, 200, max_occurrences=30)


def test_published_order_of_the_special_tokens():
    tokens = learn_vocabulary(Counter({"ab": 3}), 200)
    assert tokens == [*RESERVED, "a", "b", "##b", "ab"]


def test_ties_are_broken_deterministically():
    """Many tokens of equal count and room for half: the trainer alone would choose at random."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = Counter({first + second: 5 for first in letters for second in letters})
    vocabularies = {tuple(learn_vocabulary(words, 500)) for _ in range(6)}
    assert len(vocabularies) == 1
    assert len(vocabularies.pop()) == 500


def test_rare_characters_get_no_token():
    words = Counter({"ab": 100_000, "cd": 3, "aé": 3})
    tokens = learn_vocabulary(words, 200)
    assert "a" in tokens and "ab" in tokens
    assert not {"c", "##d", "é", "##é"} & set(tokens)


def ids(*tokens: str) -> tuple[int, ...]:
    return tuple(OLD.ids[token] for token in tokens)


def test_choice_by_hand():
    """abcd is ab ##c ##d and saves 2 tokens 5 times; abc alone saves 1 token 5 + 4 times.

    After abcd, abc saves 4 and ##cd saves 3 (dcd is d ##c ##d), dcd saves 2 x 3, and ü is [UNK] 6
    times.
    """
    words = Counter({"abcd": 5, "abc": 4, "dcd": 3, "ü": 6, "ab": 100, "ca": 1})
    new = choose_new_tokens(words, OLD, 10, lower_case=False)
    assert [*new.items()] == [
        ("abcd", ids("ab", "##c", "##d")),
        ("dcd", ids("d", "##c", "##d")),
        ("ü", ids("[UNK]")),
        ("abc", ids("ab", "##c")),
    ]
    assert [*choose_new_tokens(words, OLD, 2, lower_case=False)] == ["abcd", "dcd"]


def slow_choice(words: Counter[str], num_tokens: int) -> list[str]:
    """Evaluates every run of tokens again for each new token."""
    tokenizer = WordPieceTokenizer(OLD)
    ids = dict(zip(words, tokenizer.tokenize_flat([*words]).to_list(), strict=True))
    pieces = {word: [OLD.tokens[i] for i in own] for word, own in ids.items()}
    chosen: list[str] = []
    for _ in range(num_tokens):
        worth: Counter[str] = Counter()
        for word, own in pieces.items():
            for first, limit in itertools.combinations(range(len(own) + 1), 2):
                token = own[first] + "".join(p.removeprefix("##") for p in own[first + 1 : limit])
                worth[token] += (limit - first - 1) * words[word]
        best = min(worth, key=lambda token: (-worth[token], token))
        if worth[best] < 2:
            break
        chosen.append(best)
        for own in pieces.values():
            for first, limit in itertools.combinations(range(len(own) + 1), 2):
                joined = own[first] + "".join(p.removeprefix("##") for p in own[first + 1 : limit])
                if limit <= len(own) and joined == best:
                    own[first:limit] = [best]
                    break
    return chosen


@pytest.mark.parametrize("seed", range(3))
def test_choice_is_the_best_each_time(seed):
    """No word has a letter twice, so a token occurs at most once in a word."""
    generator = random.Random(seed)
    words = Counter()
    for _ in range(40):
        word = "".join(generator.sample("abcd", generator.randint(2, 4)))
        words[word] += generator.randint(1, 9)
    chosen = list(choose_new_tokens(words, OLD, 12))
    assert len(chosen) == 12
    assert chosen == slow_choice(words, 12)


def test_too_few_unused_tokens():
    new = dict.fromkeys("wxyz", (OLD.unk_id,))
    with pytest.raises(ValueError, match=r"has 2 \[unused\] tokens, fewer than the 4 .*=2"):
        extend(OLD, new, "unused")

"""Whether a vocabulary suits lower-cased text."""

import pytest

from tfrecords.casing import casing_warning, is_cased
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary, load_vocab


@pytest.mark.parametrize(
    "name, cased", [("uncased", 0), ("chinese", 0), ("cased", 1), ("multilingual-cased", 1)]
)
def test_published_vocabularies_suit_their_own_casing_only(shared_data, name, cased):
    """Oracle: the casing that google-research/bert gives for each of them."""
    vocab = load_vocab(str(shared_data / "vocab" / f"bert-base-{name}" / "vocab.txt"))
    assert is_cased(vocab) == bool(cased)
    assert casing_warning(vocab, not cased, "v") is None
    assert casing_warning(vocab, bool(cased), "v").startswith("WARNING: v is ")


def test_the_warnings_count_by_hand():
    """Oracle: é, Ä and B never occur in lower-cased text without accents; nine small letters."""
    cased = Vocabulary((*SPECIAL_TOKENS, "é", "##Ä", "B", "c", "[E1]", "<S>", "我"))
    warning = casing_warning(cased, True, "v.txt")
    assert "v.txt is cased" in warning
    assert "3 of 12 tokens, such as ##Ä, B, can never occur. Use --nodo_lower_case" in warning
    assert casing_warning(cased, False, "v.txt") is None
    uncased = Vocabulary((*SPECIAL_TOKENS, *"abcdefghi", "[E1]", "<S>", "我"))
    assert casing_warning(uncased, True, "v.txt") is None
    warning = casing_warning(uncased, False, "v.txt")
    assert "of 17 tokens, 9 have small letters and 0 have capitals" in warning
    assert "Use --do_lower_case" in warning


def test_scripts_without_capitals_suit_either():
    """Oracle: Thai, Chinese and ordinary Georgian text have no capitals."""
    vocab = Vocabulary((*SPECIAL_TOKENS, "ไ", "我", "ქართული", "##ა"))
    assert casing_warning(vocab, True, "v") is None
    assert casing_warning(vocab, False, "v") is None


def test_what_is_unknown_contradicts_nothing():
    assert casing_warning(None, True, "v") is None
    assert casing_warning(Vocabulary((*SPECIAL_TOKENS, "A")), None, "v") is None

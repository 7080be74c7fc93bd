"""Tests cleaning. Oracles: lines of WikiExtractor's English Wikipedia judged by eye, and counts."""

import lzma
from collections import Counter

import pytest

from bert_tf.corpus.cleaning import line_rule, sentence_rule

KEPT = [
    "Sera begs Ben to see a doctor.",
    "Are you serious?",
    "Tsien was asked, ‘Where is Tsien Hsue-shen and what is he doing?’",
    'Hemans\' "Casabianca" (1826) is often read as "The boy stood on the burning deck."',
    "The giraffe's neck can be up to in length, accounting for much of its vertical height.:29",
    "In 1837 he was elected a foreign member of the Royal Society.[12]",
    "In 2012, education firm Pearson ranked Australian education as thirteenth in the world",
    "Their most recent champions are listed in the table below, in the order of their wins:",
    "In C, the operators < and > compare; # begins a directive.",
    "He wrote under the name snake_case.",
    "他是德国物理学家。",
    "वह एक भौतिक विज्ञानी थे।",
    "هل هو فيزيائي؟",
]

SENTENCES = {
    "markup": [
        "#if: Pericles",
        "}}{{",
        "[[Category:Egyptian mathematicians]]",
        "|work=Stanford Encyclopaedia of Philosophy",
        "File:Riparian buffer on Bear Creek in Story County, Iowa.",
        "s of 2009[ [update]], human trials and surveys have investigated the potential of it.",
        'The Albanian government puts the number at 24,243.<ref name="RFE/RL Research"> It fell.',
    ],
    "formula": [
        "Note that although formula_14 represents the contour length, formula_15 is shorter.",
        "The noise could be mitigated using the codice_13 modifier to add whitespace.",
    ],
    "url": [
        "The Mara-Meru Cheetah Project (http://marameru.org/en/) is working in the Mara.",
        "Information can be found at the Commission's website: www.binghamtonhrc.org.",
    ],
    "fragment": [
        "148 km",
        "a set of items with weights and values",
        "Typical qualifications for a security engineer are:",
        "- CinemaDNG",
        ".",
        "). ...",
    ],
}
LINES = {
    "list_item": [
        "— Alexander Graham Bell, in a letter to his father, dated February 26, 1880",
        "• Advances in clinical medicine (sulfonamide in 1937, penicillin in the 1940s)",
    ]
}
HEADINGS = ["Demographics.", "Early life and education.", "1990s and comeback.", "Māori."]


@pytest.mark.parametrize("sentence", KEPT)
def test_sentences_are_kept(sentence):
    assert sentence_rule(sentence) is None
    assert line_rule(sentence, False, False) is None


@pytest.mark.parametrize("rule", SENTENCES)
def test_each_rule_drops_its_sentences(rule):
    for sentence in SENTENCES[rule]:
        assert sentence_rule(sentence) == rule, sentence
        assert line_rule(sentence, False, False) == rule, sentence


def test_only_short_paragraphs_are_dropped_whole():
    for rule, lines in (SENTENCES | LINES).items():
        for line in lines:
            expected = rule if len(line) <= 60 or rule == "list_item" else None
            assert line_rule(line, False, True) == expected, line
    for line in LINES["list_item"]:
        assert sentence_rule(line) is None


def test_headings_are_recognized_among_paragraphs_only():
    for line in HEADINGS:
        assert line_rule(line, False, True) == "heading", line
        assert line_rule(line, False, False) is None
    for line in ("He left...", "Why?", "It is also used in zippers."):
        assert line_rule(line, False, True) is None, line


@pytest.mark.parametrize("paragraph", [True, False])
def test_titles_come_first(paragraph):
    assert line_rule("Albert Einstein", True, paragraph) == "title"
    assert line_rule("Albert Einstein", False, paragraph) == "fragment"
    assert line_rule("He was a German-born theoretical physicist.", True, paragraph) is None
    assert line_rule("long " * 40, True, True) is None


def test_the_whole_of_wikipedia(shared_data):
    """Every document begins with its title. The shares are those of the dump of June 2015."""
    counts = Counter()
    with lzma.open(shared_data / "corpus" / "wikipedia_en.txt.xz", "rt", encoding="utf-8") as file:
        first = True
        for line in map(str.strip, file):
            if line:
                counts[line_rule(line, first, True)] += 1
            first = not line
    assert 0.99 * 2911 < counts["title"] <= 2911
    shares = {rule: count / sum(counts.values()) for rule, count in counts.items()}
    assert 0.21 < shares["heading"] < 0.24
    assert 0.04 < shares["fragment"] < 0.07
    assert 0.01 < shares["markup"] < 0.03
    assert shares["list_item"] + shares["url"] + shares["formula"] < 0.01
    assert 0.65 < shares[None] < 0.72

"""Tests hard-wrapped text. Oracles: the text before it was wrapped, and worked examples."""

import random
import textwrap

import pytest

from bert_tf.corpus.wrapping import count_wrapped, unwrap, wrap_width

PARAGRAPHS = [
    "It was the best of times, it was the well-worn worst of times: it was, said Mr. Jarndyce, "
    "the age of wisdom - an age of foolishness, too. The epoch was one of belief (and 50 doubts).",
    "CHAPTER I",
    "“Yes?”",
    "The period was so far like the present period that some of its noisiest authorities insisted "
    "on its being received, for good or for evil, in the superlative degree of comparison only.",
]
VERSE = [
    "Tyger Tyger, burning bright,",
    "In the forests of the night;",
    "What immortal hand or eye",
]
LIST = [
    "It has:",
    "1. the first item",
    "2. the second item, which is so very long that it was wrapped",
]


def _wrapped(paragraphs: list[str], width: int = 72) -> list[str]:
    return "\n\n".join(textwrap.fill(text, width) for text in paragraphs).split("\n")


@pytest.mark.parametrize("width", [40, 60, 72, 100])
def test_wrapped_paragraphs_are_restored(width):
    rng = random.Random(width)
    words = PARAGRAPHS[0].replace(" - ", " ").split()
    paragraphs = [" ".join(rng.choices(words, k=rng.randrange(1, 200))) for _ in range(50)]
    lines = _wrapped([*paragraphs, *PARAGRAPHS], width)
    assert unwrap(lines, wrap_width(lines)) == [*paragraphs, *PARAGRAPHS]


def test_verse_lists_and_short_lines_stay():
    lines = [*_wrapped(PARAGRAPHS * 3), "", *VERSE, "", *LIST, "by the author", "", "CHAPTER II"]
    lines += ["It was", "", "A sentence ends early.", *_wrapped(PARAGRAPHS[3:])]
    assert unwrap(lines, wrap_width(lines))[12:] == [
        *VERSE,
        *LIST[:2],
        f"{LIST[2]} by the author",
        "CHAPTER II",
        "It was",
        "A sentence ends early.",
        PARAGRAPHS[3],
    ]
    assert unwrap([], 72) == []


@pytest.mark.parametrize(
    "lines, joined",
    [
        # The document shows how the word is spelled elsewhere.
        (["the vessel sank and the ves-", "sel rose"], "the vessel sank and the vessel rose"),
        (["the well-known and the well-", "known one"], "the well-known and the well-known one"),
        (["something of the Anglo-", "Saxon angles"], "something of the Anglo-Saxon angles"),
        (["here is her dear, spelt d-e-", "a-r or de"], "here is her dear, spelt d-e-a-r or de"),
        (["he said that he was--", "and was not"], "he said that he was--and was not"),
        (["a soft hyphen in the ves\u00ad", "sel"], "a soft hyphen in the vessel"),
        (["我们今天学习自然语言", "处理。"], "我们今天学习自然语言处理。"),
        (["これはペンですがそれは", "ペンではない"], "これはペンですがそれはペンではない"),
        (["우리는 오늘 자연어", "처리를 배운다"], "우리는 오늘 자연어 처리를 배운다"),
        (["ภาษาไทยไม่มี", "ช่องว่าง"], "ภาษาไทยไม่มีช่องว่าง"),
    ],
)
def test_what_stands_between_two_lines(lines, joined):
    assert unwrap(lines, wrap_width(lines)) == [joined]


def test_only_wrapped_lines_are_counted():
    lines = list(filter(None, _wrapped(PARAGRAPHS * 5)))
    # By hand: 3 lines and 3 lines, of which the last ones end a paragraph.
    assert count_wrapped(lines) == 20
    sentences = [text + "." for text in " ".join(PARAGRAPHS).split(".")]
    for other in (sentences, PARAGRAPHS * 5, VERSE * 5, [], ["one line"], ["word"] * 100):
        assert count_wrapped(other) == 0

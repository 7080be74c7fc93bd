"""Tests splitting text into documents, sentences and unwrapped lines. Oracles: worked examples,
and the text before it was wrapped.
"""

import json
import random
import textwrap

import pytest

from bert_tf.corpus.lines import (
    check_language,
    count_long_words,
    count_wrapped,
    read_documents,
    split_sentences,
    unwrap,
    wrap_width,
)
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

TEXT = "Preface\n\n CHAPTER I\r\na\n\n\nb\n***\nc\nCHAPTER II\n \nd\n"
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


@pytest.mark.parametrize(
    "separator, documents",
    [
        ("blank_line", ["Preface", "CHAPTER I|a", "b|***|c|CHAPTER II", "d"]),
        ("file", ["Preface|CHAPTER I|a|b|***|c|CHAPTER II|d"]),
        ("^CHAPTER ", ["Preface", "CHAPTER I|a|b|***|c", "CHAPTER II|d"]),
        # A line that matches as a whole only separates.
        (r"^\*+$", ["Preface|CHAPTER I|a|b", "c|CHAPTER II|d"]),
        ("absent", ["Preface|CHAPTER I|a|b|***|c|CHAPTER II|d"]),
    ],
)
def test_what_a_document_is(separator, documents):
    found = read_documents(TEXT, "text", "a file", separator=separator)
    assert ["|".join(lines) for lines in found] == documents


@pytest.mark.parametrize("kind", ["text", "json"])
@pytest.mark.parametrize("separator", ["blank_line", "file", "^<doc ", "absent"])
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_the_marks_of_wikiextractor_are_no_text(kind, separator, is_wrapped):
    """Oracle: the lines between them, by hand. Other lines with such words are text."""
    lines = ["A", "The 1st line of A.", "In HTML, </doc> ends a <doc class='x'>.", "<document>"]
    text = "".join(
        f'<doc id="{n}" url="https://x.org?curid={n}" title="A, {n}">\n{lines[0]}\n'
        f"{'' if separator == 'blank_line' else chr(10)}" + "\n".join(lines[1:]) + "\n</doc>\n"
        for n in range(2)
    )
    data = json.dumps({"text": text}) if kind == "json" else text
    layout = dict(separator=separator, is_wrapped=is_wrapped)
    found = [x for x in read_documents(data, kind, "a file", **layout) if x]
    joined = [" ".join(document) for document in found]
    assert joined == [" ".join(lines)] * 2
    assert is_wrapped or found == [lines] * 2


@pytest.mark.parametrize("separator", ["blank_line", "file"])
def test_wrapped_paragraphs(separator):
    line = "a line of some forty characters, that is, "
    text = f"{line}\nwhich goes on.\n\n{line}\nand on.\n"
    documents = [[f"{line}which goes on."], [f"{line}and on."]]
    layout = dict(separator=separator, is_wrapped=True)
    expected = documents if separator == "blank_line" else [[*documents[0], *documents[1]]]
    assert list(read_documents(text, "text", "a file", **layout)) == expected
    data = json.dumps({"text": text}) + "\n" + json.dumps({"text": ""})
    found = list(read_documents(data, "json", "a file", **layout))
    assert found == [[*documents[0], *documents[1]], []]


@pytest.mark.parametrize(
    "language, text, sentences",
    [
        (
            "en",
            "Dr. Smith met J. Doe at 3.5 p.m. today. “Why?” she asked. Nobody knew!",
            ["Dr. Smith met J. Doe at 3.5 p.m. today.", "“Why?” she asked.", "Nobody knew!"],
        ),
        ("de", "Das kostet ca. 5 Euro. Gut so.", ["Das kostet ca. 5 Euro.", "Gut so."]),
        ("zh", "他来了。我走了。", ["他来了。", "我走了。"]),
        ("en", "A title\n\nA line\nis  wrapped. End", ["A title", "A line is wrapped.", "End"]),
        ("en", " \n\n\t", []),
        ("en", "", []),
    ],
)
def test_sentences(language, text, sentences):
    assert split_sentences(text, language) == sentences


@pytest.mark.parametrize("language", ["xx", "english", "EN", "de_DE", ""])
def test_an_unknown_language_is_an_error_that_lists_the_known_ones(language):
    with pytest.raises(ValueError, match=f"--language={language} is not known: .* de, .*ast, "):
        check_language(language)
    for known in ("en", "pt-br", "ast", "zh-hant"):
        check_language(known)


@pytest.mark.parametrize(
    "text",
    ["ภาษาไทย", "x", "ab.", "a$b^", "中", "ひら", "한국", "𠀀", "བོད་", "слово ", "e\u0301", "a\t"],
)
def test_long_words_are_those_that_no_vocabulary_covers(text):
    """Oracle: the words of the tokenizer, of which those of more than 200 characters are [UNK]."""
    tokenizer = WordPieceTokenizer(Vocabulary(SPECIAL_TOKENS), lower_case=False)
    for length in (199, 200, 201, 450):
        lines = [(text * length)[:length], "word " * 90, "a short line"]
        words = (x.decode() for x in tokenizer.words(lines).values.numpy())
        assert count_long_words(lines) == sum(len(word) for word in words if len(word) > 200)


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

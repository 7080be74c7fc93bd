"""Tests sentence splitting. Oracle: worked examples."""

import pytest

from bert_tf.corpus.sentences import split_sentences


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
        (
            "en",
            "A title\n\nA line that\nis  wrapped. End",
            ["A title", "A line that is wrapped.", "End"],
        ),
        ("en", " \n\n\t", []),
        ("en", "", []),
    ],
)
def test_sentences(language, text, sentences):
    assert split_sentences(text, language) == sentences

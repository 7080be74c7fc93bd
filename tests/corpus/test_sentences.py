"""Tests sentence splitting. Oracle: worked examples."""

import pytest

from bert_tf.corpus.lines import check_language, split_sentences


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
        split_sentences("One. Two.", language)
    for known in ("en", "pt-br", "ast", "zh-hant"):
        check_language(known)

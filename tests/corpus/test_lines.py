"""Tests splitting text into documents and sentences. Oracle: worked examples."""

import json

import pytest

from bert_tf.corpus.lines import check_language, read_documents, split_sentences

TEXT = "Preface\n\n CHAPTER I\r\na\n\n\nb\n***\nc\nCHAPTER II\n \nd\n"


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

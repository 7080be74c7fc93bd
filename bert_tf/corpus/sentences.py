"""Splits running text into sentences."""

import sentencex


def split_sentences(text: str, language: str = "en") -> list[str]:
    """Returns the sentences of a text, each on one line with single spaces.

    The rules and abbreviations are those of Wikimedia's `sentencex`, which supports some 300
    languages. For an unknown code, it falls back to a related language and finally to English.

    Args:
        text: one or more paragraphs. A blank line always ends a sentence, a single line break does
            not.
        language: an ISO 639 code, such as "de".
    """
    sentences = (" ".join(sentence.split()) for sentence in sentencex.segment(language, text))
    return [sentence for sentence in sentences if sentence]

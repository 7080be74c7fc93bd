"""Splits running text into sentences."""

import sentencex


def split_sentences(text: str, language: str = "en") -> list[str]:
    """The sentences of a text, each on one line with single spaces; empty ones are left out.

    The rules and abbreviations are those of Wikimedia's `sentencex`, which knows some 300 languages
    and takes a related one, at last English, for a code that it does not know.

    Args:
      text: a paragraph or more; a blank line always ends a sentence, a single line end does not.
      language: ISO 639 code, such as "de".
    """
    sentences = (" ".join(sentence.split()) for sentence in sentencex.segment(language, text))
    return [sentence for sentence in sentences if sentence]

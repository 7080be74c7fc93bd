"""Filters that remove everything but prose from Wikipedia extracts and similar text.

Such text has lines that are not sentences and sentences that are incomplete. A line or sentence
that matches a rule is dropped as a whole and counted under the name of the rule.

Lines are paragraphs with --split_sentences, and sentences without it. A title is the first line of
a document. A heading is a paragraph of few words, because a sentence may be just as short. A
fragment lacks the end of a sentence, or any letter or digit: list items, table cells, captions, and
lines that introduce a list ("It has:").

A sentence ends with a full stop or an equivalent sign of any script, optionally followed by closing
quotation marks or brackets and a reference. Do not clean text in scripts without such signs, such
as Thai.
"""

import re

_MAX_TITLE_CHARACTERS = 150
_MAX_HEADING_WORDS = 5
_MAX_FRAGMENT_CHARACTERS = 60
_ENDS = ".!?…‼⁇⁈⁉。！？．｡।॥؟۔։።፧။៕᠃᠉᥄᥅꓿꘎꛳"
_CLOSING = "\"'”’»›)]}」』）］〉》】\u00a0 "
_REFERENCE = re.compile(r"(?<=[.!?…\"”]):\d[\d–, -]*$|(?:\[[\w ]{1,12}\])+$")
_BULLET = re.compile(r"[-–—*•·#:;+]\s")
# Pairs of braces or brackets, bars, HTML tags, and the beginnings of templates (#if:).
_MARKUP_SIGNS = re.compile(r"\||\{\{|\}\}|\[\[|\]\]|</|/>")
_MARKUP = re.compile(
    r"^\s*(?:#[a-z]+:|#redirect\b|(?:File|Image|Category):)"
    r"|<(?:ref|div|span|br|sup|sub|small|table|t[rdh]|p|ul|li|center|font|math|nowiki)\b[^<]*>",
    re.IGNORECASE,
)
# What WikiExtractor leaves for formulas and code.
_FORMULA = re.compile(r"(?:formula|codice)_\d")
_URL = re.compile(r"https?://|\bwww\.\w", re.IGNORECASE)


def line_rule(line: str, first: bool, paragraph: bool) -> str | None:
    """Returns the name of the rule that drops a whole line, or None to keep the line.

    The line has no surrounding whitespace. `first` means the first of its document, and `paragraph`
    that lines are paragraphs rather than sentences.
    """
    ends = ends_sentence(line)
    if first and not ends and len(line) <= _MAX_TITLE_CHARACTERS:
        return "title"
    if not paragraph or len(line) <= _MAX_FRAGMENT_CHARACTERS:
        if rule := sentence_rule(line):
            return rule
    if paragraph and line.endswith(".") and not line.endswith(".."):
        if len(line.split(None, _MAX_HEADING_WORDS)) <= _MAX_HEADING_WORDS:
            return "heading"
    return "list_item" if not ends and _BULLET.match(line) else None


def sentence_rule(sentence: str) -> str | None:
    """Returns the name of the rule that drops a sentence, or None to keep the sentence."""
    if _MARKUP_SIGNS.search(sentence):
        return "markup"
    if ("<" in sentence or "#" in sentence or ":" in sentence) and _MARKUP.search(sentence):
        return "markup"
    if "_" in sentence and _FORMULA.search(sentence):
        return "formula"
    if ("://" in sentence or "ww." in sentence.lower()) and _URL.search(sentence):
        return "url"
    if len(sentence) <= _MAX_FRAGMENT_CHARACTERS:
        if not ends_sentence(sentence) or not any(map(str.isalnum, sentence)):
            return "fragment"
    return None


def ends_sentence(line: str) -> bool:
    """Returns whether a line ends with the end of a sentence, in any script."""
    line = line.rstrip(_CLOSING)
    if line and (line[-1].isalnum() or line[-1] == "]"):
        line = _REFERENCE.sub("", line).rstrip(_CLOSING)
    return line.endswith(tuple(_ENDS))

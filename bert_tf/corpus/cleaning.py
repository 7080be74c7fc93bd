"""What to leave out of extracts of Wikipedia, and of text like them.

Such text has lines that are no sentences, and sentences that are not whole. The rules say which; a
line or sentence that one of them takes is left out as a whole, and counted under its name.

Of lines, which are paragraphs where sentences are split, otherwise sentences:

    title      The first line of a document, if it has at most 150 characters and does not end
               like a sentence.
    heading    Of at most five words, ending with one full stop ("Early life."): only where lines
               are paragraphs, because a sentence may be as short.
    list_item  Beginning with a bullet and not ending like a sentence.

Of lines and of the sentences that they are split into:

    markup     Braces and brackets in pairs, bars, HTML tags, the first words of templates (#if:).
    formula    The marks formula_1 and codice_1 that WikiExtractor puts for formulas and code.
    url        A web address.
    fragment   Of at most 60 characters and not ending like a sentence, or without a letter or
               digit: list items, cells of tables, captions, what announces a list ("It has:").

A sentence ends with a full stop or a sign like it of any script, perhaps in quotation marks or
brackets, perhaps with a reference. In scripts that have none, such as Thai, do not clean.
"""

import re

RULES = ("title", "heading", "list_item", "markup", "formula", "url", "fragment")

_MAX_TITLE_CHARACTERS = 150
_MAX_HEADING_WORDS = 5
_MAX_FRAGMENT_CHARACTERS = 60
_ENDS = ".!?…‼⁇⁈⁉。！？．｡।॥؟۔։።፧။៕᠃᠉᥄᥅꓿꘎꛳"
_CLOSING = "\"'”’»›)]}」』）］〉》】\u00a0 "
_REFERENCE = re.compile(r"(?<=[.!?…\"”]):\d[\d–, -]*$|(?:\[[\w ]{1,12}\])+$")
_BULLET = re.compile(r"[-–—*•·#:;+]\s")
_MARKUP_SIGNS = re.compile(r"\||\{\{|\}\}|\[\[|\]\]|</|/>")
_MARKUP = re.compile(
    r"^\s*(?:#[a-z]+:|#redirect\b|(?:File|Image|Category):)"
    r"|<(?:ref|div|span|br|sup|sub|small|table|t[rdh]|p|ul|li|center|font|math|nowiki)\b[^<]*>",
    re.IGNORECASE,
)
_FORMULA = re.compile(r"(?:formula|codice)_\d")
_URL = re.compile(r"https?://|\bwww\.\w", re.IGNORECASE)


def line_rule(line: str, first: bool, paragraph: bool) -> str | None:
    """The name of the rule that leaves out a line as a whole, or None.

    Args:
        line: not empty, and without white space around it.
        first: whether the line is the first of its document.
        paragraph: whether lines are paragraphs, not sentences.
    """
    ends = _ends_sentence(line)
    if first and not ends and len(line) <= _MAX_TITLE_CHARACTERS:
        return "title"
    if not paragraph or len(line) <= _MAX_FRAGMENT_CHARACTERS:
        if rule := sentence_rule(line):
            return rule
    if paragraph and _is_heading(line):
        return "heading"
    return "list_item" if not ends and _BULLET.match(line) else None


def sentence_rule(sentence: str) -> str | None:
    """The name of the rule that leaves out a sentence, or None."""
    if _MARKUP_SIGNS.search(sentence):
        return "markup"
    if ("<" in sentence or "#" in sentence or ":" in sentence) and _MARKUP.search(sentence):
        return "markup"
    if "_" in sentence and _FORMULA.search(sentence):
        return "formula"
    if ("://" in sentence or "ww." in sentence.lower()) and _URL.search(sentence):
        return "url"
    if len(sentence) <= _MAX_FRAGMENT_CHARACTERS:
        if not _ends_sentence(sentence) or not any(map(str.isalnum, sentence)):
            return "fragment"
    return None


def _is_heading(line: str) -> bool:
    return (
        line.endswith(".")
        and not line.endswith("..")
        and len(line.split(None, _MAX_HEADING_WORDS)) <= _MAX_HEADING_WORDS
    )


def _ends_sentence(line: str) -> bool:
    line = line.rstrip(_CLOSING)
    if line and (line[-1].isalnum() or line[-1] == "]"):
        line = _REFERENCE.sub("", line).rstrip(_CLOSING)
    return line.endswith(tuple(_ENDS))

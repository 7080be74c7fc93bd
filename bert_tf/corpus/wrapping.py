"""Hard-wrapped text, whose paragraphs are broken into lines of a fixed width.

A line was wrapped if the first word of the next line did not fit on it. If the word would have
fitted, the author wanted the line to end, as in verse, tables and addresses.
"""

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence

from bert_tf.corpus.cleaning import ends_sentence

# Narrower lines are words or verse; wider ones are sentences or paragraphs.
_MIN_WIDTH, _MAX_WIDTH = 30, 140
# Lines that were wrapped by hand may be so short that another word seems to fit.
_FULL = 0.85
_LIST_ITEM = re.compile(r"(?:[-–—*•·+]|\(?\d{1,3}[.)]|\(?[a-z]\))\s")
_HYPHENATED = re.compile(r"(?<![\w‐-])([^\W\d_]+)[-‐]$")
_FIRST_WORD = re.compile(r"[^\W\d_]+(?![\w‐-])")
_WORDS = re.compile(r"[^\W\d_]+(?:[-‐][^\W\d_]+)*")
# Thai, Lao, Burmese, Khmer: no spaces between words.
_NO_SPACES = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")


def wrap_width(lines: Sequence[str]) -> int:
    """Returns the width in characters that 95% of the lines, blank ones aside, do not exceed."""
    widths = sorted(len(line) for line in lines if line)
    return widths[-1 - len(widths) // 20] if widths else 0


def count_wrapped(lines: Sequence[str]) -> int:
    """Returns how many lines of a document seem to have been wrapped: full, and in mid-sentence.

    The lines have no blank ones among them.
    """
    width = wrap_width(lines)
    if not _MIN_WIDTH <= width <= _MAX_WIDTH:
        return 0
    pairs = zip(lines, _needed_widths(lines, width), strict=False)
    return sum(needed > width and not ends_sentence(line) for line, needed in pairs)


def unwrap(lines: Sequence[str], width: int) -> list[str]:
    """Joins the lines of every paragraph. Drops blank lines, which stand between paragraphs.

    If most lines of a paragraph have room for the next word, as in verse, no such line is joined
    with the next one. Nor are list items, and short lines at which a sentence ends.

    A hyphen at the end of a line is removed if the document has the word more often without the
    hyphen than with it. Lines of Chinese, Japanese and other text without spaces are joined without
    a space. The width is that of `wrap_width`.
    """
    hyphenated = any(map(_HYPHENATED.search, lines))
    words = Counter(_WORDS.findall("\n".join(lines).lower())) if hyphenated else Counter()
    paragraphs = (list(group) for full, group in itertools.groupby(lines, bool) if full)
    return [line for paragraph in paragraphs for line in _unwrap(paragraph, width, words)]


def _unwrap(lines: list[str], width: int, words: Counter[str]) -> Iterator[str]:
    needed = _needed_widths(lines, width)
    has_room = [size <= _FULL * width for size in needed]
    is_verse = 2 * sum(has_room) > len(has_room)
    parts = [lines[0]]
    for before, after, size, room in zip(lines, lines[1:], needed, has_room, strict=False):
        is_list = room or before.endswith(":") or _LIST_ITEM.match(lines[0])
        ends = room and (is_verse or ends_sentence(before) or 2 * size <= width)
        if ends or (is_list and _LIST_ITEM.match(after)):
            yield "".join(parts)
            parts = [after]
        else:
            if _is_divided(before, after, words):
                parts[-1] = parts[-1][:-1]
            joined = re.search(r"\S[-‐–—\u00ad]$", before) or (
                _joins(before[-1]) and _joins(after[0])
            )
            parts += ["" if joined else " ", after]
    yield "".join(parts)


def _needed_widths(lines: Sequence[str], width: int) -> list[int]:
    """Returns how wide each line but the last would be with the first word of the next line."""
    # Text without spaces may have been broken anywhere.
    longest = width // 4
    return [
        len(before) + 1 + min(longest, len(after.split(None, 1)[0]))
        for before, after in itertools.pairwise(lines)
    ]


def _is_divided(before: str, after: str, words: Counter[str]) -> bool:
    """Returns whether a line ends with a hyphen that does not belong to its last word."""
    if before.endswith("\u00ad"):
        return True
    start, end = _HYPHENATED.search(before), _FIRST_WORD.match(after)
    if not start or not end or not after[0].islower():
        return False
    first, second = start[1].lower(), end[0].lower()
    return words[first + second] > words[f"{first}-{second}"]


def _joins(character: str) -> bool:
    if _NO_SPACES.match(character):
        return True
    # Korean characters are wide, but Korean has spaces.
    is_wide = unicodedata.east_asian_width(character) in "WF"
    return is_wide and not "\u1100" <= unicodedata.normalize("NFD", character)[0] <= "\u11ff"

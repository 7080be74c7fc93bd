"""What a document is in text, and how text becomes documents, lines and sentences.

In hard-wrapped text, paragraphs are broken into lines of a fixed width. A line was wrapped if the
first word of the next line did not fit on it. If the word would have fitted, the author wanted the
line to end, as in verse, tables and addresses.
"""

import functools
import itertools
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence

import sentencex

from bert_tf.base.content import decode, read_lines
from bert_tf.corpus.cleaning import ends_sentence
from tfrecords.vocabulary import MAX_CHARACTERS_PER_WORD

# Narrower lines are words or verse; wider ones are sentences or paragraphs.
_MIN_WIDTH, _MAX_WIDTH = 30, 140
# Lines that were wrapped by hand may be so short that another word seems to fit.
_FULL = 0.85
_LIST_ITEM = re.compile(r"(?:[-–—*•·+]|\(?\d{1,3}[.)]|\(?[a-z]\))\s")
_HYPHENATED = re.compile(r"(?<![\w‐-])([^\W\d_]+)[-‐]$")
_FIRST_WORD = re.compile(r"[^\W\d_]+(?![\w‐-])")
_WORDS = re.compile(r"[^\W\d_]+(?:[-‐][^\W\d_]+)*")
# The second matches no line.
_SEPARATORS = {"blank_line": "^$", "file": "(?!)"}
# The lines before and after each article in the files of WikiExtractor.
_ARTICLE_MARK = re.compile(r"<doc [^<>]*>|</doc>")
# Thai, Lao, Burmese, Khmer: no spaces between words.
_NO_SPACES = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
# ISO 639-1, and the longer codes for which sentencex names a related language.
_LANGUAGES = frozenset(
    """
    aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da
    de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz
    ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln
    lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi
    pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st su sv sw ta te tg th
    ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
    abs ace ady aeb aln als alt ami anp arn arq ary arz ast atj avk awa azb ban bar bbc bcc bgn bjn
    bpy bqi btm bug bxr cbk cdo crh csb dsb dtp dty egl eml ext fit frc frp frr fur gag gan gcr glk
    gom gor gsw guc hak hif hrx hsb hyw inh jam jut kaa kab kbd kbp khw kiu kjp koi krc krl ksh kum
    lad lbe lez lij liv lki lld lmo lrc ltg luz lzh lzz mad mai mdf mhr min mnw mrj mwl myv mzn nah
    nan nap nds nia nrm olo pcd pdc pdt pfl pih pms pnt qug rgn rmy rue rup ruq sah scn sco sdc sdh
    ses sgs shi shy skr sli smn srn stq sty szl szy tay tcy tet trv tyv udm vec vep vls vmf vot vro
    wuu xal xmf yue zea zgh
    """.split()
)


def wrap_width(lines: Sequence[str]) -> int:
    """Returns the width in characters that 95% of the lines, blank ones aside, do not exceed."""
    widths = sorted(len(line) for line in lines if line)
    return widths[-1 - len(widths) // 20] if widths else 0


def count_wrapped(lines: Sequence[str]) -> int:
    """Returns how many lines, none of them blank, seem wrapped: full, and in mid-sentence."""
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


def count_long_words(lines: Sequence[str]) -> int:
    """Returns how many characters are in words that a tokenizer reads as [UNK], being too long."""
    lines = (line for line in lines if len(line) > MAX_CHARACTERS_PER_WORD)
    return sum(len(word) for line in lines for word in _long_word().findall(line))


@functools.cache
def _long_word() -> re.Pattern[str]:
    # Punctuation and Chinese characters are words of their own.
    punctuation = (x for x in map(chr, range(0x10000)) if unicodedata.category(x)[0] == "P")
    others = r"\s$+<=>^`|~" + "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0002ffff"
    ends = "".join(map(re.escape, punctuation)) + others
    return re.compile(f"[^{ends}]{{{MAX_CHARACTERS_PER_WORD + 1},}}")


def check_separator(separator: str) -> None:
    """Raises a ValueError if `separator` is not a regular expression."""
    try:
        re.compile(separator)
    except re.error as error:
        raise ValueError(
            f"--document_separator={separator} is neither blank_line nor file nor a regular "
            f"expression: {error}"
        ) from None


def read_documents(
    text: str,
    kind: str,
    file: str,
    *,
    separator: str = "blank_line",
    text_field: str = "text",
    is_wrapped: bool = False,
) -> Iterator[list[str]]:
    """Yields the lines of each document, without blank lines and surrounding whitespace.

    Text and kind are those of a `Block`; the separator, and the field of JSON lines, are those of
    the flags. If it `is_wrapped`, lines of a fixed width are joined to paragraphs. WikiExtractor's
    `<doc ...>` and `</doc>` lines separate documents, and are in none.
    """
    texts, is_json = [text], kind == "json"
    if is_json:
        rows = filter(None, map(str.strip, text.split("\n")))
        texts, separator = (_json_text(row, text_field, file) for row in rows), "file"
    for content in texts:
        lines = [line.strip() for line in content.split("\n")]
        # One paragraph alone would not show the width.
        width = wrap_width(lines) if is_wrapped else 0
        for document in _split(lines, separator):
            if any(document) or is_json:
                yield unwrap(document, width) if is_wrapped else list(filter(None, document))


def _split(lines: list[str], separator: str) -> Iterator[list[str]]:
    """Yields the lines of each document of plain text, blank ones included."""
    document: list[str] = []
    pattern = re.compile(_SEPARATORS.get(separator, separator))
    for line in lines:
        only_separates = pattern.fullmatch(line) or _ARTICLE_MARK.fullmatch(line)
        if only_separates or pattern.search(line):
            yield document
            document = []
        if not only_separates:
            document.append(line)
    yield document


def _json_text(line: str, text_field: str, file: str) -> str:
    try:
        value = json.loads(line)[text_field]
    except (LookupError, RecursionError, TypeError, ValueError):
        value = None
    if not isinstance(value, str):
        raise ValueError(
            f"{file}, line {_line_number(line, file):,}: not a JSON object with text in the field "
            f"{text_field!r}: name another field with --text_field, or remove the line: "
            f"{line[:80]!r}"
        )
    # A lone half of a surrogate pair is not a character.
    return re.sub("[\ud800-\udfff]", "\ufffd", value)


def _line_number(line: str, file: str) -> int:
    """Returns where a line is in a file; blocks do not say which part of it they are."""
    parts = (part.removesuffix(b"\n").split(b"\n") for part in read_lines(file))
    lines = enumerate(itertools.chain.from_iterable(parts), start=1)
    return next(number for number, data in lines if decode(data)[0].strip() == line)


def check_language(language: str) -> None:
    """Raises a ValueError that lists the languages unless one is known, as in "en" or "pt-br"."""
    if language.split("-")[0] not in _LANGUAGES:
        known = ", ".join(sorted(_LANGUAGES, key=lambda code: (len(code), code)))
        raise ValueError(
            f"--language={language} is not known: give an ISO 639 code, such as de for German. "
            f"Known are {known}"
        )


def split_sentences(text: str, language: str = "en") -> list[str]:
    """Returns the sentences of a text, each on one line with single spaces.

    The rules and abbreviations are those of Wikimedia's `sentencex`, which supports some 300
    languages. A language without rules of its own has those of a related one, or of English. A
    blank line always ends a sentence, a single line break does not.
    """
    sentences = (" ".join(sentence.split()) for sentence in sentencex.segment(language, text))
    return [sentence for sentence in sentences if sentence]

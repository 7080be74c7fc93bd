"""Finds the columns of words and tags in a CoNLL file."""

import re
from collections.abc import Sequence

from bert_tf.finetuning.tagging.tags import entity_types, from_brackets, is_entity_tag, spellings
from bert_tf.tables.table import fold

# A token range or an empty node of CoNLL-U, which are not words of the sentence.
_NO_WORD = re.compile(r"\d+[-.]\d+")
NUMBERED = re.compile(r"(.*?)(\d+)")
# The number of columns in CoNLL-U, and the column of universal parts of speech.
_CONLLU, _UPOS = 10, 3
# The columns of words and entities in OntoNotes (CoNLL-2012), from 1.
ONTONOTES = 4, 11
_BRACKETS = re.compile(r"(\([^()*]+)?\*\)?|\([^()*]+\)")
# A column does not hold words if so many steps between words are numbered or keep the same value.
_LEAST_NUMBERED, _LEAST_EQUAL = 2, 3
# Types of chunks, which are no entities (CoNLL-2000).
_CHUNKS = {*"NP VP PP ADJP ADVP SBAR PRT CONJP INTJ LST UCP".split()}
# What headers call the words.
_WORDS = {"token", "tokens", "word", "words", "form", "text"}
# The language of a word in WikiANN, and the share of the words that must have the same.
_PREFIX = re.compile(r"[a-z]{2,}(-[a-z]+)*:")
_NEARLY_ALL = 0.9

Cells = Sequence[Sequence[str]]


def find_tag_columns(
    sentences: Sequence[Cells], word: int, tag: int, learn: bool
) -> tuple[int, int | None]:
    """Returns the columns of the words and tags of a file, from 0; None if there are no tags.

    Converts tags in brackets to BIO in place. `word` and `tag` are the columns, from 1; 0 to find
    them in the cells of each word, which are as many for every word. With `learn`, there must be
    several tags.
    """
    if is_ontonotes([row for rows in sentences for row in rows]):
        word, tag = word or ONTONOTES[0], tag or ONTONOTES[1]
    columns = [_column(sentences, index) for index in range(len(sentences[0][0]))]
    width, first = len(columns), 0
    while first + 1 < width and (
        _numbers_words(sentences, first)
        or (first + 2 < width and _is_same_in_sentences(sentences, first))
    ):
        first += 1
    if first and first + 1 == width and entity_types(columns[first]) is not None:
        first -= 1  # A column of tags alone; the words are numbers.
    given = word - 1 if word and width > 1 else None
    word = first if given is None else given
    if tag:
        tag -= 1
    else:
        last = tag = _UPOS if first and width == _CONLLU else width - 1
        while tag - 1 > word and _is_nested(*columns[tag - 1 : tag + 1], first, width):
            tag -= 1
        tag = _better(columns, given, word, tag, learn)
        if tag == word == last:
            return word, None
    if word == tag and given is None and width > 1:
        word = tag + 1 if tag + 1 < width else tag - 1
    return word, tag if word != tag < width else None


def is_header(rows: Cells) -> bool:
    """Returns whether the first row names the columns."""
    if len(rows) < 2 or len(rows[0]) < 2 or not _WORDS & set(map(fold, rows[0])):
        return False
    others = [set(column) for column in zip(*rows[1:], strict=False)]
    recurs = any(cell in column for cell, column in zip(rows[0], others, strict=False))
    return not recurs and not any(map(is_entity_tag, rows[0]))


def is_ontonotes(rows: Cells) -> bool:
    """Returns whether a file has the columns of OntoNotes, of which each predicate adds one."""
    return all(
        len(row) >= ONTONOTES[1]
        and row[2].isdecimal()
        and _BRACKETS.fullmatch(row[ONTONOTES[1] - 1])
        for row in rows
    )


def without_ranges(documents: list[list[list]]) -> tuple[list[list[list]], int]:
    """Leaves out token ranges and empty nodes of CoNLL-U; returns their number, too."""
    kept = [
        [[row for row in rows if not _NO_WORD.fullmatch(row[1][0])] for rows in document]
        for document in documents
    ]
    with_ranges, without = (
        [[cells for _, cells in rows] for document in x for rows in document]
        for x in (documents, kept)
    )
    if not without or _numbers_words(with_ranges, 0) or not _numbers_words(without, 0):
        return documents, 0
    left_out = sum(map(len, with_ranges)) - sum(map(len, without))
    return [[rows for rows in document if rows] for document in kept], left_out


def find_prefix(words: Sequence[str]) -> str:
    """Returns the language that precedes nearly all words, such as "en:"; "" if there is none."""
    match = _PREFIX.match(words[0])
    count = sum(word.startswith(match[0]) for word in words) if match else 0
    return match[0] if count >= max(_LEAST_EQUAL, _NEARLY_ALL * len(words)) else ""


def _better(
    columns: Sequence[Sequence[str]], given: int | None, word: int, tag: int, learn: bool
) -> int:
    """Returns the only column of entities, or one of several tags where `tag` has just one."""
    tags = {i: [*filter(is_entity_tag, column)] for i, column in enumerate(columns) if i != given}
    types = {i: entity_types(x) for i, x in tags.items() if 2 * len(x) > len(columns[i])}
    typed = [index for index, found in types.items() if found]
    if tag not in types and len(typed) == 1:
        return typed[0]
    if not learn or len({*columns[tag]}) > 1:
        return tag
    several = [index for index in tags if len({*columns[index]}) > 1]
    entities = [index for index in typed if index in several and not types[index] <= _CHUNKS]
    others = [index for index in several if index > word and columns[tag][0] != "O"]
    return (entities or others or [tag])[-1]


def _column(sentences: Sequence[Cells], index: int) -> list[str]:
    """Returns the cells of a column, tags of entities as "B-TYPE"; replaces tags in brackets."""
    cells = {row[index] for rows in sentences for row in rows}
    if all(map(_BRACKETS.fullmatch, cells)):
        for rows in sentences:
            for row, tag in zip(rows, from_brackets([row[index] for row in rows]), strict=True):
                row[index] = tag
    names = spellings(cells)
    return [names.get(row[index], row[index]) for rows in sentences for row in rows]


def _numbers_words(sentences: Sequence[Cells], index: int) -> bool:
    """Returns whether a column counts the words of every sentence: 1, 2, ... or s1.1, s1.2, ..."""
    steps = 0
    for rows in sentences:
        found = [NUMBERED.fullmatch(row[index]) for row in rows]
        if not all(found):
            return False
        numbers = [(match[1], int(match[2])) for match in found]
        if any(b != (a[0], a[1] + 1) for a, b in zip(numbers, numbers[1:], strict=False)):
            return False
        steps += max(0, len(rows) - 1)
    return steps >= _LEAST_NUMBERED


def _is_same_in_sentences(sentences: Sequence[Cells], index: int) -> bool:
    """Returns whether a column holds one value per sentence, such as the number of the sentence."""
    steps = sum(len(rows) - 1 for rows in sentences)
    return steps >= _LEAST_EQUAL and all(len({row[index] for row in x}) == 1 for x in sentences)


def _is_nested(outer: Sequence[str], inner: Sequence[str], first: int, width: int) -> bool:
    """Returns whether a column holds entities inside those of the column before it."""
    outer, inner = entity_types(outer), entity_types(inner)
    if outer is None or inner is None:
        return False
    # Outside of GermEval, nested entities have the same types, unlike the chunks of CoNLL-2003.
    return first > 0 and width == first + 3 or bool(inner and inner <= outer)

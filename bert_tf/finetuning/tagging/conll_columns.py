"""Finds the columns of words and tags in a CoNLL file."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from bert_tf.finetuning.tables import fold
from bert_tf.finetuning.tagging.tags import entity_types, from_brackets, is_entity_tag, spellings

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

Rows = Sequence[Sequence[str]]


class ConllColumns(NamedTuple):
    """The columns of a file, from 0.

    Attributes:
        word: the words.
        tag: the tags; None if there are none.
        leaves_out: whether to skip token ranges and empty nodes.
    """

    word: int
    tag: int | None
    leaves_out: bool

    def is_word(self, row: Sequence[str]) -> bool:
        """Returns whether a row is a word."""
        return not (self.leaves_out and _NO_WORD.fullmatch(row[0]))


def find_columns(sentences: Sequence[Rows], word: int, tag: int, learn: bool) -> ConllColumns:
    """Returns the columns of the words and tags of a file.

    Args:
        sentences: the cells of each word; every word has the same number of cells.
        word, tag: the columns, from 1; 0 to find them.
        learn: whether the tags are to be learned, so that there must be several.
    """
    width = len(sentences[0][0])
    kept = [[row for row in rows if not _NO_WORD.fullmatch(row[0])] for rows in sentences]
    leaves_out = not _numbers_words(sentences, 0) and _numbers_words(kept, 0)
    if leaves_out:
        sentences = [rows for rows in kept if rows]
    first = 0
    while first + 1 < width and (
        _numbers_words(sentences, first)
        or (first + 2 < width and _is_same_in_sentences(sentences, first))
    ):
        first += 1
    if first and first + 1 == width and entity_types(_column(sentences, first)) is not None:
        first -= 1  # A column of tags alone; the words are numbers.
    given = word - 1 if word and width > 1 else None
    word = first if given is None else given
    if tag:
        tag -= 1
    else:
        last = tag = _UPOS if first and width == _CONLLU else width - 1
        while tag - 1 > word and _is_nested(sentences, tag, first > 0 and width == first + 3):
            tag -= 1
        tag = _only_entities(sentences, given, tag)
        if learn:
            tag = _several_tags(sentences, given, word, tag)
        if tag == word == last:
            return ConllColumns(word, None, leaves_out)
    if word == tag and given is None and width > 1:
        word = tag + 1 if tag + 1 < width else tag - 1
    return ConllColumns(word, tag if word != tag < width else None, leaves_out)


def is_header(rows: Rows) -> bool:
    """Returns whether the first row names the columns."""
    if len(rows) < 2 or len(rows[0]) < 2 or not _WORDS & set(map(fold, rows[0])):
        return False
    others = [set(column) for column in zip(*rows[1:], strict=False)]
    recurs = any(cell in column for cell, column in zip(rows[0], others, strict=False))
    return not recurs and not any(map(is_entity_tag, rows[0]))


def is_ontonotes(rows: Rows) -> bool:
    """Returns whether a file has the columns of OntoNotes, of which each predicate adds one."""
    return all(
        len(row) >= ONTONOTES[1]
        and row[2].isdecimal()
        and _BRACKETS.fullmatch(row[ONTONOTES[1] - 1])
        for row in rows
    )


def convert_brackets(sentences: Sequence[Rows]) -> None:
    """Converts columns of tags in brackets to BIO."""
    for index in range(len(sentences[0][0])):
        cells = {row[index] for rows in sentences for row in rows}
        if all(map(_BRACKETS.fullmatch, cells)):
            for rows in sentences:
                for row, tag in zip(rows, from_brackets([row[index] for row in rows]), strict=True):
                    row[index] = tag


def find_prefix(words: Sequence[str]) -> str:
    """Returns the language that precedes nearly all words, such as "en:"; "" if there is none."""
    match = _PREFIX.match(words[0])
    count = sum(word.startswith(match[0]) for word in words) if match else 0
    return match[0] if count >= max(_LEAST_EQUAL, _NEARLY_ALL * len(words)) else ""


def _only_entities(sentences: Sequence[Rows], word: int | None, tag: int) -> int:
    """Returns the only column of tags of entities, nearly; `tag` if it is one or there is none."""
    columns = [_column(sentences, index) for index in range(len(sentences[0][0]))]
    tags = {i: [*filter(is_entity_tag, column)] for i, column in enumerate(columns) if i != word}
    most = {i: found for i, found in tags.items() if 2 * len(found) > len(columns[i])}
    typed = [index for index, found in most.items() if entity_types(found)]
    return typed[0] if tag not in most and len(typed) == 1 else tag


def _several_tags(sentences: Sequence[Rows], given: int | None, word: int, tag: int) -> int:
    """Returns a column of several tags in place of one that has the same in all rows.

    If that is "O", the other column must have tags of entities.
    """
    columns = [{*_column(sentences, index)} for index in range(len(sentences[0][0]))]
    if tag >= len(columns) or len(columns[tag]) > 1:
        return tag
    several = [index for index, tags in enumerate(columns) if len(tags) > 1 and index != given]
    typed = [i for i in several if (types := entity_types(columns[i])) and not types <= _CHUNKS]
    others = [index for index in several if index > word and columns[tag] != {"O"}]
    return (typed or others or [tag])[-1]


def _column(sentences: Sequence[Rows], index: int) -> list[str]:
    """Returns the cells of a column, tags of entities in their usual spelling."""
    cells = [row[index] for rows in sentences for row in rows]
    names = spellings({*cells})
    return [names.get(cell, cell) for cell in cells]


def _numbers_words(sentences: Sequence[Rows], index: int) -> bool:
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


def _is_same_in_sentences(sentences: Sequence[Rows], index: int) -> bool:
    """Returns whether a column holds one value per sentence, such as the number of the sentence."""
    steps = sum(len(rows) - 1 for rows in sentences)
    return steps >= _LEAST_EQUAL and all(len({row[index] for row in x}) == 1 for x in sentences)


def _is_nested(sentences: Sequence[Rows], tag: int, is_germeval: bool) -> bool:
    """Returns whether a column holds entities inside those of the column before it.

    In other files than GermEval's, these have the same types, unlike the chunks of CoNLL-2003.
    """
    outer, inner = (entity_types(_column(sentences, index)) for index in (tag - 1, tag))
    if outer is None or inner is None:
        return False
    return is_germeval or bool(inner and inner <= outer)

"""Which columns of a CoNLL file hold the words and the tags."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from bert_tf.finetuning.tagging.tags import entity_types

# A range of tokens or an empty node of CoNLL-U, which are no words of the sentence.
_NO_WORD = re.compile(r"\d+[-.]\d+")
NUMBERED = re.compile(r"(.*?)(\d+)")
# Columns of CoNLL-U, and the one of the universal part of speech.
_CONLLU, _UPOS = 10, 3
# So many words in a row must be numbered, or have the same value, before a column is no word.
_LEAST_NUMBERED, _LEAST_EQUAL = 2, 3

Rows = Sequence[Sequence[str]]


class ConllColumns(NamedTuple):
    """The columns of a file, from 0.

    Attributes:
        word: the words.
        tag: the tags; None if there are none.
        leaves_out: whether ranges of tokens and empty nodes are left out.
    """

    word: int
    tag: int | None
    leaves_out: bool

    def is_word(self, row: Sequence[str]) -> bool:
        """Returns whether a row is a word."""
        return not (self.leaves_out and _NO_WORD.fullmatch(row[0]))


def find_columns(sentences: Sequence[Rows], word: int, tag: int) -> ConllColumns:
    """Returns the columns of the words and tags of a file.

    Args:
        sentences: the cells of each word, as many for all words.
        word, tag: the columns, from 1; 0 to find them.
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
    word = first if not word or width == 1 else word - 1
    if tag:
        tag -= 1
    else:
        tag = _UPOS if first and width == _CONLLU else width - 1
        while tag - 1 > word and _is_nested(sentences, tag, first > 0 and width == first + 3):
            tag -= 1
    return ConllColumns(word, tag if word != tag < width else None, leaves_out)


def _column(sentences: Sequence[Rows], index: int) -> list[str]:
    return [row[index] for rows in sentences for row in rows]


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

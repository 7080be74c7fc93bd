"""Phrases that are masked as one unit, like the entities of ERNIE (arXiv:1904.09223)."""

import functools
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.corpus.sources import checked_content
from bert_tf.corpus.utf8 import decode
from bert_tf.text.tokenizer import WordPieceTokenizer


class Lexicon:
    """Finds phrases in tokenized text.

    A phrase that the vocabulary cannot spell is never found.

    Args:
        phrases: words and phrases as they appear in text.
        tokenizer: the tokenizer of the text.
    """

    def __init__(self, phrases: Sequence[str], tokenizer: WordPieceTokenizer) -> None:
        self._vocab_size = len(tokenizer.vocab)
        lines = [phrase.encode("utf-8") for phrase in phrases]
        token_ids, splits = tokenizer.tokenize_lines(lines)
        # A trie: each state stands for a prefix of phrases, state 0 for the empty prefix.
        states: dict[tuple[int, int], int] = {}
        ends = set()
        unk_id = tokenizer.vocab.unk_id
        for phrase in np.split(token_ids, splits[1:-1]):
            state = 0
            if len(phrase) and unk_id not in phrase:
                for token_id in phrase.tolist():
                    state = states.setdefault((state, token_id), len(states) + 1)
                ends.add(state)
        # State and token are packed into one number and sorted, for a vectorized search.
        keys = [state * self._vocab_size + token_id for state, token_id in states]
        order = np.argsort(np.array(keys, np.int64))
        self._keys = np.array(keys, np.int64)[order]
        self._next = np.array([*states.values()], np.int64)[order]
        self._is_end = np.zeros(len(states) + 1, np.bool_)
        self._is_end[list(ends)] = True

    def join_units(
        self, token_ids: np.ndarray, unit_starts: np.ndarray, sentence_starts: np.ndarray
    ) -> np.ndarray:
        """Returns `unit_starts` [T] with every phrase joined into one unit.

        Takes the longest phrases, from left to right. A phrase begins and ends at borders of units
        and lies within one sentence.

        Args:
            token_ids: [T] ids.
            unit_starts: [T] bool. Every sentence begins a unit.
            sentence_starts: [sentences + 1].
        """
        joined = unit_starts.copy()
        for start, end in self.find(token_ids, unit_starts, sentence_starts):
            joined[start + 1 : end] = False
        return joined

    def find(
        self, token_ids: np.ndarray, unit_starts: np.ndarray, sentence_starts: np.ndarray
    ) -> Iterator[tuple[int, int]]:
        """Yields where the phrases that `join_units` joins begin and end, in ascending order."""
        free = 0
        for start, end in zip(*self._longest(token_ids, unit_starts, sentence_starts), strict=True):
            if start >= free:
                yield start, end
                free = end

    def _longest(
        self, token_ids: np.ndarray, unit_starts: np.ndarray, sentence_starts: np.ndarray
    ) -> tuple[list[int], list[int]]:
        """Returns where phrases begin, in ascending order, and where the longest of each ends."""
        size = len(token_ids)
        may_end = np.append(unit_starts, True)
        is_border = np.zeros(size + 1, np.bool_)
        is_border[sentence_starts] = True
        is_border[size] = True
        begin = place = np.flatnonzero(unit_starts)
        state = np.zeros(len(begin), np.int64)
        longest = np.zeros(size, np.int64)
        while len(place) and len(self._keys):
            key = state * self._vocab_size + token_ids[place]
            found = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
            match = self._keys[found] == key
            begin, place, state = begin[match], place[match] + 1, self._next[found[match]]
            whole = self._is_end[state] & may_end[place]
            longest[begin[whole]] = place[whole]
            inside = ~is_border[place]
            begin, place, state = begin[inside], place[inside], state[inside]
        starts = np.flatnonzero(longest)
        return starts.tolist(), longest[starts].tolist()


@functools.lru_cache(maxsize=1)
def load_lexicon(phrases: tuple[str, ...], tokenizer: WordPieceTokenizer) -> Lexicon:
    """Returns the lexicon, which each process builds only once."""
    return Lexicon(phrases, tokenizer)


def read_phrases(file: str) -> tuple[str, ...]:
    """Reads a file with one phrase per line."""
    content, invalid = decode(b"".join(checked_content(file)))
    if invalid:
        raise ValueError(f"the lexicon {file} has {invalid:,} lines that are not UTF-8")
    phrases = [line.strip() for line in content.split("\n")]
    if not any(phrases):
        raise ValueError(f"the lexicon {file} is empty: write one phrase per line")
    return tuple(filter(None, dict.fromkeys(phrases)))

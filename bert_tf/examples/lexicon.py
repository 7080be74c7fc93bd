"""Words and phrases that are masked as one, as entities are in ERNIE (arXiv 1904.09223)."""

import functools
from collections.abc import Sequence

import numpy as np

from bert_tf.text.tokenizer import WordPieceTokenizer


class Lexicon:
    """Finds phrases in text, both as WordPieces.

    A phrase that the vocabulary cannot spell is never found.

    Args:
        phrases: as they stand in a text.
        tokenizer: the one of the text.
    """

    def __init__(self, phrases: Sequence[str], tokenizer: WordPieceTokenizer) -> None:
        self._vocab_size = len(tokenizer.vocab)
        lines = [phrase.encode("utf-8") for phrase in phrases]
        pieces, splits = tokenizer.tokenize_lines(lines)
        # A trie: each state is a beginning of phrases, state 0 the empty one.
        states: dict[tuple[int, int], int] = {}
        ends = set()
        unk_id = tokenizer.vocab.unk_id
        for phrase in np.split(pieces, splits[1:-1]):
            state = 0
            if len(phrase) and unk_id not in phrase:
                for piece in phrase.tolist():
                    state = states.setdefault((state, piece), len(states) + 1)
                ends.add(state)
        # Sorted by state and piece, as one number.
        keys = [state * self._vocab_size + piece for state, piece in states]
        order = np.argsort(np.array(keys, np.int64))
        self._keys = np.array(keys, np.int64)[order]
        self._next = np.array([*states.values()], np.int64)[order]
        self._is_end = np.zeros(len(states) + 1, np.bool_)
        self._is_end[list(ends)] = True

    def join_units(
        self, pieces: np.ndarray, unit_starts: np.ndarray, sentence_starts: np.ndarray
    ) -> np.ndarray:
        """`unit_starts` [T] with each phrase found as one unit.

        From the left, the longest phrase that begins and ends where units do is taken, inside one
        sentence.

        Args:
            pieces: [T] ids.
            unit_starts: [T] bool; sentences begin units.
            sentence_starts: [sentences + 1].
        """
        unit_starts = unit_starts.copy()
        free = 0
        for start, end in zip(*self._longest(pieces, unit_starts, sentence_starts), strict=True):
            if start >= free:
                unit_starts[start + 1 : end] = False
                free = end
        return unit_starts

    def _longest(
        self, pieces: np.ndarray, unit_starts: np.ndarray, sentence_starts: np.ndarray
    ) -> tuple[list[int], list[int]]:
        """Where phrases begin, ascending, and where the longest from there ends."""
        size = len(pieces)
        may_end = np.append(unit_starts, True)
        is_border = np.zeros(size + 1, np.bool_)
        is_border[sentence_starts] = True
        is_border[size] = True
        begin = place = np.flatnonzero(unit_starts)
        state = np.zeros(len(begin), np.int64)
        longest = np.zeros(size, np.int64)
        while len(place) and len(self._keys):
            key = state * self._vocab_size + pieces[place]
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
    """The lexicon, made once in a process."""
    return Lexicon(phrases, tokenizer)

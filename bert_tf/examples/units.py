"""Units of masking other than the tokenizer's words: words of a segmenter, phrases of a lexicon."""

import functools
import importlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bert_tf.corpus.content import checked_content, decode
from bert_tf.text.tokenizer import WordPieceTokenizer

Segmenter = Callable[[str], Sequence[str]]


@functools.lru_cache(maxsize=1)
def load_segmenter(name: str) -> Segmenter:
    """Returns the function that splits a string into words.

    Args:
        name: "whitespace" for text that is already segmented, or "module:function", such as
            "jieba:lcut".
    """
    if name == "whitespace":
        return str.split
    module, _, function = name.partition(":")
    try:
        segmenter = importlib.import_module(module)
        for part in function.split("."):
            segmenter = getattr(segmenter, part)
    except (ImportError, AttributeError, SyntaxError, TypeError, ValueError) as error:
        raise ValueError(
            f"no segmenter {name!r} ({error}): give 'whitespace' or MODULE:FUNCTION of an "
            "installed module, such as jieba:lcut"
        ) from None
    return segmenter


def tokenize_words(
    lines: Sequence[bytes], tokenizer: WordPieceTokenizer, name: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokenizes lines as usual, and marks the tokens that begin a word of the segmenter.

    If a word begins inside a token, the next token begins the unit.

    Returns:
        ids [T] int32, the first token of each line [B + 1] int64, unit starts [T] bool.
    """
    segmenter = load_segmenter(name)
    ids, token_starts, _ = tokenizer.tokenize_with_offsets(lines)
    ids, token_starts = ids.merge_dims(1, 2), token_starts.merge_dims(1, 2)
    splits = ids.row_splits.numpy()
    # Offsets into all lines joined together.
    line_starts = np.cumsum([0] + [len(line) for line in lines])
    places = token_starts.values.numpy() + np.repeat(line_starts[:-1], np.diff(splits))
    word_starts = np.array(
        [
            start + offset
            for start, line in zip(line_starts.tolist(), lines, strict=False)
            for offset in _word_offsets(line, segmenter, name)
        ],
        np.int64,
    )
    word = np.searchsorted(word_starts, places, side="right")
    unit_starts = np.diff(word, prepend=-1) != 0
    unit_starts[splits[:-1][np.diff(splits) > 0]] = True
    return ids.values.numpy(), splits, unit_starts


def _word_offsets(line: bytes, segmenter: Segmenter, name: str) -> Iterator[int]:
    """Yields where the words of the segmenter begin."""
    text = line.decode("utf-8")
    try:
        words = [word.strip().encode("utf-8") for word in segmenter(text)]
    except Exception as error:  # The user's function may raise anything.
        raise ValueError(
            f"the segmenter {name!r} fails on {text[:80]!r}: {type(error).__name__}: {error}"
        ) from error
    if text.strip() and not any(words):
        raise ValueError(f"the segmenter {name!r} finds no words in {text[:80]!r}")
    end = 0
    for word in filter(None, words):
        start = line.find(word, end)
        if start < 0:
            raise ValueError(
                f"the segmenter {name!r} returns {word.decode('utf-8')!r}, which is not in the "
                f"rest of the text {text[:80]!r}"
            )
        yield start
        end = start + len(word)


class Lexicon:
    """Finds phrases in tokenized text. One that the vocabulary cannot spell is never found."""

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
        size = len(token_ids)
        may_end = np.append(unit_starts, True)
        is_border = np.zeros(size + 1, np.bool_)
        is_border[sentence_starts] = True
        is_border[size] = True
        begin = place = np.flatnonzero(unit_starts)
        state = np.zeros(len(begin), np.int64)
        # Where the longest of the phrases that begin at a token ends; 0 without one.
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
        free = 0
        for start, end in zip(starts.tolist(), longest[starts].tolist(), strict=True):
            if start >= free:
                yield start, end
                free = end


# Each process builds a lexicon only once.
load_lexicon = functools.lru_cache(maxsize=1)(Lexicon)


def read_phrases(file: str) -> tuple[str, ...]:
    """Reads a file with one phrase per line."""
    content, invalid = decode(b"".join(checked_content(file)))
    if invalid:
        raise ValueError(f"the lexicon {file} has {invalid:,} lines that are not UTF-8")
    phrases = [line.strip() for line in content.split("\n")]
    if not any(phrases):
        raise ValueError(f"the lexicon {file} is empty: write one phrase per line")
    return tuple(filter(None, dict.fromkeys(phrases)))

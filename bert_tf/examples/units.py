"""Units of masking other than the tokenizer's words: words of a segmenter, phrases of a lexicon."""

import functools
import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bert_tf.base.content import checked_content, decode
from bert_tf.text.tokenizer import WordPieceTokenizer

Segmenter = Callable[[str], Sequence[str]]


@functools.lru_cache(maxsize=1)
def load_segmenter(name: str) -> Segmenter:
    """Returns the function that splits a string into words.

    It is named "module:function", such as "jieba:lcut", or "whitespace" for text that is already
    segmented.
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
        # Each node maps tokens to the nodes after them; the key None marks the end of a phrase.
        self._trie: dict[int | None, dict] = {}
        token_ids, splits = tokenizer.tokenize_lines([phrase.encode() for phrase in phrases])
        for phrase in np.split(token_ids, splits[1:-1]):
            if len(phrase) and tokenizer.vocab.unk_id not in phrase:
                node = self._trie
                for token_id in phrase.tolist():
                    node = node.setdefault(token_id, {})
                node[None] = {}

    def join_units(
        self, token_ids: np.ndarray, unit_starts: np.ndarray, sentence_starts: np.ndarray
    ) -> np.ndarray:
        """Returns `unit_starts` with every phrase that `find` yields joined into one unit."""
        joined = unit_starts.copy()
        for start, end in self.find(token_ids, unit_starts, sentence_starts):
            joined[start + 1 : end] = False
        return joined

    def find(
        self, token_ids: np.ndarray, unit_starts: np.ndarray, sentence_starts: np.ndarray
    ) -> Iterator[tuple[int, int]]:
        """Yields where the longest phrases begin and end, from left to right.

        A phrase begins and ends at borders of units and lies within one sentence.

        Args:
            token_ids: [T] ids.
            unit_starts: [T] bool. Every sentence begins a unit.
            sentence_starts: [sentences + 1], of which the last is T.
        """
        ids, is_border = token_ids.tolist(), [*unit_starts.tolist(), True]
        for place, limit in itertools.pairwise(sentence_starts.tolist()):
            while place < limit:
                node, longest = self._trie, None
                if is_border[place]:
                    for end in range(place, limit):
                        if (node := node.get(ids[end])) is None:
                            break
                        if None in node and is_border[end + 1]:
                            longest = end + 1
                if longest:
                    yield place, longest
                place = longest or place + 1


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

"""Turns a block of text into a chunk of tokenized documents, with their units of masking.

These are the words of the tokenizer or of a segmenter, or phrases of a lexicon.
"""

import functools
import itertools
import pkgutil
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bert_tf.base.content import checked_content, decode
from bert_tf.corpus.reading import read_sentences
from bert_tf.corpus.sources import Block
from bert_tf.examples.chunk import Chunk, TextCounts
from bert_tf.examples.creation_options import DataOptions
from bert_tf.text.tokenizer import WordPieceTokenizer

# The bytes of text tokenized at once, which takes about ten times as much memory.
TOKENIZE_BYTES = 2**23
Segmenter = Callable[[str], Sequence[str]]


def make_chunk(
    block: Block, tokenizer: WordPieceTokenizer, options: DataOptions, lexicon: tuple[str, ...] = ()
) -> tuple[Chunk, TextCounts]:
    """Tokenizes the documents of a block. A pure function.

    In plain text, a line is a sentence, or a paragraph with `split_sentences`. In JSON lines, each
    string is a document. Lines end with LF or CRLF. Bytes that are not valid UTF-8 are dropped and
    counted. The options have all defaults resolved. Each phrase of the lexicon is one unit of
    masking; the longest match wins.
    """
    counts = TextCounts(bytes=len(block.data))
    sentences: list[bytes] = []
    document_ends = [0]
    for lines in read_sentences(block, options, counts):
        sentences += [line.encode("utf-8") for line in lines]
        document_ends.append(len(sentences))
    token_ids, splits, unit_starts = _tokenize(sentences, tokenizer, options.segmenter)
    if lexicon:
        unit_starts = load_lexicon(lexicon, tokenizer).join_units(token_ids, unit_starts, splits)
    # Leaves out sentences without tokens, then documents without sentences.
    full = np.diff(splits) > 0
    document_starts = np.append(0, np.cumsum(full))[document_ends]
    full_documents = np.diff(document_starts) > 0
    document_starts = np.append(document_starts[:-1][full_documents], document_starts[-1])
    chunk = Chunk(
        token_ids=token_ids,
        unit_starts=unit_starts,
        sentence_starts=np.append(splits[:-1][full], len(token_ids)).astype(np.int64),
        document_starts=document_starts.astype(np.int64),
    )
    counts.documents = chunk.num_documents
    counts.empty_documents = len(document_ends) - 1 - counts.documents
    counts.single_sentences = int(np.count_nonzero(np.diff(document_starts) == 1))
    counts.sentences = int(document_starts[-1])
    counts.empty_sentences = len(sentences) - counts.sentences
    counts.tokens = len(token_ids)
    counts.unknown_tokens = int(np.count_nonzero(token_ids == tokenizer.vocab.unk_id))
    return chunk, counts


def _tokenize(
    sentences: Sequence[bytes], tokenizer: WordPieceTokenizer, segmenter: str | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns ids [T] int32, the first token of each sentence [sentences + 1], unit starts [T]."""
    parts = [(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.bool_))]
    first = size = 0
    for end, sentence in enumerate(sentences, start=1):
        size += len(sentence)
        if size < TOKENIZE_BYTES and end < len(sentences):
            continue
        if segmenter:
            token_ids, splits, starts = tokenize_words(sentences[first:end], tokenizer, segmenter)
        else:
            token_ids, splits = tokenizer.tokenize_lines(sentences[first:end])
            starts = tokenizer.starts_word[token_ids]
        parts.append((token_ids, np.diff(splits), starts))
        first, size = end, 0
    token_ids, lengths, starts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return token_ids, np.append(0, np.cumsum(lengths)), starts


@functools.lru_cache(maxsize=1)
def load_segmenter(name: str) -> Segmenter:
    """Returns the function, from text to words, that "module:function" or "whitespace" names."""
    if name == "whitespace":
        return str.split
    try:
        if not callable(segmenter := pkgutil.resolve_name(name)):
            raise ValueError("not a function")
    except (ImportError, AttributeError, SyntaxError, ValueError) as error:
        raise ValueError(
            f"no segmenter {name!r} ({error}): give 'whitespace' or MODULE:FUNCTION of an "
            "installed module, such as jieba:lcut"
        ) from None
    return segmenter


def tokenize_words(
    lines: Sequence[bytes], tokenizer: WordPieceTokenizer, name: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokenizes lines as usual, and marks the tokens that begin a word of the segmenter.

    If a word begins inside a token, the next token begins the unit. Returns ids [T] int32, the
    first token of each line [B + 1] int64, and unit starts [T] bool.
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

        A phrase begins and ends at borders of units and lies within one sentence. The arrays are
        those of a `Chunk`.
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

"""Turns a block of text into a chunk of tokenized documents."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from bert_tf.corpus.cleaning import line_rule, sentence_rule
from bert_tf.corpus.lines import (
    DEFAULT_LAYOUT,
    Layout,
    check_language,
    read_documents,
    split_sentences,
)
from bert_tf.corpus.sources import Block
from bert_tf.corpus.wrapping import count_wrapped
from bert_tf.examples.chunk import Chunk
from bert_tf.examples.units import load_lexicon, load_segmenter, tokenize_words
from bert_tf.text.tokenizer import WordPieceTokenizer

# The bytes of text tokenized at once, which takes about ten times as much memory.
TOKENIZE_BYTES = 2**23


@dataclass(frozen=True, kw_only=True)
class TextSettings:
    """How to read text.

    Attributes:
        lower_case: whether to lower-case the text and strip accents.
        layout: what a document is, and whether its lines are wrapped.
        split_sentences: whether lines are paragraphs to be split by the rules of `language`.
        language: an ISO 639 code, such as "de".
        clean: whether to drop lines and sentences by the rules of `corpus.cleaning`.
        segmenter: a function whose words replace the tokenizer's words as units of masking; see
            `units.load_segmenter`.
        lexicon: phrases, each of which is one unit of masking. The longest match wins.
    """

    lower_case: bool = True
    layout: Layout = DEFAULT_LAYOUT
    split_sentences: bool = False
    language: str = "en"
    clean: bool = False
    segmenter: str | None = None
    lexicon: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_language(self.language)
        if self.segmenter is not None:
            load_segmenter(self.segmenter)


@dataclass
class TextCounts:
    """Sums over the text that was read.

    Attributes:
        lines: lines that are not blank, or paragraphs if those are split.
        wrapped_lines: lines that look hard-wrapped and were not joined.
        invalid_lines: lines that are not valid UTF-8, by the name of the file.
        empty_documents: documents without a token.
        single_sentences: documents of one sentence.
        empty_sentences: sentences without a token.
        left_out: how many lines and sentences each rule of cleaning dropped.
        characters: characters of the lines.
        left_out_characters: how many of them cleaning dropped.
    """

    bytes: int = 0
    lines: int = 0
    wrapped_lines: int = 0
    invalid_lines: dict[str, int] = field(default_factory=dict)
    documents: int = 0
    empty_documents: int = 0
    single_sentences: int = 0
    sentences: int = 0
    empty_sentences: int = 0
    tokens: int = 0
    unknown_tokens: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    characters: int = 0
    left_out_characters: int = 0

    def __add__(self, other: "TextCounts") -> "TextCounts":
        sums = {}
        for name, mine in vars(self).items():
            theirs = getattr(other, name)
            if isinstance(mine, dict):
                keys = dict.fromkeys([*mine, *theirs])
                sums[name] = {key: mine.get(key, 0) + theirs.get(key, 0) for key in keys}
            else:
                sums[name] = mine + theirs
        return TextCounts(**sums)


def make_chunk(
    block: Block, tokenizer: WordPieceTokenizer, settings: TextSettings
) -> tuple[Chunk, TextCounts]:
    """Tokenizes the documents of a block. A pure function.

    In plain text, `settings.layout` says what a document is, and a line is a sentence, or a
    paragraph with `split_sentences`. In JSON lines, each string is a document. Lines end with LF or
    CRLF. Bytes that are not valid UTF-8 are dropped and counted.
    """
    counts = TextCounts(bytes=len(block.data))
    sentences: list[bytes] = []
    document_ends = [0]
    for lines in _documents(block, settings.layout, counts):
        if settings.clean or settings.split_sentences:
            lines = list(_sentences(lines, settings, counts))
        sentences += [line.encode("utf-8") for line in lines]
        document_ends.append(len(sentences))
    token_ids, splits, unit_starts = _tokenize(sentences, tokenizer, settings)
    chunk = _without_empty(token_ids, unit_starts, splits, np.array(document_ends))
    counts.documents = chunk.num_documents
    counts.empty_documents = len(document_ends) - 1 - counts.documents
    counts.single_sentences = int(np.count_nonzero(np.diff(chunk.document_starts) == 1))
    counts.sentences = int(chunk.document_starts[-1])
    counts.empty_sentences = len(sentences) - counts.sentences
    counts.tokens = len(token_ids)
    counts.unknown_tokens = int(np.count_nonzero(token_ids == tokenizer.vocab.unk_id))
    return chunk, counts


def _documents(block: Block, layout: Layout, counts: TextCounts) -> Iterator[list[str]]:
    """Yields and counts the lines of every document."""
    for file, text in block.texts(counts.invalid_lines):
        for lines in read_documents(text, block.kind, file, layout):
            counts.lines += len(lines)
            counts.characters += sum(map(len, lines))
            counts.wrapped_lines += 0 if layout.unwrap else count_wrapped(lines)
            yield lines


def _without_empty(
    token_ids: np.ndarray, unit_starts: np.ndarray, splits: np.ndarray, document_ends: np.ndarray
) -> Chunk:
    """Returns a chunk without the sentences and documents that have no tokens."""
    full = np.diff(splits) > 0
    # The number of nonempty sentences before each end of a document.
    document_starts = np.append(0, np.cumsum(full))[document_ends]
    full_documents = np.diff(document_starts) > 0
    document_starts = np.append(document_starts[:-1][full_documents], document_starts[-1])
    return Chunk(
        token_ids=token_ids,
        unit_starts=unit_starts,
        sentence_starts=np.append(splits[:-1][full], len(token_ids)).astype(np.int64),
        document_starts=document_starts.astype(np.int64),
    )


def _sentences(lines: Sequence[str], settings: TextSettings, counts: TextCounts) -> Iterator[str]:
    """Yields the sentences of a document, split and cleaned as the settings say."""

    def drop(text: str, rule: str | None) -> bool:
        if rule:
            counts.left_out[rule] = counts.left_out.get(rule, 0) + 1
            counts.left_out_characters += len(text)
        return bool(rule)

    for number, line in enumerate(lines):
        if settings.clean and drop(line, line_rule(line, number == 0, settings.split_sentences)):
            continue
        if not settings.split_sentences:
            yield line
            continue
        for sentence in split_sentences(line, settings.language):
            if not (settings.clean and drop(sentence, sentence_rule(sentence))):
                yield sentence


def _tokenize(
    sentences: Sequence[bytes], tokenizer: WordPieceTokenizer, settings: TextSettings
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns ids [T] int32, the first token of each sentence [sentences + 1], unit starts [T]."""
    parts = [(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.bool_))]
    for batch in _batches(sentences):
        if settings.segmenter:
            token_ids, splits, starts = tokenize_words(batch, tokenizer, settings.segmenter)
        else:
            token_ids, splits = tokenizer.tokenize_lines(batch)
            starts = tokenizer.starts_word[token_ids]
        parts.append((token_ids, np.diff(splits), starts))
    token_ids, lengths, starts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    splits = np.append(0, np.cumsum(lengths))
    if settings.lexicon:
        starts = load_lexicon(settings.lexicon, tokenizer).join_units(token_ids, starts, splits)
    return token_ids, splits, starts


def _batches(sentences: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    start = size = 0
    for index, sentence in enumerate(sentences):
        size += len(sentence)
        if size >= TOKENIZE_BYTES or index == len(sentences) - 1:
            yield sentences[start : index + 1]
            start, size = index + 1, 0

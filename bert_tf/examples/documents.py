"""A block of text to a chunk of tokenized documents."""

import dataclasses
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf

from bert_tf.corpus.cleaning import line_rule, sentence_rule
from bert_tf.corpus.lines import decode, read_documents
from bert_tf.corpus.sentences import split_sentences
from bert_tf.corpus.sources import Block
from bert_tf.examples.lexicon import load_lexicon
from bert_tf.examples.segmenter import load_segmenter, tokenize_words
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.writer import atomic_write

# Tokenized at once; it takes about ten times the memory.
TOKENIZE_BYTES = 2**23


@dataclass(frozen=True)
class Chunk:
    """Some documents of a corpus, none of their sentences empty.

    Attributes:
        pieces: [T] int32, the WordPiece ids of all sentences.
        unit_starts: [T] bool, which pieces begin a unit of masking: a word, or a word of a
            segmenter, or a phrase of a lexicon. A sentence always begins one.
        sentence_starts: [sentences + 1] int64, where in `pieces` each begins; the last is T.
        document_starts: [documents + 1] int64, the first sentence of each; the last is `sentences`.
    """

    pieces: np.ndarray
    unit_starts: np.ndarray
    sentence_starts: np.ndarray
    document_starts: np.ndarray

    @property
    def num_documents(self) -> int:
        return len(self.document_starts) - 1


@dataclass(frozen=True)
class TextSettings:
    """How text is read.

    Attributes:
        json_field: the field of JSON lines that holds the text.
        split_sentences: whether lines are paragraphs, to be split by the rules of `language`.
        language: ISO 639 code, such as "de".
        clean: whether to leave out what `cleaning` says.
        segmenter: what makes the units of masking in place of the tokenizer's words; see
            `segmenter.load_segmenter`.
        lexicon: phrases that are units of masking as a whole; the longest counts.

    Raises:
        ValueError: there is no such segmenter.
    """

    json_field: str = "text"
    split_sentences: bool = False
    language: str = "en"
    clean: bool = False
    segmenter: str | None = None
    lexicon: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.segmenter is not None:
            load_segmenter(self.segmenter)


@dataclass
class TextCounts:
    """What was read.

    `lines` (paragraphs, where they are split) are those that are not blank, `left_out` how many
    lines and sentences each rule of cleaning took, `empty_sentences` and `empty_documents` those of
    which no piece is left.
    """

    bytes: int = 0
    lines: int = 0
    invalid_lines: int = 0
    documents: int = 0
    empty_documents: int = 0
    sentences: int = 0
    empty_sentences: int = 0
    tokens: int = 0
    unknown_tokens: int = 0
    left_out: dict[str, int] = field(default_factory=dict)

    def __add__(self, other: "TextCounts") -> "TextCounts":
        sums = {}
        for name, mine in vars(self).items():
            theirs = getattr(other, name)
            if name == "left_out":
                rules = dict.fromkeys([*mine, *theirs])
                sums[name] = {rule: mine.get(rule, 0) + theirs.get(rule, 0) for rule in rules}
            else:
                sums[name] = mine + theirs
        return TextCounts(**sums)

    def to_dict(self) -> dict:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict) -> "TextCounts":
        return cls(**values)


def make_chunk(
    block: Block, tokenizer: WordPieceTokenizer, settings: TextSettings
) -> tuple[Chunk, TextCounts]:
    """The documents of a block. A pure function.

    In text a blank line ends a document, and a line is a sentence, or a paragraph with
    `split_sentences`. In JSON lines each string is a document, whose lines are the same; blank ones
    among them mean nothing. Lines end with LF or CRLF. What is not UTF-8 is dropped and counted.

    Raises:
        ValueError: a line of JSON holds no text, or the segmenter's words are not in the text.
    """
    counts = TextCounts(bytes=len(block.data))
    text, counts.invalid_lines = decode(block.data)
    sentences: list[bytes] = []
    ends = [0]
    for lines in read_documents(block, text, settings.json_field):
        counts.lines += len(lines)
        if settings.clean or settings.split_sentences:
            lines = list(_sentences(lines, settings, counts))
        sentences += [line.encode("utf-8") for line in lines]
        ends.append(len(sentences))
    pieces, splits, unit_starts = _tokenize(sentences, tokenizer, settings)
    full = np.diff(splits) > 0
    # The number of full sentences before each border of documents.
    document_starts = np.append(0, np.cumsum(full))[ends]
    full_documents = np.diff(document_starts) > 0
    chunk = Chunk(
        pieces=pieces,
        unit_starts=unit_starts,
        sentence_starts=np.append(splits[:-1][full], len(pieces)).astype(np.int64),
        document_starts=np.append(document_starts[:-1][full_documents], document_starts[-1]).astype(
            np.int64
        ),
    )
    counts.documents = chunk.num_documents
    counts.empty_documents = len(full_documents) - chunk.num_documents
    counts.sentences = int(document_starts[-1])
    counts.empty_sentences = len(full) - counts.sentences
    counts.tokens = len(pieces)
    counts.unknown_tokens = int(np.count_nonzero(pieces == tokenizer.vocab.unk_id))
    return chunk, counts


def _sentences(lines: Sequence[str], settings: TextSettings, counts: TextCounts) -> Iterator[str]:
    """The sentences of a document, split and cleaned as the settings say."""

    def leave_out(rule: str | None) -> bool:
        if rule:
            counts.left_out[rule] = counts.left_out.get(rule, 0) + 1
        return bool(rule)

    for number, line in enumerate(lines):
        if settings.clean and leave_out(line_rule(line, number == 0, settings.split_sentences)):
            continue
        if not settings.split_sentences:
            yield line
            continue
        for sentence in split_sentences(line, settings.language):
            if not (settings.clean and leave_out(sentence_rule(sentence))):
                yield sentence


def _tokenize(
    sentences: Sequence[bytes], tokenizer: WordPieceTokenizer, settings: TextSettings
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """ids [T] int32, where in them each sentence begins [sentences + 1], unit starts [T] bool."""
    parts = [(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.bool_))]
    for batch in _batches(sentences):
        if settings.segmenter:
            pieces, splits, starts = tokenize_words(batch, tokenizer, settings.segmenter)
        else:
            pieces, splits = tokenizer.tokenize_lines(batch)
            starts = tokenizer.starts_word[pieces]
        parts.append((pieces, np.diff(splits), starts))
    pieces, lengths, starts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    splits = np.append(0, np.cumsum(lengths))
    if settings.lexicon:
        starts = load_lexicon(settings.lexicon, tokenizer).join_units(pieces, starts, splits)
    return pieces, splits, starts


def _batches(sentences: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    start = size = 0
    for index, sentence in enumerate(sentences):
        size += len(sentence)
        if size >= TOKENIZE_BYTES or index == len(sentences) - 1:
            yield sentences[start : index + 1]
            start, size = index + 1, 0


def save_chunk(path: str, chunk: Chunk) -> None:
    """Writes a chunk, whole or not at all, in about two bytes a piece.

    Raises:
        OSError: the file cannot be written.
    """
    file = io.BytesIO()
    np.savez(
        file,
        pieces=_compact(chunk.pieces),
        unit_starts=np.packbits(chunk.unit_starts),
        sentence_lengths=_compact(np.diff(chunk.sentence_starts)),
        document_lengths=_compact(np.diff(chunk.document_starts)),
    )
    atomic_write(path, file.getvalue())


def load_chunk(path: str) -> Chunk:
    """Reads what `save_chunk` wrote.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            data = file.read()
    except tf.errors.OpError as error:
        raise OSError(f"cannot read {path}: {error.message}") from error
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        pieces = arrays["pieces"].astype(np.int32)
        return Chunk(
            pieces=pieces,
            unit_starts=np.unpackbits(arrays["unit_starts"], count=len(pieces)).astype(np.bool_),
            sentence_starts=_borders(arrays["sentence_lengths"]),
            document_starts=_borders(arrays["document_lengths"]),
        )


def _compact(values: np.ndarray) -> np.ndarray:
    return values.astype(np.min_scalar_type(values.max(initial=0)))


def _borders(lengths: np.ndarray) -> np.ndarray:
    return np.append(0, np.cumsum(lengths, dtype=np.int64))

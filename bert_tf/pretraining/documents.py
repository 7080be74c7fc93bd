"""Text files to chunks of tokenized documents: flat arrays of a bounded number of tokens."""

import codecs
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.text.vocab import Vocabulary

READ_BYTES = 2**22
TOKENIZE_CHARACTERS = 2**20


@dataclass(frozen=True)
class Chunk:
    """Some consecutive documents of a corpus, none of their sentences empty.

    Attributes:
        pieces: [T] int32, the WordPiece ids of all sentences.
        unit_starts: [T] bool, which pieces begin a unit of masking: a word. A sentence does.
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


@dataclass
class TextCounts:
    """What was read. `read_lines` and `tokenized_documents` count as they go."""

    bytes: int = 0
    invalid_lines: int = 0
    documents: int = 0
    empty_documents: int = 0
    sentences: int = 0
    empty_sentences: int = 0
    tokens: int = 0
    unknown_tokens: int = 0


def read_lines(files: Sequence[str], counts: TextCounts) -> Iterator[str]:
    """The lines of the files, stripped; an empty line ends a document, and so does every file.

    Lines end with LF or CRLF; a byte order mark is dropped. What is not UTF-8 is replaced by
    U+FFFD, which the tokenizer drops, and counted.

    Raises:
        OSError: a file cannot be read.
    """
    for file in files:
        for number, line in enumerate(_split_lines(file)):
            counts.bytes += len(line) + 1
            if number == 0:
                line = line.removeprefix(codecs.BOM_UTF8)
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError:
                text = line.decode("utf-8", errors="replace")
                counts.invalid_lines += 1
            yield text.strip()
        yield ""


def _split_lines(file: str) -> Iterator[bytes]:
    rest = b""
    for block in _read_blocks(file):
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _read_blocks(file: str) -> Iterator[bytes]:
    try:
        with tf.io.gfile.GFile(file, "rb") as stream:
            while block := stream.read(READ_BYTES):
                yield block
    except tf.errors.OpError as error:
        raise OSError(f"cannot read {file}: {error.message}") from error


def tokenized_documents(
    lines: Iterable[str], tokenizer: WordPieceTokenizer, counts: TextCounts
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Documents as (pieces [T] int32, sentence lengths [sentences]), unless without a piece.

    Args:
        lines: one sentence each, "" at the end of every document, as `read_lines` gives them.
    """
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    for batch in _batches(lines):
        ragged = tokenizer.tokenize_flat(tf.constant(batch))
        pieces, splits = ragged.values.numpy(), ragged.row_splits.numpy()
        start = 0
        for end in [index for index, line in enumerate(batch) if not line] + [len(batch)]:
            lengths = np.diff(splits[start : end + 1])
            parts.append((pieces[splits[start] : splits[end]], lengths))
            start = end + 1
            if end < len(batch):
                document = tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))
                parts = []
                if _count_document(*document, tokenizer.vocab.unk_id, counts):
                    yield document[0], document[1][document[1] > 0]


def _batches(lines: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for line in lines:
        batch.append(line)
        characters += len(line)
        if characters >= TOKENIZE_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _count_document(
    pieces: np.ndarray, lengths: np.ndarray, unk_id: int, counts: TextCounts
) -> bool:
    """Counts a document; False for one without a piece."""
    full = np.count_nonzero(lengths)
    counts.empty_sentences += len(lengths) - full
    if not full:
        # Several blank lines in a row are one document border, not empty documents.
        counts.empty_documents += len(lengths) > 0
        return False
    counts.documents += 1
    counts.sentences += full
    counts.tokens += len(pieces)
    counts.unknown_tokens += np.count_nonzero(pieces == unk_id)
    return True


def chunk_documents(
    documents: Iterable[tuple[np.ndarray, np.ndarray]], min_tokens: int, vocab: Vocabulary
) -> Iterator[Chunk]:
    """Joins whole documents to chunks of at least `min_tokens` pieces and two documents.

    What is left at the end joins the last chunk if it is less than half of one, or one document
    alone: so only a corpus of a single document gives a chunk of a single document.
    """
    starts = np.array([not token.startswith("##") for token in vocab.tokens])
    held: list[tuple[np.ndarray, np.ndarray]] = []
    current: list[tuple[np.ndarray, np.ndarray]] = []
    tokens = 0
    for document in documents:
        current.append(document)
        tokens += len(document[0])
        if tokens >= min_tokens and len(current) >= 2:
            if held:
                yield _join(held, starts)
            held, current, tokens = current, [], 0
    if held and (tokens < min_tokens // 2 or len(current) == 1):
        held, current = held + current, []
    for rest in (held, current):
        if rest:
            yield _join(rest, starts)


def _join(documents: list[tuple[np.ndarray, np.ndarray]], starts: np.ndarray) -> Chunk:
    pieces = np.concatenate([pieces for pieces, _ in documents])
    lengths = np.concatenate([lengths for _, lengths in documents])
    return Chunk(
        pieces=pieces,
        unit_starts=starts[pieces],
        sentence_starts=np.concatenate([[0], np.cumsum(lengths)]),
        document_starts=np.cumsum([0] + [len(lengths) for _, lengths in documents]),
    )

"""A chunk: the tokenized documents of one block of text; counts of text and examples."""

import io
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from bert_tf.base.files import read_file
from bert_tf.base.output_files import atomic_write
from bert_tf.corpus.reading import ReadCounts, Sums


@dataclass(frozen=True)
class Chunk:
    """Tokenized documents of a corpus. No sentence and no document is empty.

    A unit is masked as one: a word of the tokenizer or a segmenter, or a phrase of a lexicon. Every
    sentence begins one.
    """

    token_ids: np.ndarray  # [T] int32, of all sentences
    unit_starts: np.ndarray  # [T] bool
    sentence_starts: np.ndarray  # [sentences + 1] int64, the first token of each sentence, then T
    document_starts: np.ndarray  # int64, the first sentence of each document, then their number

    @property
    def num_documents(self) -> int:
        return len(self.document_starts) - 1


def join_chunks(first: Chunk, second: Chunk) -> Chunk:
    """Returns a chunk with the documents of both."""
    return Chunk(
        np.concatenate([first.token_ids, second.token_ids]),
        np.concatenate([first.unit_starts, second.unit_starts]),
        np.append(first.sentence_starts, len(first.token_ids) + second.sentence_starts[1:]),
        np.append(first.document_starts, first.document_starts[-1] + second.document_starts[1:]),
    )


def save_chunk(path: str, chunk: Chunk) -> None:
    """Writes a chunk atomically, in about three bytes per token."""
    file, ids = io.BytesIO(), chunk.token_ids
    # Most vocabularies have fewer tokens than 2**16.
    small = ids.astype(np.min_scalar_type(ids.max(initial=0)))
    np.savez(file, **vars(chunk) | {"token_ids": small})
    atomic_write(path, file.getvalue())


def load_chunk(path: str) -> Chunk:
    """Reads a chunk that `save_chunk` wrote."""
    with np.load(io.BytesIO(read_file(path)), allow_pickle=False) as arrays:
        ids = arrays["token_ids"].astype(np.int32)
        return Chunk(**dict(arrays) | {"token_ids": ids})


@dataclass
class TextCounts(ReadCounts):
    """Sums over the text that was read."""

    documents: int = 0
    empty_documents: int = 0  # without a token
    single_sentences: int = 0  # documents of one sentence
    sentences: int = 0
    empty_sentences: int = 0
    tokens: int = 0
    unknown_tokens: int = 0


@dataclass
class ExampleCounts(Sums):
    """Sums over examples."""

    examples: int = 0
    tokens: int = 0  # without padding
    predictions: int = 0
    random_next: int = 0  # whose second segment is random
    swapped: int = 0  # whose segments are swapped
    cut_pairs: int = 0  # whose truncation lost `cut_tokens`
    cut_tokens: int = 0
    cut_sentences: int = 0  # divided between rows without loss
    documents_without_pairs: int = 0  # of one sentence, which has no second segment


@dataclass
class CreationStatistics(Sums):
    """All counts of a job or, without examples, of a chunk; `long_sentences` fit no example."""

    text: TextCounts = field(default_factory=TextCounts)
    long_sentences: int = 0
    examples: ExampleCounts = field(default_factory=ExampleCounts)

    @classmethod
    def from_dict(cls, values: dict) -> Self:
        """Returns the counts that `dataclasses.asdict` made a dict of."""
        text, examples = TextCounts(**values["text"]), ExampleCounts(**values.get("examples", {}))
        return cls(text, values["long_sentences"], examples)

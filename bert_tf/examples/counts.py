"""Counts of what was read and created, as manifests contain them."""

from dataclasses import dataclass, field
from typing import Self

from bert_tf.corpus.reading import ReadCounts, Sums


@dataclass
class TextCounts(ReadCounts):
    """Sums over the text that was read.

    Attributes:
        empty_documents: documents without a token.
        single_sentences: documents of one sentence.
        empty_sentences: sentences without a token.
    """

    documents: int = 0
    empty_documents: int = 0
    single_sentences: int = 0
    sentences: int = 0
    empty_sentences: int = 0
    tokens: int = 0
    unknown_tokens: int = 0


@dataclass
class ExampleCounts(Sums):
    """Sums over examples.

    Attributes:
        tokens: without padding.
        predictions: 0 for dynamic masking.
        random_next: examples whose second segment is random.
        swapped: examples whose segments are swapped.
        cut_pairs: pairs that were truncated to make them fit.
        cut_tokens: tokens lost to this truncation.
        cut_sentences: sentences longer than a row that were divided between rows without loss.
        documents_without_pairs: documents of one sentence that have no second segment.
    """

    examples: int = 0
    tokens: int = 0
    predictions: int = 0
    random_next: int = 0
    swapped: int = 0
    cut_pairs: int = 0
    cut_tokens: int = 0
    cut_sentences: int = 0
    documents_without_pairs: int = 0


@dataclass
class CreationStatistics(Sums):
    """All counts of a job or, without examples, of a chunk.

    Attributes:
        long_sentences: sentences that are longer than any example.
    """

    text: TextCounts = field(default_factory=TextCounts)
    long_sentences: int = 0
    examples: ExampleCounts = field(default_factory=ExampleCounts)

    @classmethod
    def from_dict(cls, values: dict) -> Self:
        """Returns the counts that `dataclasses.asdict` made a dict of."""
        text, examples = TextCounts(**values["text"]), ExampleCounts(**values.get("examples", {}))
        return cls(text, values["long_sentences"], examples)

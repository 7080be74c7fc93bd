"""Counts of what was read and created, as manifests contain them."""

from dataclasses import dataclass, field
from typing import Self


class _Sums:
    """A dataclass of counts that can be added up."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(_added, vars(self).values(), vars(other).values()))


def _added(mine, theirs):
    """Adds counts, or dicts of counts."""
    if not isinstance(mine, dict):
        return mine + theirs
    return {key: mine.get(key, 0) + theirs.get(key, 0) for key in mine | theirs}


@dataclass
class TextCounts(_Sums):
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


@dataclass
class ExampleCounts(_Sums):
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
class CreationStatistics(_Sums):
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

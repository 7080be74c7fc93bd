"""Rows of whole sentences, one after the other, without a second segment.

RoBERTa's FULL-SENTENCES (across document borders, with a [SEP] between) and DOC-SENTENCES (arXiv
1907.11692, section 4.2). Packing starts anew in every pass: documents come in random order, and
some have a shorter target length, as in next-sentence pairs.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np

from bert_tf.examples.documents import Chunk
from bert_tf.examples.pairs import draw_targets


@dataclass(frozen=True)
class FullSentences:
    """Row n is pieces[start:end] of a stream, the documents with a [SEP] after each.

    Attributes:
        pieces: [T + documents] int32.
        is_sep: [T + documents] bool, the [SEP] among them.
        unit_starts: [T + documents] bool, as in a `Chunk`.
        start: [N].
        end: [N].
        cut_sentences: how many sentences were longer than a row, and cut into several.
    """

    pieces: np.ndarray
    is_sep: np.ndarray
    unit_starts: np.ndarray
    start: np.ndarray
    end: np.ndarray
    cut_sentences: int


def full_sentences(
    chunk: Chunk,
    max_tokens: int,
    short_seq_prob: float,
    cross_documents: bool,
    sep_id: int,
    rng: np.random.Generator,
) -> FullSentences:
    """All sentences of the chunk in rows, no piece left out.

    A row ends before the sentence that would not fit, or once it is as long as the target of the
    document it began in. A sentence longer than a row fills rows; its rest begins the next.

    Args:
        max_tokens: the longest row, without [CLS] and the last [SEP].
        short_seq_prob: share of documents whose target is a random length from 2 to `max_tokens`.
        cross_documents: whether a row goes on in the next document.
    """
    order = rng.permutation(chunk.num_documents)
    borders = chunk.sentence_starts[chunk.document_starts]
    sizes = np.diff(borders)[order]
    document_ends = np.cumsum(sizes + 1) - 1
    shift = document_ends - sizes - borders[:-1][order]
    pieces = np.full(len(chunk.pieces) + len(order), sep_id, np.int32)
    is_sep = np.zeros(len(pieces), bool)
    is_sep[document_ends] = True
    source = np.arange(len(pieces)) - np.repeat(shift, sizes + 1)
    pieces[~is_sep] = chunk.pieces[source[~is_sep]]
    unit_starts = np.zeros(len(pieces), bool)
    unit_starts[~is_sep] = chunk.unit_starts[source[~is_sep]]
    # Where sentences end is known from where those of the chunk end.
    sentence_end = np.zeros(len(chunk.pieces) + 1, bool)
    sentence_end[chunk.sentence_starts[1:]] = True
    ends = np.flatnonzero(~is_sep & sentence_end[source + 1 - is_sep]) + 1
    targets = draw_targets(len(order), max_tokens, short_seq_prob, rng)
    start, end = _rows(ends, document_ends, targets, max_tokens, cross_documents)
    sentences = np.diff(chunk.sentence_starts)
    return FullSentences(
        pieces, is_sep, unit_starts, start, end, int(np.count_nonzero(sentences > max_tokens))
    )


def _rows(
    ends: np.ndarray,
    document_ends: np.ndarray,
    targets: np.ndarray,
    max_tokens: int,
    cross_documents: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Where rows begin and end. Where one begins depends on the one before, hence the loop."""
    sentences, documents, targets = ends.tolist(), document_ends.tolist(), targets.tolist()
    rows = []
    start = document = 0
    while document < len(documents):
        limit = sentences[-1] if cross_documents else documents[document]
        fitting = bisect_right(sentences, min(start + max_tokens, limit)) - 1
        enough = bisect_left(sentences, start + targets[document])
        if fitting >= 0 and sentences[fitting] > start:
            end = sentences[min(fitting, enough)]
        else:
            end = start + max_tokens
        rows.append((start, end))
        while document < len(documents) and documents[document] <= end:
            document += 1
        start = end
        if document and documents[document - 1] == end:
            start += 1  # the [SEP] between
    start, end = np.array(rows, np.int64).reshape(-1, 2).T
    return start, end

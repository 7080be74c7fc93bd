"""Rows of consecutive whole sentences, without a second segment.

These are FULL-SENTENCES (across documents, with a [SEP] between them) and DOC-SENTENCES of RoBERTa
(arXiv 1907.11692, section 4.2). Every pass packs differently: documents come in random order, and
some have a shorter target length, as in next-sentence pairs.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np

from bert_tf.examples.chunk import Chunk
from bert_tf.examples.pairs import draw_targets


@dataclass(frozen=True)
class FullSentences:
    """Row n is token_ids[start:end] of a stream of documents with a [SEP] after each.

    Attributes:
        token_ids: [T + documents] int32.
        is_sep: [T + documents] bool, marks each [SEP] in `token_ids`.
        unit_starts: [T + documents] bool, as in a `Chunk`.
        start, end: [N], the range of each row.
        cut_sentences: the number of sentences that were longer than a row and had to be divided.
    """

    token_ids: np.ndarray
    is_sep: np.ndarray
    unit_starts: np.ndarray
    start: np.ndarray
    end: np.ndarray
    cut_sentences: int


def full_sentences(
    chunk: Chunk,
    rng: np.random.Generator,
    *,
    max_tokens: int,
    short_seq_prob: float,
    cross_documents: bool,
    sep_id: int,
) -> FullSentences:
    """Packs all sentences of the chunk into rows, without losing a token.

    A row ends before the first sentence that does not fit, or once it reaches the target length of
    the document it began in. A sentence longer than a row fills whole rows, and its remainder
    begins the next one.

    Args:
        chunk: the documents.
        rng: source of randomness.
        max_tokens: the longest row, without [CLS] and the last [SEP].
        short_seq_prob: share of the documents whose target is a random length from 2 to
            `max_tokens`.
        cross_documents: whether a row continues in the next document.
        sep_id: the id of [SEP].
    """
    order = rng.permutation(chunk.num_documents)
    borders = chunk.sentence_starts[chunk.document_starts]
    sizes = np.diff(borders)[order]
    document_ends = np.cumsum(sizes + 1) - 1
    shift = document_ends - sizes - borders[:-1][order]
    token_ids = np.full(len(chunk.token_ids) + len(order), sep_id, np.int32)
    is_sep = np.zeros(len(token_ids), bool)
    is_sep[document_ends] = True
    source = np.arange(len(token_ids)) - np.repeat(shift, sizes + 1)
    token_ids[~is_sep] = chunk.token_ids[source[~is_sep]]
    unit_starts = np.zeros(len(token_ids), bool)
    unit_starts[~is_sep] = chunk.unit_starts[source[~is_sep]]
    # The ends of sentences in the stream follow from those in the chunk.
    sentence_end = np.zeros(len(chunk.token_ids) + 1, bool)
    sentence_end[chunk.sentence_starts[1:]] = True
    ends = np.flatnonzero(~is_sep & sentence_end[source + 1 - is_sep]) + 1
    targets = draw_targets(len(order), max_tokens, short_seq_prob, rng)
    start, end = _rows(ends, document_ends, targets, max_tokens, cross_documents)
    cut_sentences = int(np.count_nonzero(np.diff(chunk.sentence_starts) > max_tokens))
    return FullSentences(token_ids, is_sep, unit_starts, start, end, cut_sentences)


def _rows(
    ends: np.ndarray,
    document_ends: np.ndarray,
    targets: np.ndarray,
    max_tokens: int,
    cross_documents: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns where the rows begin and end.

    Loops over the rows because a row begins where the one before it ends.
    """
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
            start += 1  # Skips the [SEP] between the documents.
    start, end = np.array(rows, np.int64).reshape(-1, 2).T
    return start, end

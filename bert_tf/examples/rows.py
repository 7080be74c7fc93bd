"""Rows of a fixed length: segments between special tokens, padded.

A row is a pair of segments, or consecutive whole sentences without a second segment. The latter are
FULL-SENTENCES (across documents, with a [SEP] between them) and DOC-SENTENCES of RoBERTa (arXiv
1907.11692, section 4.2). Every pass packs differently: documents come in random order, and some
have a shorter target length, as in next-sentence pairs.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np

from bert_tf.examples.chunk import Chunk
from bert_tf.examples.creation_options import DataOptions
from bert_tf.examples.pairs import Pairs, draw_targets
from tfrecords.vocabulary import Vocabulary


@dataclass(frozen=True)
class Rows:
    """A batch of unmasked examples.

    Attributes:
        ids: [N, S] int32.
        lengths: [N], without padding.
        type_ids: [N, S] int32, 1 in segment B and the [SEP] after it.
        maskable: [N, S] bool, False for special tokens and padding.
        unit_starts: [N, S] bool, where a unit of masking begins. Every segment begins one.
    """

    ids: np.ndarray
    lengths: np.ndarray
    type_ids: np.ndarray
    maskable: np.ndarray
    unit_starts: np.ndarray


def pair_rows(chunk: Chunk, pairs: Pairs, max_seq_length: int, vocab: Vocabulary) -> Rows:
    """Returns rows of the form [CLS] A [SEP] B [SEP] 0 0 ..."""
    column = np.arange(max_seq_length, dtype=np.int32)
    first_sep = (pairs.a_end - pairs.a_start + 1).astype(np.int32)[:, None]
    second_sep = first_sep + (pairs.b_end - pairs.b_start + 1).astype(np.int32)[:, None]
    in_b = column > first_sep
    source = np.where(in_b, pairs.b_start[:, None] - first_sep - 1, pairs.a_start[:, None] - 1)
    source += column
    inside = column <= second_sep
    special = (column == first_sep) | (column == second_sep)
    special[:, 0] = True
    maskable = inside & ~special
    ids = chunk.token_ids.take(source, mode="clip")
    unit_starts = chunk.unit_starts.take(source, mode="clip")
    rows = np.arange(len(ids))
    for sep in (first_sep[:, 0], second_sep[:, 0]):
        ids[rows, sep] = vocab.sep_id
    ids[:, 0] = vocab.cls_id
    ids *= inside
    unit_starts[:, 1] = True
    unit_starts[rows, first_sep[:, 0] + 1] = True
    unit_starts &= maskable
    return Rows(ids, second_sep[:, 0] + 1, (in_b & inside).astype(np.int32), maskable, unit_starts)


def full_sentence_rows(
    chunk: Chunk, options: DataOptions, vocab: Vocabulary, rng: np.random.Generator
) -> Rows:
    """Returns rows of the form [CLS] sentences [SEP] 0 0 ..., without losing a token of the chunk.

    A row ends before the first sentence that does not fit, or once it reaches the target length of
    the document it began in. A sentence longer than a row fills whole rows, and its remainder
    begins the next one. With `cross_documents`, a row continues in the next document, after a
    [SEP].
    """
    max_tokens = options.max_seq_length - 2
    # All documents in random order become one stream, with a [SEP] after each.
    order = rng.permutation(chunk.num_documents)
    borders = chunk.sentence_starts[chunk.document_starts]
    sizes = np.diff(borders)[order]
    document_ends = np.cumsum(sizes + 1) - 1
    source = np.arange(len(chunk.token_ids) + len(order))
    source -= np.repeat(document_ends - sizes - borders[:-1][order], sizes + 1)
    is_sep = np.zeros(len(source), bool)
    is_sep[document_ends] = True
    token_ids = chunk.token_ids.take(source, mode="clip")
    token_ids[is_sep] = vocab.sep_id
    unit_starts = chunk.unit_starts.take(source, mode="clip")
    # The ends of sentences in the stream follow from those in the chunk.
    sentence_end = np.zeros(len(chunk.token_ids) + 1, bool)
    sentence_end[chunk.sentence_starts[1:]] = True
    ends = np.flatnonzero(~is_sep & sentence_end[source + 1 - is_sep]) + 1
    targets = draw_targets(len(order), max_tokens, options.short_seq_prob, rng)
    crosses = options.cross_documents
    start, end = _row_limits(ends, document_ends, targets, max_tokens, crosses)

    column = np.arange(options.max_seq_length)
    place = start[:, None] - 1 + column
    last = (end - start + 1)[:, None]
    maskable = (column > 0) & (column < last) & ~is_sep.take(place, mode="clip")
    ids = token_ids.take(place, mode="clip")
    ids[np.arange(len(ids)), last[:, 0]] = vocab.sep_id
    ids[:, 0] = vocab.cls_id
    ids *= column <= last
    starts = unit_starts.take(place, mode="clip")
    starts[:, 1] = True
    starts &= maskable
    return Rows(ids, last[:, 0] + 1, np.zeros(ids.shape, np.int32), maskable, starts)


def _row_limits(
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

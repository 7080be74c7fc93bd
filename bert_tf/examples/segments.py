"""Sentence pairs of a chunk, and rows of a fixed length: segments between special tokens, padded.

Next-sentence pairs follow `create_instances_from_document` and `truncate_seq_pair` of
google-research/bert's create_pretraining_data.py, as index arithmetic. There is one deliberate
difference: in the original, a "random next" segment may come from the same document after ten
failed draws, and always does in a corpus of one document. Here it never does.

Sentence-order pairs follow ALBERT (the file of the same name in google-research/albert), which
swaps the two segments half the time. In ALBERT, a sentence without a neighbor gets a random segment
of another document, labeled as swapped. Here it is paired with the sentence before it.

Rows without a second segment hold consecutive whole sentences: FULL-SENTENCES (across documents,
with a [SEP] between them) and DOC-SENTENCES of RoBERTa (arXiv 1907.11692, section 4.2). Every pass
packs differently: documents come in random order, and some have a shorter target length.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_tf.examples.chunk import Chunk
from bert_tf.examples.creation_options import DataOptions
from tfrecords.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Pair n is token_ids[a_start:a_end] and token_ids[b_start:b_end]. All arrays are [N]."""

    a_start: np.ndarray
    a_end: np.ndarray
    b_start: np.ndarray
    b_end: np.ndarray
    labels: np.ndarray  # bool, whether B is a random segment, or the segments are swapped
    cut_tokens: np.ndarray  # how many tokens were cut off a pair to make it fit
    documents_without_pairs: int


def next_sentence_pairs(
    chunk: Chunk,
    max_tokens: int,
    short_seq_prob: float,
    rng: np.random.Generator,
    documents: int | None = None,
) -> Pairs:
    """Returns pairs that cover the first `documents` of the chunk (default: all) once.

    Collects sentences until they fill the target length. The first few become segment A. Half the
    time, the rest become segment B; otherwise, B is a run of sentences from another document,
    chosen at random (after the first `documents`, if there are more), and the rest start the next
    pair. A chunk of one document yields no random pairs, and no pair at all if that document is a
    single sentence.

    The longest pair has `max_tokens`, without [CLS] and the two [SEP]; at least 2. The target of
    the share `short_seq_prob` of the documents is a random length from 2 to that.
    """
    documents = chunk.num_documents if documents is None else documents
    starts = chunk.sentence_starts
    targets = draw_targets(documents, max_tokens, short_seq_prob, rng)
    first, a_end, end, is_random, target, document = _split_documents(
        chunk, targets, rng, random_next=chunk.num_documents > 1
    ).T
    is_random = is_random.astype(bool)
    a_length = starts[a_end] - starts[first]
    b_first, b_last = _random_segments(chunk, documents, document, target - a_length, rng)
    b_first, b_last = np.where(is_random, b_first, a_end), np.where(is_random, b_last, end)
    sentences = first, a_end, b_first, b_last
    skipped = documents - len(np.unique(document))
    return _cut_pairs([starts[x] for x in sentences], is_random, skipped, max_tokens, rng)


def sentence_order_pairs(
    chunk: Chunk, max_tokens: int, short_seq_prob: float, rng: np.random.Generator
) -> Pairs:
    """Returns pairs of neighbors that cover every document once, half of them swapped.

    A lone sentence is paired with the next one, or at the end of a document, with the one before.
    A document of one sentence yields no pair. The arguments are those of `next_sentence_pairs`.
    """
    starts = chunk.sentence_starts
    targets = draw_targets(chunk.num_documents, max_tokens, short_seq_prob, rng)
    first, a_end, end, _, _, document = _split_documents(chunk, targets, rng, random_next=False).T
    swapped = rng.random(len(first)) < 0.5
    a, b = (first, a_end), (a_end, end)
    sentences = [np.where(swapped, y, x) for x, y in zip(a + b, b + a, strict=True)]
    skipped = chunk.num_documents - len(np.unique(document))
    return _cut_pairs([starts[x] for x in sentences], swapped, skipped, max_tokens, rng)


def draw_targets(
    documents: int, max_tokens: int, short_seq_prob: float, rng: np.random.Generator
) -> np.ndarray:
    """Draws each document's target length: `max_tokens`, or for some a random length from 2."""
    short = rng.random(documents) < short_seq_prob
    return np.where(short, rng.integers(2, max_tokens, documents, endpoint=True), max_tokens)


def _split_documents(
    chunk: Chunk, targets: np.ndarray, rng: np.random.Generator, *, random_next: bool
) -> np.ndarray:
    """Returns [N, 6]: first sentence, end of A, end, whether B is random, target, document."""
    # A loop over the pairs, because a pair begins where the one before it ends.
    starts = chunk.sentence_starts.tolist()
    limits = chunk.document_starts[: len(targets) + 1].tolist()
    # No document has more pairs than sentences.
    split_draws = rng.random(limits[-1]).tolist()
    next_draws = rng.random(limits[-1]).tolist()
    pairs = []
    for document, target in enumerate(targets.tolist()):
        first, limit = limits[document], limits[document + 1]
        while first < limit:
            end = bisect_left(starts, starts[first] + target, first + 1, limit)
            if not random_next and end - first == 1:
                # A lone sentence needs a true neighbor: the next one, or else the one before it.
                if limit - limits[document] == 1:
                    break
                end = min(end + 1, limit)
                first = end - 2
            a_end = first + 1 + int(split_draws[len(pairs)] * (end - first - 1))
            alone = end - first == 1
            is_random = random_next and (alone or next_draws[len(pairs)] < 0.5)
            pairs.append((first, a_end, end, is_random, target, document))
            first = a_end if is_random else end
    return np.array(pairs, np.int64).reshape(-1, 6)


def _random_segments(
    chunk: Chunk, documents: int, document: np.ndarray, length: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draws runs of about `length` [N] tokens from other documents: first sentences and ends."""
    if documents < chunk.num_documents:
        other = rng.integers(documents, chunk.num_documents, len(document))
    else:
        other = rng.integers(0, max(1, documents - 1), len(document))
        other = np.minimum(other + (other >= document), documents - 1)
    limits, starts = chunk.document_starts, chunk.sentence_starts
    first = rng.integers(limits[other], limits[other + 1])
    end = np.searchsorted(starts, starts[first] + np.maximum(length, 1))
    return first, np.minimum(end, limits[other + 1])


def _cut_pairs(
    tokens: Sequence[np.ndarray],
    labels: np.ndarray,
    skipped: int,
    max_tokens: int,
    rng: np.random.Generator,
) -> Pairs:
    """Cuts pairs to `max_tokens`, one token at a time off either end of the longer segment."""
    a_start, a_end, b_start, b_end = tokens
    a_length, b_length = a_end - a_start, b_end - b_start
    excess = np.maximum(a_length + b_length - max_tokens, 0)
    until_equal = np.minimum(excess, np.abs(a_length - b_length))
    rest = excess - until_equal
    a_cut = np.where(a_length > b_length, until_equal, 0) + rest // 2
    b_cut = excess - a_cut
    a_front, b_front = rng.binomial(a_cut, 0.5), rng.binomial(b_cut, 0.5)
    return Pairs(
        a_start=a_start + a_front,
        a_end=a_end - (a_cut - a_front),
        b_start=b_start + b_front,
        b_end=b_end - (b_cut - b_front),
        labels=labels,
        cut_tokens=excess,
        documents_without_pairs=skipped,
    )


@dataclass(frozen=True)
class Rows:
    """A batch of unmasked examples. Arrays are [N, S], or [N] for lengths."""

    ids: np.ndarray  # int32
    lengths: np.ndarray  # without padding
    type_ids: np.ndarray  # int32, 1 in segment B and the [SEP] after it
    maskable: np.ndarray  # bool, False for special tokens and padding
    unit_starts: np.ndarray  # bool, where a unit of masking begins; every segment begins one


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
    """Returns where the rows begin and end."""
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

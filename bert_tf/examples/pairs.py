"""Pairs of segments of a chunk, as spans of its pieces.

Next-sentence pairs: the algorithm is `create_instances_from_document` and `truncate_seq_pair` of
google-research/bert's create_pretraining_data.py, as index arithmetic. One thing differs on
purpose: a "random next" segment there may come from the same document after ten unlucky draws, or
always in a corpus of one document; here it never does.

Sentence-order pairs: those of ALBERT (google-research/albert, the file of the same name), which
swaps the two segments half the time. There a sentence that stands alone gets a random segment of
another document all the same, labelled as swapped; here it takes its neighbour.
"""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from bert_tf.examples.documents import Chunk


@dataclass(frozen=True)
class Pairs:
    """Pair n is pieces[a_start:a_end] and pieces[b_start:b_end]; all arrays are [N].

    `labels` (bool) says that B is a random segment, or that the two are swapped; `cut_tokens` how
    many pieces were cut off the pair to make it fit. `documents_without_pairs` is a number.
    """

    a_start: np.ndarray
    a_end: np.ndarray
    b_start: np.ndarray
    b_end: np.ndarray
    labels: np.ndarray
    cut_tokens: np.ndarray
    documents_without_pairs: int


def join_chunks(chunk: Chunk, partner: Chunk) -> Chunk:
    """A chunk of the documents of both."""
    return Chunk(
        np.concatenate([chunk.pieces, partner.pieces]),
        np.concatenate([chunk.unit_starts, partner.unit_starts]),
        np.append(chunk.sentence_starts, len(chunk.pieces) + partner.sentence_starts[1:]),
        np.append(chunk.document_starts, chunk.document_starts[-1] + partner.document_starts[1:]),
    )


def next_sentence_pairs(
    chunk: Chunk,
    max_tokens: int,
    short_seq_prob: float,
    rng: np.random.Generator,
    documents: int | None = None,
) -> Pairs:
    """Pairs from the first `documents` of the chunk (all, if not given), once over.

    Sentences are gathered until they fill the target length. Some of the first become segment A;
    half the time the others are segment B, else B is a run of sentences from a random other
    document (one of those after the first `documents`, where there are any) and the others are put
    back. A chunk of one document gives no random pairs: all its pairs are true neighbours, and a
    document of one sentence gives none at all.

    Args:
        max_tokens: the longest pair, without [CLS] and the two [SEP]; at least 2.
        short_seq_prob: share of documents whose target is a random length from 2 to `max_tokens`.
    """
    documents = chunk.num_documents if documents is None else documents
    starts = chunk.sentence_starts
    first, a_end, end, is_random, target, document = _split_documents(
        chunk, documents, max_tokens, short_seq_prob, rng, chunk.num_documents > 1
    ).T
    is_random = is_random.astype(bool)
    a_length = starts[a_end] - starts[first]
    b_first, b_last = _random_segments(chunk, documents, document, target - a_length, rng)
    return _truncate(
        starts[first],
        starts[a_end],
        starts[np.where(is_random, b_first, a_end)],
        starts[np.where(is_random, b_last, end)],
        is_random,
        documents - len(np.unique(document)),
        max_tokens,
        rng,
    )


def sentence_order_pairs(
    chunk: Chunk, max_tokens: int, short_seq_prob: float, rng: np.random.Generator
) -> Pairs:
    """Pairs of neighbours from every document, once over, half of them swapped.

    A sentence that stands alone takes the one after it, at the end of a document the one before; a
    document of one sentence gives no pair. The arguments are those of `next_sentence_pairs`.
    """
    starts = chunk.sentence_starts
    first, a_end, end, _, _, document = _split_documents(
        chunk, chunk.num_documents, max_tokens, short_seq_prob, rng, False
    ).T
    swapped = rng.random(len(first)) < 0.5
    return _truncate(
        starts[np.where(swapped, a_end, first)],
        starts[np.where(swapped, end, a_end)],
        starts[np.where(swapped, first, a_end)],
        starts[np.where(swapped, a_end, end)],
        swapped,
        chunk.num_documents - len(np.unique(document)),
        max_tokens,
        rng,
    )


def draw_targets(
    documents: int, max_tokens: int, short_seq_prob: float, rng: np.random.Generator
) -> np.ndarray:
    """The target length of each document: `max_tokens`, or for some a random one from 2."""
    short = rng.random(documents) < short_seq_prob
    return np.where(short, rng.integers(2, max_tokens, documents, endpoint=True), max_tokens)


def _split_documents(
    chunk: Chunk,
    documents: int,
    max_tokens: int,
    short_seq_prob: float,
    rng: np.random.Generator,
    random_next: bool,
) -> np.ndarray:
    """[N, 6] int64: first sentence, end of A, end, whether B is random, target length, document.

    Where a pair begins depends on the one before, hence the loop over pairs.
    """
    starts = chunk.sentence_starts.tolist()
    limits = chunk.document_starts[: documents + 1].tolist()
    targets = draw_targets(documents, max_tokens, short_seq_prob, rng).tolist()
    # No document has more pairs than sentences.
    split_draws = rng.random(limits[-1]).tolist()
    next_draws = rng.random(limits[-1]).tolist()
    pairs = []
    for document in range(documents):
        first, limit, target = limits[document], limits[document + 1], targets[document]
        while first < limit:
            end = bisect_left(starts, starts[first] + target, first + 1, limit)
            if not random_next and end - first == 1:
                # The lone sentence needs a true neighbour: the next one, else the one before.
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
    chunk: Chunk,
    documents: int,
    document: np.ndarray,
    length: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """A run of sentences of about `length` [N] from another document than `document` [N].

    Returns its first sentence and its end; of a chunk of one document, nothing of use.
    """
    if documents < chunk.num_documents:
        other = rng.integers(documents, chunk.num_documents, len(document))
    else:
        other = rng.integers(0, max(1, documents - 1), len(document))
        other = np.minimum(other + (other >= document), documents - 1)
    limits, starts = chunk.document_starts, chunk.sentence_starts
    first = rng.integers(limits[other], limits[other + 1])
    end = np.searchsorted(starts, starts[first] + np.maximum(length, 1))
    return first, np.minimum(end, limits[other + 1])


def _truncate(
    a_start: np.ndarray,
    a_end: np.ndarray,
    b_start: np.ndarray,
    b_end: np.ndarray,
    labels: np.ndarray,
    documents_without_pairs: int,
    max_tokens: int,
    rng: np.random.Generator,
) -> Pairs:
    """Cuts pairs to `max_tokens`, piece by piece off the longer segment (B when they are equal).

    Each piece goes from the front or the back with equal chance.
    """
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
        documents_without_pairs=documents_without_pairs,
    )

"""Sentence pairs of a chunk, as ranges of its tokens.

Next-sentence pairs follow `create_instances_from_document` and `truncate_seq_pair` of
google-research/bert's create_pretraining_data.py, as index arithmetic. There is one deliberate
difference: in the original, a "random next" segment may come from the same document after ten
failed draws, and always does in a corpus of one document. Here it never does.

Sentence-order pairs follow ALBERT (the file of the same name in google-research/albert), which
swaps the two segments half the time. In ALBERT, a sentence without a neighbor gets a random segment
of another document, labeled as swapped. Here it is paired with the sentence before it.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_tf.examples.chunk import Chunk


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Pair n is token_ids[a_start:a_end] and token_ids[b_start:b_end]. All arrays are [N].

    Attributes:
        labels: bool, whether B is a random segment, or whether the segments are swapped.
        cut_tokens: how many tokens were cut off a pair to make it fit.
        documents_without_pairs: the number of documents that yield no pair.
    """

    a_start: np.ndarray
    a_end: np.ndarray
    b_start: np.ndarray
    b_end: np.ndarray
    labels: np.ndarray
    cut_tokens: np.ndarray
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

    Args:
        max_tokens: the longest pair, without [CLS] and the two [SEP]; at least 2.
        short_seq_prob: share of the documents whose target is a random length from 2 to
            `max_tokens`.
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
    """Returns [N, 6] int64: first sentence, end of A, end, whether B is random, target, document.

    Loops over the pairs because a pair begins where the one before it ends.
    """
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
    """Draws runs of sentences of about `length` [N] tokens from documents other than `document`.

    Returns the first sentence and the end of each run. The result is meaningless for a chunk of one
    document.
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


def _cut_pairs(
    tokens: Sequence[np.ndarray],
    labels: np.ndarray,
    skipped: int,
    max_tokens: int,
    rng: np.random.Generator,
) -> Pairs:
    """Cuts pairs to `max_tokens`, one token at a time off the longer segment (B on a tie).

    Each token is removed from the front or the back of its segment with equal probability.
    `tokens` are where the segments begin and end, and `skipped` counts documents without pairs.
    """
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

"""Turns a chunk of documents and a seed into examples: a pure function."""

import numpy as np

from bert_tf.examples.chunk import Chunk, join_chunks
from bert_tf.examples.counts import ExampleCounts
from bert_tf.examples.creation_options import DataOptions
from bert_tf.examples.masking import mask_rows
from bert_tf.examples.pairs import next_sentence_pairs, sentence_order_pairs
from bert_tf.examples.rows import Rows, full_sentence_rows, pair_rows
from tfrecords.vocabulary import Vocabulary


def pass_seed(random_seed: int, chunk: int, dupe: int) -> np.random.SeedSequence:
    """Returns the seed of pass `dupe` over a chunk, which depends on nothing else."""
    return np.random.SeedSequence(random_seed, spawn_key=(chunk, dupe))


def make_examples(
    chunk: Chunk,
    partner: Chunk | None,
    seed: np.random.SeedSequence,
    options: DataOptions,
    vocab: Vocabulary,
) -> tuple[dict[str, np.ndarray], ExampleCounts]:
    """Creates the examples of one pass over a chunk, as the arrays of `tfrecords.features`.

    Args:
        partner: the source of "random next" segments. None takes them from the other documents of
            `chunk`.
        seed: from `pass_seed`.
        options: the flags, with all defaults resolved.

    Returns:
        arrays [N, S], [N, P] and [N, 1] (`next_sentence_labels`) in the order of the text, and
        counts. With dynamic masking there are no predictions; `word_starts` [N, S] is 1 where a
        unit of masking begins.
    """
    rng = np.random.default_rng(seed)
    rows, labels, counts = _unmasked_rows(chunk, partner, options, vocab, rng)
    counts.examples = len(rows.ids)
    counts.tokens = int(rows.lengths.sum())
    column = np.arange(options.max_seq_length, dtype=np.int32)
    arrays = {
        "input_word_ids": rows.ids,
        "input_mask": (column < rows.lengths[:, None]).astype(np.int32),
        "input_type_ids": rows.type_ids,
    }
    if options.masking == "dynamic":
        arrays["word_starts"] = rows.unit_starts.astype(np.int32)
    else:
        arrays |= mask_rows(rows, options, vocab, rng)
        counts.predictions = int(arrays["masked_lm_weights"].sum())
    arrays["next_sentence_labels"] = labels.astype(np.int32)[:, None]
    return arrays, counts


def _unmasked_rows(
    chunk: Chunk,
    partner: Chunk | None,
    options: DataOptions,
    vocab: Vocabulary,
    rng: np.random.Generator,
) -> tuple[Rows, np.ndarray, ExampleCounts]:
    """Returns unmasked rows, their labels [N] and the counts that are known so far."""
    length, short = options.max_seq_length, options.short_seq_prob
    if options.objective == "mlm":
        rows = full_sentence_rows(chunk, options, vocab, rng)
        cut = np.count_nonzero(np.diff(chunk.sentence_starts) > length - 2)
        return rows, np.zeros(len(rows.ids)), ExampleCounts(cut_sentences=int(cut))
    if options.objective == "sop":
        label = "swapped"
        pairs = sentence_order_pairs(chunk, length - 3, short, rng)
    else:
        label = "random_next"
        documents = chunk.num_documents
        chunk = join_chunks(chunk, partner) if partner else chunk
        pairs = next_sentence_pairs(chunk, length - 3, short, rng, documents)
    counts = ExampleCounts(
        cut_pairs=int(np.count_nonzero(pairs.cut_tokens)),
        cut_tokens=int(pairs.cut_tokens.sum()),
        documents_without_pairs=pairs.documents_without_pairs,
        **{label: int(pairs.labels.sum())},
    )
    return pair_rows(chunk, pairs, length, vocab), pairs.labels, counts

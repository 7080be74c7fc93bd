"""Turns a chunk of documents and a seed into examples: a pure function."""

import dataclasses
from dataclasses import dataclass

import numpy as np

from bert_tf.examples.chunk import Chunk, join_chunks
from bert_tf.examples.masking import mask_rows, prediction_budget
from bert_tf.examples.pairs import next_sentence_pairs, sentence_order_pairs
from bert_tf.examples.rows import Rows, full_sentence_rows, pair_rows
from tfrecords.vocabulary import Vocabulary


@dataclass(frozen=True)
class ExampleSettings:
    """How to create examples; the names are those of the flags of create_pretraining_data.

    Attributes:
        max_ngram_size: used for masking "ngram".
        cross_documents: used for objective "mlm".
    """

    vocab: Vocabulary
    max_seq_length: int = 128
    max_predictions_per_seq: int = 20
    masked_lm_prob: float = 0.15
    short_seq_prob: float = 0.1
    masking: str = "wordpiece"
    max_ngram_size: int = 3
    objective: str = "nsp"
    cross_documents: bool = True


@dataclass
class ExampleCounts:
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

    def __add__(self, other: "ExampleCounts") -> "ExampleCounts":
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return ExampleCounts(*(mine + theirs for mine, theirs in pairs))


def pass_seed(random_seed: int, chunk: int, dupe: int) -> np.random.SeedSequence:
    """Returns the seed of pass `dupe` over a chunk, which depends on nothing else."""
    return np.random.SeedSequence(random_seed, spawn_key=(chunk, dupe))


def make_examples(
    chunk: Chunk, partner: Chunk | None, seed: np.random.SeedSequence, settings: ExampleSettings
) -> tuple[dict[str, np.ndarray], ExampleCounts]:
    """Creates the examples of one pass over a chunk, as the arrays of `tfrecords.features`.

    Args:
        partner: the source of "random next" segments. None takes them from the other documents of
            `chunk`.
        seed: from `pass_seed`.

    Returns:
        arrays [N, S], [N, P] and [N, 1] (`next_sentence_labels`) in the order of the text, and
        counts. With dynamic masking there are no predictions; `word_starts` [N, S] is 1 where a
        unit of masking begins.
    """
    rng = np.random.default_rng(seed)
    rows, labels, counts = _unmasked_rows(chunk, partner, settings, rng)
    counts.examples = len(rows.ids)
    counts.tokens = int(rows.lengths.sum())
    column = np.arange(settings.max_seq_length, dtype=np.int32)
    arrays = {
        "input_word_ids": rows.ids,
        "input_mask": (column < rows.lengths[:, None]).astype(np.int32),
        "input_type_ids": rows.type_ids,
    }
    if settings.masking == "dynamic":
        arrays["word_starts"] = rows.unit_starts.astype(np.int32)
    else:
        arrays |= _masked_arrays(rows, settings, rng)
        counts.predictions = int(arrays["masked_lm_weights"].sum())
    arrays["next_sentence_labels"] = labels.astype(np.int32)[:, None]
    return arrays, counts


def _unmasked_rows(
    chunk: Chunk, partner: Chunk | None, settings: ExampleSettings, rng: np.random.Generator
) -> tuple[Rows, np.ndarray, ExampleCounts]:
    """Returns unmasked rows, their labels [N] and the counts that are known so far."""
    length, short, vocab = settings.max_seq_length, settings.short_seq_prob, settings.vocab
    if settings.objective == "mlm":
        rows = full_sentence_rows(
            chunk,
            rng,
            max_seq_length=length,
            short_seq_prob=short,
            cross_documents=settings.cross_documents,
            vocab=vocab,
        )
        cut = np.count_nonzero(np.diff(chunk.sentence_starts) > length - 2)
        counts = ExampleCounts(cut_sentences=int(cut))
        return rows, np.zeros(len(rows.ids)), counts
    if settings.objective == "sop":
        pairs = sentence_order_pairs(chunk, length - 3, short, rng)
    else:
        documents = chunk.num_documents
        chunk = join_chunks(chunk, partner) if partner else chunk
        pairs = next_sentence_pairs(chunk, length - 3, short, rng, documents)
    label = {"nsp": "random_next", "sop": "swapped"}[settings.objective]
    counts = ExampleCounts(
        cut_pairs=int(np.count_nonzero(pairs.cut_tokens)),
        cut_tokens=int(pairs.cut_tokens.sum()),
        documents_without_pairs=pairs.documents_without_pairs,
        **{label: int(pairs.labels.sum())},
    )
    return pair_rows(chunk, pairs, length, vocab), pairs.labels, counts


def _masked_arrays(
    rows: Rows, settings: ExampleSettings, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    width = settings.max_predictions_per_seq
    masked = mask_rows(
        rows,
        prediction_budget(rows.lengths, settings.masked_lm_prob, width),
        rng,
        masking=settings.masking,
        max_ngram_size=settings.max_ngram_size,
        mask_id=settings.vocab.mask_id,
        vocab_size=len(settings.vocab),
    )
    padding = [(0, 0), (0, width - masked.positions.shape[1])]
    return {
        "input_word_ids": masked.ids,
        "masked_lm_positions": np.pad(masked.positions, padding).astype(np.int32),
        "masked_lm_ids": np.pad(masked.labels, padding),
        "masked_lm_weights": np.pad(masked.weights, padding),
    }

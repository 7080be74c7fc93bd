"""From a chunk of documents and a seed to examples: a pure function, whoever calls it."""

import dataclasses
from dataclasses import dataclass

import numpy as np

from bert_tf.examples.documents import Chunk
from bert_tf.examples.full_sentences import full_sentences
from bert_tf.examples.masking import MASKINGS, mask_rows, prediction_budget
from bert_tf.examples.pairs import join_chunks, next_sentence_pairs, sentence_order_pairs
from bert_tf.examples.rows import Rows, full_sentence_rows, pair_rows
from tfrecords.vocabulary import Vocabulary

# Next sentence (BERT), sentence order (ALBERT), masked LM alone (RoBERTa).
OBJECTIVES = ("nsp", "sop", "mlm")


@dataclass(frozen=True)
class Settings:
    """What examples are made to. See the flags of create_pretraining_data.

    `max_ngram_size` is for masking "ngram", `cross_documents` for objective "mlm".

    Raises:
        ValueError: a value of no use; names it.
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

    def __post_init__(self) -> None:
        if not 5 <= self.max_seq_length <= 32768:
            raise ValueError(
                f"max_seq_length is {self.max_seq_length}: it must be from 5 ([CLS], [SEP], [SEP] "
                "and a piece of each segment) to 32768"
            )
        if self.max_predictions_per_seq < 1:
            raise ValueError(
                f"max_predictions_per_seq is {self.max_predictions_per_seq}: it must be 1 or more"
            )
        if not 0 < self.masked_lm_prob <= 1:
            raise ValueError(f"masked_lm_prob is {self.masked_lm_prob}: it must be in (0, 1]")
        if not 0 <= self.short_seq_prob <= 1:
            raise ValueError(f"short_seq_prob is {self.short_seq_prob}: it must be in [0, 1]")
        if self.masking not in MASKINGS:
            raise ValueError(f"masking is {self.masking!r}: it must be one of {MASKINGS}")
        if self.max_ngram_size < 1:
            raise ValueError(f"max_ngram_size is {self.max_ngram_size}: it must be 1 or more")
        if self.objective not in OBJECTIVES:
            raise ValueError(f"objective is {self.objective!r}: it must be one of {OBJECTIVES}")


@dataclass
class ExampleCounts:
    """Sums over examples.

    Attributes:
        examples: how many.
        tokens: without padding.
        predictions: 0 for dynamic masking.
        random_next: examples whose second segment is a random one.
        swapped: examples whose segments are swapped.
        cut_pairs: pairs that were cut to make them fit.
        cut_tokens: pieces they lost.
        cut_sentences: sentences longer than a row that were cut into several; they lose nothing.
        documents_without_pairs: documents of one sentence that found no second segment.
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

    def to_dict(self) -> dict[str, int]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, int]) -> "ExampleCounts":
        return cls(**values)


def unit_seed(user_seed: int, chunk_index: int, dupe_index: int) -> np.random.SeedSequence:
    """The seed of one pass over one chunk, independent of what else is done and by whom."""
    return np.random.SeedSequence(user_seed, spawn_key=(chunk_index, dupe_index))


def make_examples(
    chunk: Chunk, partner: Chunk | None, seed: np.random.SeedSequence, settings: Settings
) -> tuple[dict[str, np.ndarray], ExampleCounts]:
    """One pass over the chunk: rows, masked, as the arrays of `tfrecords.features`.

    Args:
        partner: where "random next" segments come from; None: from the other documents of `chunk`.

    Returns:
        Arrays [N, S], [N, P] and [N, 1] (`next_sentence_labels`) in order, and counts. For dynamic
        masking no predictions, but `word_starts` [N, S], 1 where a unit of masking begins.
    """
    rng = np.random.default_rng(seed)
    rows, labels, counts = _rows(chunk, partner, settings, rng)
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
        arrays |= _masked(rows, settings, rng)
        counts.predictions = int(arrays["masked_lm_weights"].sum())
    arrays["next_sentence_labels"] = labels.astype(np.int32)[:, None]
    return arrays, counts


def _rows(
    chunk: Chunk, partner: Chunk | None, settings: Settings, rng: np.random.Generator
) -> tuple[Rows, np.ndarray, ExampleCounts]:
    """Unmasked rows, their labels [N], and what is to be counted before masking."""
    length, short, vocab = settings.max_seq_length, settings.short_seq_prob, settings.vocab
    if settings.objective == "mlm":
        made = full_sentences(chunk, length - 2, short, settings.cross_documents, vocab.sep_id, rng)
        counts = ExampleCounts(cut_sentences=made.cut_sentences)
        return full_sentence_rows(made, length, vocab), np.zeros(len(made.start)), counts
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


def _masked(rows: Rows, settings: Settings, rng: np.random.Generator) -> dict[str, np.ndarray]:
    most = settings.max_predictions_per_seq
    masked = mask_rows(
        rows,
        prediction_budget(rows.lengths, settings.masked_lm_prob, most),
        settings.masking,
        settings.max_ngram_size,
        settings.vocab.mask_id,
        len(settings.vocab),
        rng,
    )
    missing = [(0, 0), (0, most - masked.positions.shape[1])]
    return {
        "input_word_ids": masked.ids,
        "masked_lm_positions": np.pad(masked.positions, missing).astype(np.int32),
        "masked_lm_ids": np.pad(masked.labels, missing),
        "masked_lm_weights": np.pad(masked.weights, missing),
    }

"""From a chunk of documents and a seed to examples: a pure function, whoever calls it."""

import dataclasses
from dataclasses import dataclass

import numpy as np

from bert_tf.pretraining.documents import Chunk
from bert_tf.pretraining.masking import mask_rows, prediction_budget
from bert_tf.pretraining.pairs import Pairs, make_pairs
from bert_tf.text.vocab import Vocabulary


@dataclass(frozen=True)
class Settings:
    """What examples are made to. See the flags of create_pretraining_data.

    Raises:
        ValueError: a value of no use; names it.
    """

    vocab: Vocabulary
    max_seq_length: int = 128
    max_predictions_per_seq: int = 20
    masked_lm_prob: float = 0.15
    short_seq_prob: float = 0.1
    whole_word: bool = False

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


@dataclass
class ExampleCounts:
    """Sums over examples."""

    examples: int = 0
    tokens: int = 0
    predictions: int = 0
    random_next: int = 0
    cut_pairs: int = 0
    cut_tokens: int = 0

    def __add__(self, other: "ExampleCounts") -> "ExampleCounts":
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return ExampleCounts(*(mine + theirs for mine, theirs in pairs))


def unit_seed(user_seed: int, chunk_index: int, dupe_index: int) -> np.random.SeedSequence:
    """The seed of one pass over one chunk, independent of what else is done and by whom."""
    return np.random.SeedSequence(user_seed, spawn_key=(chunk_index, dupe_index))


def make_examples(
    chunk: Chunk, seed: np.random.SeedSequence, settings: Settings
) -> tuple[dict[str, np.ndarray], ExampleCounts]:
    """One pass over the chunk: pairs, masked, as the arrays of `tfrecords.features`.

    Returns arrays [N, S], [N, P] and [N, 1] (`next_sentence_labels`) in document order, and counts.
    """
    rng = np.random.default_rng(seed)
    vocab = settings.vocab
    pairs = make_pairs(chunk, settings.max_seq_length - 3, settings.short_seq_prob, rng)
    ids, lengths, type_ids, maskable = _assemble(chunk.pieces, pairs, settings)
    continues = None
    if settings.whole_word:
        continues = np.array([token.startswith("##") for token in vocab.tokens])
    max_predictions = settings.max_predictions_per_seq
    masked = mask_rows(
        ids,
        maskable,
        prediction_budget(lengths, settings.masked_lm_prob, max_predictions),
        continues,
        vocab.mask_id,
        len(vocab),
        rng,
    )
    missing = [(0, 0), (0, max_predictions - masked.positions.shape[1])]
    arrays = {
        "input_word_ids": masked.ids,
        "input_mask": (np.arange(settings.max_seq_length) < lengths[:, None]).astype(np.int32),
        "input_type_ids": type_ids,
        "masked_lm_positions": np.pad(masked.positions, missing).astype(np.int32),
        "masked_lm_ids": np.pad(masked.labels, missing),
        "masked_lm_weights": np.pad(masked.weights, missing),
        "next_sentence_labels": pairs.is_random_next.astype(np.int32)[:, None],
    }
    counts = ExampleCounts(
        examples=len(ids),
        tokens=int(lengths.sum()),
        predictions=int(masked.weights.sum()),
        random_next=int(pairs.is_random_next.sum()),
        cut_pairs=int(np.count_nonzero(pairs.cut_tokens)),
        cut_tokens=int(pairs.cut_tokens.sum()),
    )
    return arrays, counts


def _assemble(
    pieces: np.ndarray, pairs: Pairs, settings: Settings
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows [CLS] A [SEP] B [SEP] 0 0 ...

    Returns ids [N, S] int32, lengths [N], type ids [N, S] int32, maskable [N, S] bool.
    """
    column = np.arange(settings.max_seq_length)
    a_length = (pairs.a_end - pairs.a_start)[:, None]
    first_sep = a_length + 1
    second_sep = first_sep + (pairs.b_end - pairs.b_start)[:, None] + 1
    in_b = column > first_sep
    source = np.where(
        in_b,
        (pairs.b_start[:, None] - first_sep - 1) + column,
        (pairs.a_start[:, None] - 1) + column,
    )
    ids = pieces[np.clip(source, 0, len(pieces) - 1)]
    ids[:, 0] = settings.vocab.cls_id
    is_sep = (column == first_sep) | (column == second_sep)
    ids[is_sep] = settings.vocab.sep_id
    inside = column <= second_sep
    ids[~inside] = 0
    maskable = inside & ~is_sep
    maskable[:, 0] = False
    return ids, second_sep[:, 0] + 1, (in_b & inside).astype(np.int32), maskable

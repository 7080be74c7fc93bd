"""What every pre-training record must be like, for a whole batch of records at once.

The rules are those that google-research/bert's create_pretraining_data.py keeps: values in range,
everything that is padding 0, predictions in order of their position, [CLS] A [SEP] B [SEP].
"""

from collections.abc import Iterator

import numpy as np

from tfrecords.vocabulary import Vocabulary

Batch = dict[str, np.ndarray]
Problem = tuple[np.ndarray, str]


def first_problem(batch: Batch, vocab: Vocabulary | None) -> tuple[int, str] | None:
    """The first row of a batch that breaks a rule, and the rule; None where all is well.

    Args:
        batch: the features of `features.pretraining_features` or `dynamic_features`, [B, length].
        vocab: where it is known, ids are checked against it, too.
    """
    # Later rules make sense only for rows that keep the earlier ones: of a row, the first is told.
    found: tuple[int, str] | None = None
    for broken, message in _problems(batch, vocab):
        row = int(np.argmax(broken))
        if broken[row] and (found is None or row < found[0]):
            found = row, message
    return found


def unmasked_ids(batch: Batch) -> np.ndarray:
    """The ids [B, S] with the labels of the predictions in their places."""
    ids = batch["input_word_ids"]
    if "masked_lm_ids" not in batch:
        return ids
    ids = ids.copy()
    rows, slots = np.nonzero(batch["masked_lm_weights"])
    positions = np.clip(batch["masked_lm_positions"], 0, ids.shape[1] - 1)
    ids[rows, positions[rows, slots]] = batch["masked_lm_ids"][rows, slots]
    return ids


def _problems(batch: Batch, vocab: Vocabulary | None) -> Iterator[Problem]:
    """Rows [B] bool that break a rule, and what to say of them."""
    mask, types, ids = batch["input_mask"], batch["input_type_ids"], batch["input_word_ids"]
    columns = np.arange(mask.shape[1], dtype=np.int32)
    lengths = np.count_nonzero(mask, axis=1)
    inside = columns < lengths[:, None]
    yield _any(mask != inside), "input_mask is not ones followed by zeros"
    yield lengths < 2, "fewer than two pieces"
    limit = len(vocab) if vocab else 2**31 - 1
    yield _any((ids < 0) | (ids >= limit)), f"an id is outside the vocabulary of {limit}"
    yield _any((ids != 0) & ~inside), "an id in the padding is not 0"
    yield _any((types != 0) & (types != 1)), "a segment id is neither 0 nor 1"
    yield _any((types != 0) & ~inside), "a segment id in the padding is not 0"
    in_a = lengths - np.count_nonzero(types, axis=1)
    expected = (columns >= in_a[:, None]) & inside
    yield _any(types != expected), "the segment ids are not zeros followed by ones"
    label = batch["next_sentence_labels"]
    yield _any((label != 0) & (label != 1)), "next_sentence_labels is neither 0 nor 1"
    if "masked_lm_ids" in batch:
        yield from _problems_of_predictions(batch, lengths, limit, vocab)
    if vocab:
        yield from _problems_of_special_pieces(unmasked_ids(batch), in_a, lengths, vocab)
    if "word_starts" in batch:
        yield from _problems_of_word_starts(batch, in_a, lengths, vocab)


def _problems_of_predictions(
    batch: Batch, lengths: np.ndarray, limit: int, vocab: Vocabulary | None
) -> Iterator[Problem]:
    positions, labels = batch["masked_lm_positions"], batch["masked_lm_ids"]
    weights = batch["masked_lm_weights"]
    count = np.count_nonzero(weights, axis=1)
    real = np.arange(weights.shape[1]) < count[:, None]
    yield _any(weights != real), "masked_lm_weights is not ones followed by zeros"
    yield _any((positions != 0) & ~real), "a masked position in the padding is not 0"
    yield _any((labels != 0) & ~real), "a label in the padding is not 0"
    outside = (positions < 1) | (positions >= lengths[:, None])
    yield _any(outside & real), "a masked position is not among the pieces of the row"
    unordered = (np.diff(positions, axis=1) <= 0) & real[:, 1:]
    yield _any(unordered), "the masked positions do not ascend, or one occurs twice"
    yield _any((labels < 0) | (labels >= limit)), f"a label is outside the vocabulary of {limit}"
    if vocab:
        special = (labels == vocab.cls_id) | (labels == vocab.sep_id)
        yield _any(special & real), "[CLS] or [SEP] is to be predicted"


def _problems_of_special_pieces(
    ids: np.ndarray, in_a: np.ndarray, lengths: np.ndarray, vocab: Vocabulary
) -> Iterator[Problem]:
    rows = np.arange(len(ids))
    yield ids[:, 0] != vocab.cls_id, "the first piece is not [CLS]"
    yield np.count_nonzero(ids == vocab.cls_id, axis=1) > 1, "[CLS] occurs twice"
    is_sep = ids == vocab.sep_id
    yield ~is_sep[rows, lengths - 1], "the last piece is not [SEP]"
    yield ~is_sep[rows, in_a - 1], "the first segment does not end with [SEP]"
    # In a row of one segment each [SEP] may end a document.
    wrong = (in_a < lengths) & (np.count_nonzero(is_sep, axis=1) != 2)
    yield wrong, "[SEP] occurs inside a segment"


def _problems_of_word_starts(
    batch: Batch, in_a: np.ndarray, lengths: np.ndarray, vocab: Vocabulary | None
) -> Iterator[Problem]:
    starts, ids = batch["word_starts"], batch["input_word_ids"]
    columns = np.arange(starts.shape[1], dtype=np.int32)
    special = (columns == 0) | (columns >= lengths[:, None] - 1) | (columns == in_a[:, None] - 1)
    if vocab:
        special |= (ids == vocab.cls_id) | (ids == vocab.sep_id)
    yield _any((starts != 0) & (starts != 1)), "word_starts has something other than 0 and 1"
    yield _any((starts != 0) & special), "a word starts at [CLS], [SEP] or in the padding"
    first = special[:, :-1] & ~special[:, 1:] & (starts[:, 1:] != 1)
    yield _any(first), "no word starts at the first piece of a segment"


def _any(wrong: np.ndarray) -> np.ndarray:
    return wrong.any(axis=1)

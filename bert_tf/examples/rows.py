"""Rows of a fixed length: segments between special tokens, padded."""

from dataclasses import dataclass

import numpy as np

from bert_tf.examples.chunk import Chunk
from bert_tf.examples.full_sentences import FullSentences
from bert_tf.examples.pairs import Pairs
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


def full_sentence_rows(sentences: FullSentences, max_seq_length: int, vocab: Vocabulary) -> Rows:
    """Returns rows of the form [CLS] sentences [SEP] 0 0 ..., with a [SEP] between documents."""
    column = np.arange(max_seq_length)
    source = sentences.start[:, None] - 1 + column
    last = (sentences.end - sentences.start + 1)[:, None]
    inside = column <= last
    maskable = (column > 0) & (column < last)
    maskable &= ~sentences.is_sep.take(source, mode="clip")
    ids = sentences.token_ids.take(source, mode="clip")
    ids[np.arange(len(ids)), last[:, 0]] = vocab.sep_id
    ids[:, 0] = vocab.cls_id
    ids *= inside
    unit_starts = sentences.unit_starts.take(source, mode="clip")
    unit_starts[:, 1] = True
    unit_starts &= maskable
    return Rows(ids, last[:, 0] + 1, np.zeros(ids.shape, np.int32), maskable, unit_starts)

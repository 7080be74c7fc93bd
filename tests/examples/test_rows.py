"""Tests rows of full sentences. Oracles: rows worked by hand, and packing of plain lists."""

import collections
import types

import numpy as np
import pytest
from support import assert_likely, make_chunk

from bert_tf.examples.segments import Rows, full_sentence_rows

CLS, SEP = -2, -1
VOCAB = types.SimpleNamespace(cls_id=CLS, sep_id=SEP)


def _make(chunk, max_tokens, cross_documents, seed=0, short_seq_prob=0.0) -> Rows:
    options = types.SimpleNamespace(
        max_seq_length=max_tokens + 2,
        short_seq_prob=short_seq_prob,
        cross_documents=cross_documents,
    )
    return full_sentence_rows(chunk, options, VOCAB, np.random.default_rng(seed))


def _rows(made: Rows) -> list[list[int]]:
    """Returns what is between the [CLS] and the last [SEP] of each row."""
    rows = [ids[:n].tolist() for ids, n in zip(made.ids, made.lengths, strict=True)]
    assert all(row[0] == CLS and row[-1] == SEP for row in rows)
    return [row[1:-1] for row in rows]


def test_rows_worked_by_hand():
    # Sentences [0 1] [2 3 4] [5] of a document and [6] [7 ... 13] [14] of another; rows of five.
    chunk = make_chunk([[2, 3, 1], [1, 7, 1]])
    found = {tuple(map(tuple, _rows(_make(chunk, 5, True, seed)))) for seed in range(20)}
    assert found == {
        # A [SEP] separates documents; none ends a row.
        ((0, 1, 2, 3, 4), (5, SEP, 6), (7, 8, 9, 10, 11), (12, 13, 14)),
        # The rest of a divided sentence is followed by the next sentence or document.
        ((6,), (7, 8, 9, 10, 11), (12, 13, 14), (0, 1, 2, 3, 4), (5,)),
    }
    rows = _rows(_make(chunk, 5, False))
    assert sorted(rows) == [[0, 1, 2, 3, 4], [5], [6], [7, 8, 9, 10, 11], [12, 13, 14]]


def _slow_rows(documents: list[list[list[int]]], max_tokens: int) -> list[list[int]]:
    rows: list[list[int]] = []
    row: list[int] = []
    for sentences in documents:
        gap = [SEP] if row else []
        for sentence in sentences:
            if row and len(row) + len(gap) + len(sentence) > max_tokens:
                rows.append(row)
                row, gap = [], []
            row = row + gap + sentence
            gap = []
            while len(row) > max_tokens:
                rows.append(row[:max_tokens])
                row = row[max_tokens:]
    return [*rows, row]


@pytest.mark.parametrize("cross_documents", [True, False])
def test_packing_equals_that_of_plain_lists(cross_documents):
    rng = np.random.default_rng(0)
    lengths = [rng.integers(1, 30, rng.integers(1, 12)).tolist() for _ in range(40)]
    chunk = make_chunk(lengths)
    documents = [
        [
            chunk.token_ids[chunk.sentence_starts[n] : chunk.sentence_starts[n + 1]].tolist()
            for n in range(first, end)
        ]
        for first, end in zip(chunk.document_starts, chunk.document_starts[1:], strict=False)
    ]
    orders, limits = set(), chunk.sentence_starts[chunk.document_starts]
    for seed in range(10):
        made = _make(chunk, 20, cross_documents, seed)
        rows = _rows(made)
        # The order of the documents is random; read it from the result.
        tokens = [token for row in rows for token in row if token != SEP]
        order = list(dict.fromkeys(np.searchsorted(limits, tokens, side="right") - 1))
        orders.add(tuple(order))
        in_order = [documents[number] for number in order]
        groups = [in_order] if cross_documents else [[document] for document in in_order]
        assert rows == [row for group in groups for row in _slow_rows(group, 20)]
        ids, inside = made.ids, np.arange(22) < made.lengths[:, None]
        assert np.array_equal(made.maskable, inside & (ids >= 0)) and not ids[~inside].any()
        # A row begins a unit, whatever its first token is.
        first = np.arange(22) == 1
        assert np.array_equal(made.unit_starts, made.maskable & (first | (ids % 2 == 0)))
    assert len(orders) == 10


def test_some_documents_have_a_short_target():
    # With one token per sentence, a row is exactly as long as its target.
    chunk = make_chunk([[1] * 60] * 2000)
    made = _make(chunk, 6, False, short_seq_prob=0.6)
    lengths = [len(row) for row in _rows(made)]
    # Every target divides 60, the length of a document.
    found = collections.Counter()
    for length in range(2, 7):
        found[length] = lengths.count(length) / (60 / length)
    assert sum(found.values()) == pytest.approx(2000)
    for length, chance in (dict.fromkeys([2, 3, 4, 5], 0.12) | {6: 0.52}).items():
        assert_likely(found[length], 2000, chance)
    assert sorted(token for row in _rows(made) for token in row) == list(range(120_000))

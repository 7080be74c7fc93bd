"""Tests chunks, making examples of them, and the plan of all passes.

Oracles: round trips, rows assembled from the same pairs, and counts of the arrays; every pass
occurs once.
"""

import dataclasses
from collections import Counter

import numpy as np
import pytest

from bert_tf.base.choices import MASKINGS
from bert_tf.examples.chunk import Chunk, ExampleCounts, join_chunks, load_chunk, save_chunk
from bert_tf.examples.job import Pass, ShardPart, block_bytes, plan_shards
from bert_tf.examples.segments import next_sentence_pairs
from bert_tf.examples.steps import make_examples, pass_seed
from tfrecords.features import Layout, serialize_examples
from tfrecords.records import Rules
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

VOCAB = Vocabulary((*SPECIAL_TOKENS, *"abcdefghijklmnopqrst", *(f"##{x}" for x in "uvwxyz")))


@pytest.fixture
def chunk() -> Chunk:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 12, 300)
    token_ids = rng.integers(5, len(VOCAB), lengths.sum(), np.int32)
    return Chunk(
        token_ids=token_ids,
        unit_starts=token_ids < len(VOCAB) - 6,
        sentence_starts=np.concatenate([[0], np.cumsum(lengths)]),
        document_starts=np.array([0, 1, 20, 150, 300]),
    )


@pytest.fixture
def make(settings):
    """Makes examples of 24 tokens with up to 5 predictions, but for changed flags."""

    def make(chunk, partner=None, seed=(7, 1, 2), **flags):
        return make_examples(chunk, partner, pass_seed(*seed), settings(**flags), VOCAB)

    return make


def _unmasked(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Returns the ids [N, S] with the labels in place of the predicted tokens."""
    ids = arrays["input_word_ids"].copy()
    row, slot = np.nonzero(arrays["masked_lm_weights"])
    ids[row, arrays["masked_lm_positions"][row, slot]] = arrays["masked_lm_ids"][row, slot]
    return ids


@pytest.mark.parametrize("masking", ["wordpiece", "whole_word", "ngram", "span", "entity"])
def test_rows_are_the_pairs_between_special_tokens(chunk, make, masking):
    arrays, counts = make(chunk, short_seq_prob=0.5, masking=masking)
    # The pairs are drawn first, so the same seed gives the same pairs.
    pairs = next_sentence_pairs(chunk, 21, 0.5, np.random.default_rng(pass_seed(7, 1, 2)))
    assert counts.examples == len(pairs.a_start) > 50
    records = serialize_examples(arrays)
    assert not Rules(Layout.of(records[0]), len(VOCAB), vocab=VOCAB).check(records)[1]
    found = _unmasked(arrays)
    for row in range(counts.examples):
        a = chunk.token_ids[pairs.a_start[row] : pairs.a_end[row]].tolist()
        b = chunk.token_ids[pairs.b_start[row] : pairs.b_end[row]].tolist()
        ids = [VOCAB.cls_id, *a, VOCAB.sep_id, *b, VOCAB.sep_id]
        padding = [0] * (24 - len(ids))
        assert found[row].tolist() == ids + padding
        assert arrays["input_mask"][row].tolist() == [1] * len(ids) + padding
        type_ids = [0] * (len(a) + 2) + [1] * (len(b) + 1)
        assert arrays["input_type_ids"][row].tolist() == type_ids + padding
        assert arrays["next_sentence_labels"][row].tolist() == [int(pairs.labels[row])]


@pytest.mark.parametrize("objective", ["nsp", "sop", "mlm"])
def test_dynamic_rows_equal_unmasked_static_rows(chunk, make, objective):
    arrays, counts = make(chunk, masking="dynamic", objective=objective)
    masked, masked_counts = make(chunk, objective=objective)
    assert list(arrays) == list(Layout(True, False, 24, 0).features)
    for name in ("input_mask", "input_type_ids", "next_sentence_labels"):
        np.testing.assert_array_equal(arrays[name], masked[name])
    assert counts == dataclasses.replace(masked_counts, predictions=0)
    np.testing.assert_array_equal(arrays["input_word_ids"], _unmasked(masked))
    # The last six tokens of this vocabulary continue a word, except at the start of a segment.
    ids = arrays["input_word_ids"]
    special = ids < len(SPECIAL_TOKENS)
    after_special = np.pad(special[:, :-1], [(0, 0), (1, 0)])
    starts = ~special & (after_special | (ids < len(VOCAB) - 6))
    np.testing.assert_array_equal(arrays["word_starts"], starts)
    assert (starts & (ids >= len(VOCAB) - 6)).any()


def test_random_segments_come_from_the_partner(chunk, make):
    token_ids = np.full(40, 7, np.int32)
    partner = Chunk(token_ids, token_ids > 0, np.arange(0, 41, 4), np.array([0, 3, 10]))
    alone = dataclasses.replace(chunk, token_ids=np.full_like(chunk.token_ids, 6))
    arrays, counts = make(alone, partner, masking="dynamic")
    in_b = (arrays["input_type_ids"] == 1) & (arrays["input_word_ids"] != VOCAB.sep_id)
    is_random = np.broadcast_to(arrays["next_sentence_labels"] == 1, in_b.shape)
    assert set(arrays["input_word_ids"][in_b & is_random]) == {7}
    assert set(arrays["input_word_ids"][in_b & ~is_random]) == {6}
    in_a = (arrays["input_type_ids"] == 0) & (arrays["input_mask"] == 1)
    assert set(arrays["input_word_ids"][in_a]) == {VOCAB.cls_id, 6, VOCAB.sep_id}
    assert 0.4 < counts.random_next / counts.examples < 0.7 and counts.examples > 50
    # A chunk of one document takes segments from its partner, and without one has no pairs.
    document = Chunk(alone.token_ids[:1], alone.unit_starts[:1], np.arange(2), np.arange(2))
    _, counts = make(document, partner)
    assert (counts.examples, counts.random_next, counts.documents_without_pairs) == (1, 1, 0)
    arrays, counts = make(document)
    assert counts == ExampleCounts(documents_without_pairs=1)
    assert {values.shape[0] for values in arrays.values()} == {0}


def test_full_sentences_have_one_segment_and_no_label(chunk, make):
    """Oracle: the lengths of the sentences, of which some are longer than ten tokens."""
    arrays, counts = make(chunk, objective="mlm")
    assert not arrays["input_type_ids"].any() and not arrays["next_sentence_labels"].any()
    assert counts.cut_sentences == 0 and counts.random_next == counts.cut_pairs == 0
    _, counts = make(chunk, objective="mlm", max_seq_length=12)
    assert counts.cut_sentences == np.count_nonzero(np.diff(chunk.sentence_starts) > 10) > 0


def test_sentence_order_counts_swapped_pairs(chunk, make):
    arrays, counts = make(chunk, objective="sop")
    assert counts.swapped == arrays["next_sentence_labels"].sum() > 0
    assert counts.random_next == 0 and counts.documents_without_pairs == 1


@pytest.mark.parametrize("objective", ["nsp", "sop", "mlm"])
@pytest.mark.parametrize("masking", MASKINGS)
def test_a_chunk_without_documents_gives_empty_arrays(make, objective, masking):
    nothing = np.zeros(1, np.int64)
    empty = Chunk(np.zeros(0, np.int32), np.zeros(0, bool), nothing, nothing)
    arrays, counts = make(empty, objective=objective, masking=masking)
    assert counts == ExampleCounts()
    widths = {1, 24} if masking == "dynamic" else {1, 5, 24}
    assert {values.shape for values in arrays.values()} == {(0, width) for width in widths}


def test_counts_are_those_of_the_arrays(chunk, make):
    arrays, counts = make(chunk)
    assert counts.tokens == arrays["input_mask"].sum()
    budget = np.clip(np.rint(arrays["input_mask"].sum(axis=1) * 0.15), 1, 5)
    assert counts.predictions == arrays["masked_lm_weights"].sum() == budget.sum()
    assert counts.random_next == arrays["next_sentence_labels"].sum()
    assert 0 < counts.cut_pairs <= counts.cut_tokens
    features = Layout(False, False, 24, 5).features.items()
    expected = {name: (counts.examples, width) for name, (_, width) in features}
    assert {name: values.shape for name, values in arrays.items()} == expected


def test_seeds_decide(chunk, make):
    def ids(*seed: int) -> bytes:
        return make(chunk, seed=seed)[0]["input_word_ids"].tobytes()

    assert ids(1, 2, 3) == ids(1, 2, 3)
    assert len({ids(1, 2, 3), ids(1, 2, 4), ids(1, 3, 3), ids(2, 2, 3), ids(1, 0, 0)}) == 5


def test_the_shortest_sequence(chunk, make):
    arrays, _ = make(chunk, max_seq_length=5, max_predictions_per_seq=1)
    assert np.all(arrays["input_mask"] == 1)
    assert np.all(arrays["masked_lm_weights"] == 1)


@pytest.mark.parametrize("largest", [5, 65535, 65536])
@pytest.mark.parametrize("size", [0, 1, 9, 70000])
def test_saved_chunks(tmp_path, largest, size):
    rng = np.random.default_rng(size)
    token_ids = rng.integers(0, largest, size, np.int32, endpoint=True)
    token_ids[size // 2 :] = largest
    sentence_starts = np.unique([0, *rng.integers(0, size + 1, 2), size])
    sentences = len(sentence_starts) - 1
    chunk = Chunk(token_ids, rng.random(size) < 0.5, sentence_starts, np.unique([0, sentences]))
    path = tmp_path / "folder" / "chunk.npz"
    save_chunk(str(path), chunk)
    _assert_equal(load_chunk(str(path)), chunk)
    assert list(path.parent.iterdir()) == [path]
    bytes_per_token = 3.2 if largest < 65536 else 5.2
    assert path.stat().st_size < 1500 + bytes_per_token * size
    with pytest.raises(OSError, match="cannot read .*missing.npz"):
        load_chunk(str(tmp_path / "missing.npz"))


def _assert_equal(found: Chunk, expected: Chunk) -> None:
    for name, values in vars(expected).items():
        np.testing.assert_array_equal(getattr(found, name), values, strict=True)


def test_joined_chunks_have_the_documents_of_both():
    """Oracle: documents of sentences of 3, 3; 2 and of 1, 1; 4 tokens, written as one chunk."""
    first = Chunk(np.arange(8), np.ones(8, bool), np.array([0, 3, 6, 8]), np.array([0, 2, 3]))
    unit_starts = np.array([True, False, True, True, True, True])
    second = Chunk(np.arange(8, 14), unit_starts, np.array([0, 1, 2, 6]), np.array([0, 2, 3]))
    expected = Chunk(
        np.arange(14),
        np.append(np.ones(8, bool), unit_starts),
        np.array([0, 3, 6, 8, 9, 10, 14]),
        np.array([0, 2, 3, 5, 6]),
    )
    _assert_equal(join_chunks(first, second), expected)


def _passes(shards: list[list[ShardPart]]) -> list[Pass]:
    return [one_pass for parts in shards for part in parts for one_pass in part.passes]


@pytest.mark.parametrize(
    ("chunks", "dupe_factor", "num_shards"), [(1, 1, 1), (1, 1, 5), (3, 2, 4), (40, 10, 7)]
)
def test_every_pass_is_made_once(chunks, dupe_factor, num_shards):
    shards = plan_shards([1000] * chunks, dupe_factor, num_shards, seed=1)
    passes = _passes(shards)
    (stride,) = {one_pass.stride for one_pass in passes}
    expected = {
        (chunk, dupe, offset)
        for chunk in range(chunks)
        for dupe in range(dupe_factor)
        for offset in range(stride)
    }
    assert Counter(
        (one_pass.chunk, one_pass.dupe, one_pass.offset) for one_pass in passes
    ) == Counter(expected)
    assert len(shards) == num_shards and len(passes) >= num_shards
    for shard, parts in enumerate(shards):
        numbers = [(shard, index) for index in range(len(parts))]
        assert [(part.shard, part.index) for part in parts] == numbers and numbers


def test_shards_have_as_many_passes_and_mix_chunks():
    """Oracle: dealing 400 passes to 7 shards gives 57 or 58 to each."""
    for parts in plan_shards([1000] * 40, 10, 7, seed=1):
        passes = _passes([parts])
        assert len(passes) in (57, 58)
        assert len({one_pass.chunk for one_pass in passes}) > 20
        assert len({one_pass.dupe for one_pass in passes}) == 10


def test_partners_are_other_chunks_with_equal_chances():
    """Oracle: the uniform distribution; 400 draws of 39 others give about 10 of each."""
    passes = _passes(plan_shards([1000] * 40, 10, 400, 1))
    assert all(one_pass.partner != one_pass.chunk for one_pass in passes)
    drawn = Counter(one_pass.partner for one_pass in passes)
    assert set(drawn) == set(range(40)) and max(drawn.values()) < 25


def test_all_that_share_a_pass_have_the_same_partner():
    passes = _passes(plan_shards([1000] * 2, 1, 9, 1))
    assert {(one_pass.chunk, one_pass.partner, one_pass.stride) for one_pass in passes} == {
        (0, 1, 5),
        (1, 0, 5),
    }


def test_a_corpus_of_one_chunk_has_no_partner():
    ((part,),) = plan_shards([1000], 1, 1, seed=1)
    assert next(part.passes).partner is None


def test_the_seed_decides_the_order():
    def plan(seed):
        return plan_shards([1000] * 40, 10, 7, seed)

    assert plan(1) == plan(1) != plan(2)


def test_parts_are_many_and_fit_in_memory():
    """Oracle: at least 16 parts for one file, at most 2**23 tokens each, the sums of the chunks."""
    (small,) = plan_shards([100_000] * 10, 10, 1, seed=1)
    assert 16 <= len(small) <= 17
    assert sum(part.tokens for part in small) == 10_000_000
    large = plan_shards([1_000_000] * 100, 10, 4, seed=1)
    assert max(part.tokens for parts in large for part in parts) <= 1.2 * 2**23


def test_many_passes_over_little_text_fit_in_memory():
    """Oracle: the limit of 2**14 passes per part, and 16 bytes per pass."""
    (parts,) = plan_shards([60], 400_000, 1, seed=1)
    sizes = [len(part.table) // 16 for part in parts]
    assert sum(sizes) == 400_000 and max(sizes) <= 2**14


def test_block_bytes():
    """Oracle: by hand for 512 passes, 16 per shard, and blocks of 64 KiB to 4 MiB."""
    assert block_bytes(100, 10, 1) == 2**16
    assert block_bytes(44_000_000, 10, 1) == 2**19 <= 44_000_000 * 10 // 512 < 2**20
    assert block_bytes(44_000_000, 10, 100) == 2**18 <= 44_000_000 * 10 // 1600 < 2**19
    assert block_bytes(20 * 10**9, 10, 64) == 2**22

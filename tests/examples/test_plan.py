"""Tests the plan. Oracles: every pass occurs once; the docstrings' promises, counted."""

from collections import Counter

import pytest

from bert_tf.examples.plan import Pass, ShardPart, block_bytes, plan_shards


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
    assert block_bytes(44_000_000, 10, 1) == 44_000_000 * 10 // 512
    assert block_bytes(44_000_000, 10, 100) == 44_000_000 * 10 // 1600
    assert block_bytes(20 * 10**9, 10, 64) == 2**22

"""Oracles: every unit of work is there once; what the docstrings promise, counted."""

from collections import Counter

import pytest

from bert_tf.examples.plan import block_bytes, plan_segments


@pytest.mark.parametrize(
    ("chunks", "dupe_factor", "shards"), [(1, 1, 1), (1, 1, 5), (3, 2, 4), (40, 10, 7)]
)
def test_every_unit_is_done_once(chunks, dupe_factor, shards):
    segments = plan_segments([1000] * chunks, dupe_factor, shards, seed=1)
    units = [unit for segment in segments for unit in segment.units]
    (parts,) = {unit.parts for unit in units}
    expected = {(c, d, p) for c in range(chunks) for d in range(dupe_factor) for p in range(parts)}
    assert Counter((u.chunk, u.dupe, u.part) for u in units) == Counter(expected)
    assert {segment.shard for segment in segments} == set(range(shards))
    assert len(units) >= shards
    names = [(segment.shard, segment.index) for segment in segments]
    assert len(set(names)) == len(names)


def test_the_shards_have_as_many_units_and_mix_chunks_and_passes():
    """Oracle: dealing 400 units to 7 shards gives 57 or 58 to each."""
    segments = plan_segments([1000] * 40, 10, 7, seed=1)
    for shard in range(7):
        units = [unit for segment in segments if segment.shard == shard for unit in segment.units]
        assert len(units) in (57, 58)
        assert len({unit.chunk for unit in units}) > 20
        assert len({unit.dupe for unit in units}) == 10


def test_partners_are_other_chunks_each_as_likely():
    """Oracle: the uniform distribution; 400 draws of 39 others are about 10 each."""
    units = [unit for s in plan_segments([1000] * 40, 10, 400, 1) for unit in s.units]
    assert all(unit.partner != unit.chunk for unit in units)
    drawn = Counter(unit.partner for unit in units)
    assert set(drawn) == set(range(40)) and max(drawn.values()) < 25


def test_the_parts_of_a_unit_have_the_same_partner():
    units = [unit for s in plan_segments([1000] * 2, 1, 9, 1) for unit in s.units]
    assert {(unit.chunk, unit.partner, unit.parts) for unit in units} == {(0, 1, 5), (1, 0, 5)}


def test_a_corpus_of_one_chunk_has_no_partner():
    (segment,) = plan_segments([1000], 1, 1, seed=1)
    assert segment.units[0].partner is None


def test_the_seed_decides_the_order():
    def plan(seed):
        return plan_segments([1000] * 40, 10, 7, seed)

    assert plan(1) == plan(1) != plan(2)


def test_segments_are_many_and_none_is_too_large_for_memory():
    """Oracle: 16 segments at least for one file, 2**23 tokens at most, the sums of the chunks."""
    small = plan_segments([100_000] * 10, 10, 1, seed=1)
    assert 16 <= len(small) <= 17
    assert sum(segment.tokens for segment in small) == 10_000_000
    large = plan_segments([1_000_000] * 100, 10, 4, seed=1)
    assert max(segment.tokens for segment in large) <= 1.2 * 2**23


def test_block_bytes():
    """Oracle: by hand from the numbers in the docstring: 512 units, 16 a shard, 64 KiB to 4 MiB."""
    assert block_bytes(100, 10, 1) == 2**16
    assert block_bytes(44_000_000, 10, 1) == 44_000_000 * 10 // 512
    assert block_bytes(44_000_000, 10, 100) == 44_000_000 * 10 // 1600
    assert block_bytes(20 * 10**9, 10, 64) == 2**22

"""Who makes what: a corpus divided into units of work, segments and shards by arithmetic alone.

A *unit* is one pass (of `dupe_factor`) over one chunk of text. All units, in an order that the seed
shuffles, are dealt to the shards, which are the output files, and within a shard to *segments*,
each made in one go and shuffled as a whole. The plan follows from the sizes of the chunks and the
seed, never from who does the work.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Enough units for a segment to mix many, of blocks large enough for vectors to pay.
_UNITS = 512
_UNITS_PER_SHARD = 16
_MIN_BLOCK_BYTES, _MAX_BLOCK_BYTES = 2**16, 2**22
# A segment's records are in memory at once: 8 million tokens are about 40 MB.
_MAX_SEGMENT_TOKENS = 2**23
_MIN_SEGMENTS = 16


@dataclass(frozen=True)
class Unit:
    """Every `parts`-th example, from `part` on, of pass `dupe` over the chunk.

    The "random next" segments come from the chunk `partner`; None: from the chunk itself.
    """

    chunk: int
    dupe: int
    partner: int | None = None
    part: int = 0
    parts: int = 1


@dataclass(frozen=True)
class Segment:
    """Segment `index` of a shard."""

    shard: int
    index: int
    units: tuple[Unit, ...]
    tokens: int


def block_bytes(input_bytes: int, dupe_factor: int, num_shards: int) -> int:
    """How much text makes a chunk: small inputs have smaller chunks, so that there are many."""
    units = max(_UNITS, _UNITS_PER_SHARD * num_shards)
    return min(max(input_bytes * dupe_factor // units, _MIN_BLOCK_BYTES), _MAX_BLOCK_BYTES)


def plan_segments(
    chunk_tokens: Sequence[int], dupe_factor: int, num_shards: int, seed: int
) -> list[Segment]:
    """The segments of all shards, in the order of the shards.

    Args:
        chunk_tokens: the size of every chunk; none is empty.
    """
    chunks = len(chunk_tokens)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    # With fewer units than shards, each unit is divided.
    parts = -(-num_shards // (chunks * dupe_factor))
    units = [
        (chunk, dupe, part)
        for chunk in range(chunks)
        for dupe in range(dupe_factor)
        for part in range(parts)
    ]
    units = rng.permutation(np.array(units)).tolist()
    partners = rng.integers(0, max(1, chunks - 1), (chunks, dupe_factor)).tolist()
    total = sum(chunk_tokens) * dupe_factor
    segment_tokens = min(_MAX_SEGMENT_TOKENS, max(1, total // _MIN_SEGMENTS))
    segments = []
    for shard in range(num_shards):
        mine = []
        for chunk, dupe, part in units[shard::num_shards]:
            partner = partners[chunk][dupe]
            other = partner + (partner >= chunk) if chunks > 1 else None
            mine.append(Unit(chunk, dupe, other, part, parts))
        tokens = [chunk_tokens[unit.chunk] // parts for unit in mine]
        count = min(len(mine), max(1, round(sum(tokens) / segment_tokens)))
        for index in range(count):
            chosen = slice(index, None, count)
            segments.append(Segment(shard, index, tuple(mine[chosen]), sum(tokens[chosen])))
    return segments

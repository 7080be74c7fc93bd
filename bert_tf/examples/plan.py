"""Plans the work: decides which passes over which chunks make up which shard.

A *pass* is one of `dupe_factor` passes over one chunk of text. All passes are shuffled by the seed
and dealt to the *shards*, the output files. Within a shard, they are dealt to *parts*, each of
which is created and shuffled as a whole. The plan depends only on the sizes of the chunks and on
the seed, never on where the work runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Enough passes to mix many in a part, over blocks large enough for vectorized code to pay off.
_PASSES = 512
_PASSES_PER_SHARD = 16
_MIN_BLOCK_BYTES, _MAX_BLOCK_BYTES = 2**16, 2**22
# The records of a part are in memory at once: 8 million tokens are about 40 MB.
_MAX_PART_TOKENS = 2**23
_MIN_PARTS = 16


@dataclass(frozen=True)
class Pass:
    """Pass `dupe` over a chunk: every `stride`-th of its examples, starting at `offset`.

    "Random next" segments come from the chunk `partner`; None stands for the chunk itself.
    """

    chunk: int
    dupe: int
    partner: int | None = None
    offset: int = 0
    stride: int = 1


@dataclass(frozen=True)
class ShardPart:
    """Part `index` of a shard: passes whose examples are shuffled together.

    Attributes:
        tokens: the number of input tokens, which measures the work.
    """

    shard: int
    index: int
    passes: tuple[Pass, ...]
    tokens: int


def block_bytes(input_bytes: int, dupe_factor: int, num_shards: int) -> int:
    """Returns the bytes of text per chunk. Small inputs get small chunks, to have many of them."""
    passes = max(_PASSES, _PASSES_PER_SHARD * num_shards)
    return min(max(input_bytes * dupe_factor // passes, _MIN_BLOCK_BYTES), _MAX_BLOCK_BYTES)


def plan_shards(
    chunk_tokens: Sequence[int], dupe_factor: int, num_shards: int, seed: int
) -> list[list[ShardPart]]:
    """Returns the parts of each shard.

    Args:
        chunk_tokens: the number of tokens of each chunk. No chunk is empty.
        dupe_factor: the number of passes over each chunk.
        num_shards: the number of output files.
        seed: determines the order of the passes and their partners.
    """
    chunks = len(chunk_tokens)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    # If there are fewer passes than shards, several shards share the examples of a pass.
    stride = -(-num_shards // (chunks * dupe_factor))
    order = [
        (chunk, dupe, offset)
        for chunk in range(chunks)
        for dupe in range(dupe_factor)
        for offset in range(stride)
    ]
    order = rng.permutation(np.array(order)).tolist()
    partners = rng.integers(0, max(1, chunks - 1), (chunks, dupe_factor)).tolist()
    part_tokens = min(_MAX_PART_TOKENS, max(1, sum(chunk_tokens) * dupe_factor // _MIN_PARTS))
    shards = []
    for shard in range(num_shards):
        passes = []
        for chunk, dupe, offset in order[shard::num_shards]:
            partner = partners[chunk][dupe]
            # Skips the chunk itself.
            other = partner + (partner >= chunk) if chunks > 1 else None
            passes.append(Pass(chunk, dupe, other, offset, stride))
        shards.append(_divide(shard, passes, chunk_tokens, part_tokens))
    return shards


def _divide(
    shard: int, passes: list[Pass], chunk_tokens: Sequence[int], part_tokens: int
) -> list[ShardPart]:
    """Deals the passes of a shard to parts of about `part_tokens` tokens."""
    tokens = [chunk_tokens[one_pass.chunk] // one_pass.stride for one_pass in passes]
    count = min(len(passes), max(1, round(sum(tokens) / part_tokens)))
    return [
        ShardPart(shard, index, tuple(passes[index::count]), sum(tokens[index::count]))
        for index in range(count)
    ]

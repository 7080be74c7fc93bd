"""Plans the work: decides which passes over which chunks make up which shard.

A *pass* is one of `dupe_factor` passes over one chunk of text. All passes are shuffled by the seed
and dealt to the *shards*, the output files. Within a shard, they are dealt to *parts*, each of
which is created and shuffled as a whole. The plan depends only on the sizes of the chunks and on
the seed, never on where the work runs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

# Enough passes to mix many in a part, over blocks large enough for vectorized code to pay off.
_PASSES = 512
_PASSES_PER_SHARD = 16
_MIN_BLOCK_BYTES, _MAX_BLOCK_BYTES = 2**16, 2**22
# The records of a part are in memory at once: 8 million tokens are about 40 MB.
_MAX_PART_TOKENS = 2**23
# Examples of tiny chunks are mostly padding, so a limit on tokens alone would not limit memory.
_MAX_PART_PASSES = 2**14
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
        table: chunk, dupe, partner (-1 for None) and offset of every pass, as int32.
        stride: of every pass.
        tokens: the number of tokens of the chunks, which measures the work.
    """

    shard: int
    index: int
    table: bytes
    stride: int
    tokens: int

    @property
    def passes(self) -> Iterator[Pass]:
        """Yields the passes. They are not stored as objects, because there can be millions."""
        for chunk, dupe, partner, offset in np.frombuffer(self.table, np.int32).reshape(-1, 4):
            other = None if partner < 0 else int(partner)
            yield Pass(int(chunk), int(dupe), other, int(offset), self.stride)


def block_bytes(input_bytes: int, dupe_factor: int, num_shards: int) -> int:
    """Returns the bytes of text per chunk. Small inputs get small chunks, to have many of them."""
    passes = max(_PASSES, _PASSES_PER_SHARD * num_shards)
    return min(max(input_bytes * dupe_factor // passes, _MIN_BLOCK_BYTES), _MAX_BLOCK_BYTES)


def plan_shards(
    chunk_tokens: Sequence[int], dupe_factor: int, num_shards: int, seed: int
) -> list[list[ShardPart]]:
    """Returns the parts of each shard.

    `chunk_tokens` are the tokens of each chunk, padding included; no chunk is empty. The seed
    determines the order of the passes and their partners.
    """
    chunks = len(chunk_tokens)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    # If there are fewer passes than shards, several shards share the examples of a pass.
    stride = -(-num_shards // (chunks * dupe_factor))
    order = np.arange(chunks * dupe_factor * stride)
    rng.shuffle(order)
    partners = rng.integers(0, max(1, chunks - 1), chunks * dupe_factor)
    sizes = np.array(chunk_tokens) // stride
    part_tokens = min(_MAX_PART_TOKENS, max(1, sum(chunk_tokens) * dupe_factor // _MIN_PARTS))
    shards = []
    for shard in range(num_shards):
        numbers, offsets = np.divmod(order[shard::num_shards], stride)
        chunk, dupe = np.divmod(numbers, dupe_factor)
        partner = partners[numbers]
        # Skips the chunk itself.
        other = partner + (partner >= chunk) if chunks > 1 else np.full_like(chunk, -1)
        table = np.stack([chunk, dupe, other, offsets], axis=1).astype(np.int32)
        tokens, passes = sizes[chunk], len(table)
        least = -(-passes // _MAX_PART_PASSES)
        count = min(passes, max(least, round(tokens.sum() / part_tokens)))
        parts = (slice(index, None, count) for index in range(count))
        shards.append(
            [
                ShardPart(shard, index, table[part].tobytes(), stride, int(tokens[part].sum()))
                for index, part in enumerate(parts)
            ]
        )
    return shards

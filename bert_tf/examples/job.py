"""A job of data creation: which text becomes which examples in which files.

A *pass* is one of `dupe_factor` passes over one chunk of text. All passes are shuffled by the seed
and dealt to the *shards*, the output files. Within a shard, they are dealt to *parts*, each of
which is created and shuffled as a whole. The plan depends only on the sizes of the chunks and on
the seed, never on where the work runs.
"""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bert_tf.base.files import lines_sha256, shortened
from bert_tf.base.output_files import check_output_files
from bert_tf.corpus.reading import input_files, text_blocks
from bert_tf.corpus.sources import Block, estimate_bytes, group_files
from bert_tf.examples.creation_options import DataOptions
from bert_tf.examples.documents import load_segmenter, read_phrases
from bert_tf.weights.resolving import read_vocab_file
from tfrecords.manifest import manifest_path, unfinished_path
from tfrecords.vocabulary import Vocabulary

# Enough passes to mix many in a part, over blocks large enough for vectorized code to pay off.
_PASSES = 512
_PASSES_PER_SHARD = 16
_MIN_BLOCK_BYTES, _MAX_BLOCK_BYTES = 2**16, 2**22
# The records of a part are in memory at once: 8 million tokens are about 40 MB.
_MAX_PART_TOKENS = 2**23
# Examples of tiny chunks are mostly padding, so a limit on tokens alone would not limit memory.
_MAX_PART_PASSES = 2**14
_MIN_PARTS = 16
# The size of a TFDS dataset is unknown in advance. Most are large.
_TFDS_BYTES = 2**40


@dataclass(frozen=True)
class Pass:
    """Pass `dupe` over a chunk: every `stride`-th of its examples, starting at `offset`."""

    chunk: int
    dupe: int
    partner: int | None = None  # the chunk of "random next" segments; None for the chunk itself
    offset: int = 0
    stride: int = 1


@dataclass(frozen=True)
class ShardPart:
    """Part `index` of a shard: passes whose examples are shuffled together."""

    shard: int
    index: int
    table: bytes  # chunk, dupe, partner (-1 for None) and offset of every pass, as int32
    stride: int
    tokens: int  # of the chunks, which measure the work

    @property
    def passes(self) -> Iterator[Pass]:
        """Yields the passes. They are not stored as objects, because there can be millions."""
        for chunk, dupe, partner, offset in np.frombuffer(self.table, np.int32).reshape(-1, 4):
            other = None if partner < 0 else int(partner)
            yield Pass(int(chunk), int(dupe), other, int(offset), self.stride)


def block_bytes(input_bytes: int, dupe_factor: int, num_shards: int) -> int:
    """Returns the bytes of text per chunk. Small inputs get small chunks, to have many of them.

    It is a power of two, so that the same text in another format, whose size is an estimate, gets
    the same chunks.
    """
    passes = max(_PASSES, _PASSES_PER_SHARD * num_shards)
    wanted = min(max(input_bytes * dupe_factor // passes, _MIN_BLOCK_BYTES), _MAX_BLOCK_BYTES)
    return 2 ** (wanted.bit_length() - 1)


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


@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything that the output depends on.

    The files of a group are read one after the other; of a TFDS dataset, there is an empty group.
    """

    options: DataOptions  # with all defaults resolved
    vocab: Vocabulary
    lexicon: tuple[str, ...]  # phrases, each of which is one unit of masking
    groups: tuple[tuple[str, ...], ...]
    block_bytes: int  # of text per chunk
    output_files: tuple[str, ...]
    manifest: str  # its path

    @property
    def input_files(self) -> list[str]:
        return [file for group in self.groups for file in group]

    @property
    def source(self) -> str:
        """The input, for messages."""
        return shortened(self.input_files or [f"TFDS {self.options.tfds}"], most=1)

    def blocks(self, group: int) -> Iterator[Block]:
        """Reads an input group in blocks of whole documents."""
        return text_blocks(self.options, self.groups[group], self.block_bytes)

    def name_in_manifest(self, shard: int) -> str:
        """Returns the path of a shard relative to the manifest."""
        return os.path.relpath(self.output_files[shard], os.path.dirname(self.manifest) or ".")

    def settings(self) -> dict[str, object]:
        """Returns what the output depends on, by the names of the flags."""
        return self.options.values("place") | {
            "output_file": [self.name_in_manifest(i) for i in range(len(self.output_files))],
            "vocab_file": self.vocab.sha256,
            "lexicon_file": lines_sha256(self.lexicon),
        }


def make_job(options: DataOptions) -> Job:
    """Resolves the flags into a job."""
    resolved, files = with_defaults(options), input_files(options)
    output_files = _output_files(options)
    read_files = [*files, options.vocab_file, options.lexicon_file]
    manifests = list(map(manifest_path, output_files[:1]))
    work = unfinished_path(output_files[0]) if output_files else None
    check_output_files([*output_files, *manifests], read_files, work_folder=work)
    input_bytes = estimate_bytes(files, options.text_field) or _TFDS_BYTES
    bytes_per_block = block_bytes(input_bytes, resolved.dupe_factor, len(output_files))
    groups = group_files(files, bytes_per_block) if files else [[]]
    vocab, lower_case = read_vocab_file(options.vocab_file, options.do_lower_case)
    if options.segmenter is not None:
        # Otherwise, its errors would only arise where the text is read.
        load_segmenter(options.segmenter)
    return Job(
        options=dataclasses.replace(resolved, do_lower_case=lower_case is not False),
        vocab=vocab,
        lexicon=read_phrases(options.lexicon_file) if options.lexicon_file else (),
        groups=tuple(map(tuple, groups)),
        block_bytes=bytes_per_block,
        output_files=tuple(output_files),
        manifest=manifest_path(output_files[0]),
    )


def with_defaults(options: DataOptions) -> DataOptions:
    """Resolves the defaults that depend on other flags."""
    masking = _resolve_masking(options)
    return dataclasses.replace(
        options.with_corpus_defaults(),
        masking=masking,
        max_ngram_size=options.max_ngram_size or 3,
        dupe_factor=options.dupe_factor or (1 if masking == "dynamic" else 10),
    )


def _resolve_masking(options: DataOptions) -> str:
    """Returns the masking that results from three flags."""
    masking = options.masking
    for implied, flag, given in (
        ("ngram", "max_ngram_size", options.max_ngram_size is not None),
        ("whole_word", "do_whole_word_mask", options.do_whole_word_mask),
    ):
        # The Model Garden's script requires --do_whole_word_mask together with --max_ngram_size.
        if given and masking is None:
            masking = implied
        elif given and masking != implied and not (implied == "whole_word" and masking == "ngram"):
            raise ValueError(f"--masking={masking} and --{flag} contradict each other: omit one")
    return masking or "wordpiece"


def _output_files(options: DataOptions) -> list[str]:
    names = [name.strip() for name in options.output_file.split(",") if name.strip()]
    if options.num_shards is None:
        return names
    if len(names) != 1:
        raise ValueError(f"--num_shards needs one --output_file name, not {len(names)}")
    count = options.num_shards
    return [f"{names[0]}-{shard:05}-of-{count:05}" for shard in range(count)]

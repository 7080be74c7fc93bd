"""The steps of data creation: read a block, tokenize it, create a part of a shard, join a shard.

Each step is idempotent: it leaves its result in the work folder and does nothing if the result
already exists. `tokenize` and `make_shards` run them in processes here or elsewhere.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.base.output_files import join_files
from bert_tf.base.storage import file_size
from bert_tf.corpus.sources import Block, estimate_bytes
from bert_tf.examples.chunk import (
    Chunk,
    CreationStatistics,
    ExampleCounts,
    join_chunks,
    load_chunk,
    save_chunk,
)
from bert_tf.examples.creation_options import DataOptions
from bert_tf.examples.documents import make_chunk
from bert_tf.examples.job import Job, Pass, ShardPart
from bert_tf.examples.masking import mask_rows
from bert_tf.examples.segments import (
    Rows,
    full_sentence_rows,
    next_sentence_pairs,
    pair_rows,
    sentence_order_pairs,
)
from bert_tf.jobs.work import UnfinishedWork, discard, read_counts
from bert_tf.jobs.workers import RunChunks, available_cores
from bert_tf.text.sentencepiece import make_tokenizer
from tfrecords.features import ORIGINAL_NAMES, serialize_examples, write_records
from tfrecords.manifest import shard_entry
from tfrecords.vocabulary import Vocabulary

# Starting a worker takes as long as creating examples from this much text on one core (counting
# each byte once per pass).
_BYTES_PER_WORKER = 2**27
# Each process builds a tokenizer only once.
_tokenizer = functools.lru_cache(maxsize=1)(make_tokenizer)


def pass_seed(random_seed: int, chunk: int, dupe: int) -> np.random.SeedSequence:
    """Returns the seed of pass `dupe` over a chunk, which depends on nothing else."""
    return np.random.SeedSequence(random_seed, spawn_key=(chunk, dupe))


def make_examples(
    chunk: Chunk,
    partner: Chunk | None,
    seed: np.random.SeedSequence,
    options: DataOptions,
    vocab: Vocabulary,
) -> tuple[dict[str, np.ndarray], ExampleCounts]:
    """Creates the examples of one pass over a chunk, as the arrays of `tfrecords.features`.

    "Random next" segments come from the `partner`, or if it is None from other documents of the
    chunk. The options have all defaults resolved. Returns arrays [N, S], [N, P] and [N, 1]
    (`next_sentence_labels`) in the order of the text, and counts. With dynamic masking there are no
    predictions; `word_starts` [N, S] is 1 where a unit of masking begins.
    """
    rng = np.random.default_rng(seed)
    rows, labels, counts = _unmasked_rows(chunk, partner, options, vocab, rng)
    counts.examples = len(rows.ids)
    counts.tokens = int(rows.lengths.sum())
    column = np.arange(options.max_seq_length, dtype=np.int32)
    arrays = {
        "input_word_ids": rows.ids,
        "input_mask": (column < rows.lengths[:, None]).astype(np.int32),
        "input_type_ids": rows.type_ids,
    }
    if options.masking == "dynamic":
        arrays["word_starts"] = rows.unit_starts.astype(np.int32)
    else:
        arrays |= mask_rows(rows, options, vocab, rng)
        counts.predictions = int(arrays["masked_lm_weights"].sum())
    arrays["next_sentence_labels"] = labels.astype(np.int32)[:, None]
    return arrays, counts


def _unmasked_rows(
    chunk: Chunk,
    partner: Chunk | None,
    options: DataOptions,
    vocab: Vocabulary,
    rng: np.random.Generator,
) -> tuple[Rows, np.ndarray, ExampleCounts]:
    """Returns unmasked rows, their labels [N] and the counts that are known so far."""
    length, short = options.max_seq_length, options.short_seq_prob
    if options.objective == "mlm":
        rows = full_sentence_rows(chunk, options, vocab, rng)
        cut = np.count_nonzero(np.diff(chunk.sentence_starts) > length - 2)
        return rows, np.zeros(len(rows.ids)), ExampleCounts(cut_sentences=int(cut))
    if options.objective == "sop":
        label = "swapped"
        pairs = sentence_order_pairs(chunk, length - 3, short, rng)
    else:
        label = "random_next"
        documents = chunk.num_documents
        chunk = join_chunks(chunk, partner) if partner else chunk
        pairs = next_sentence_pairs(chunk, length - 3, short, rng, documents)
    counts = ExampleCounts(
        cut_pairs=int(np.count_nonzero(pairs.cut_tokens)),
        cut_tokens=int(pairs.cut_tokens.sum()),
        documents_without_pairs=pairs.documents_without_pairs,
        **{label: int(pairs.labels.sum())},
    )
    return pair_rows(chunk, pairs, length, vocab), pairs.labels, counts


def read_group(job: Job, group: int) -> Iterator[tuple[int, Block]]:
    """Yields the blocks of an input group, each after the size of its text."""
    return ((len(block.data), block) for block in job.blocks(group))


def tokenize_block(job: Job, file: str, block: Block) -> dict:
    """Turns a block into a chunk, in a file; returns the counts."""
    tokenizer = _tokenizer(job.vocab, job.options.do_lower_case)
    chunk, text = make_chunk(block, tokenizer, job.options, job.lexicon)
    lengths = np.diff(chunk.sentence_starts)
    long_sentences = int(np.count_nonzero(lengths > job.options.max_seq_length - 3))
    save_chunk(file, chunk)
    return dataclasses.asdict(CreationStatistics(text, long_sentences))


def make_part(job: Job, chunk_files: Sequence[str], file: str, part: ShardPart) -> dict:
    """Creates, shuffles and writes the examples of a part; returns the counts."""
    records: list[bytes] = []
    total = ExampleCounts()
    for one_pass in part.passes:
        pass_records, counts = make_pass(job, chunk_files, one_pass)
        records += pass_records
        # A pass that several parts share is counted once.
        if one_pass.offset == 0:
            total += counts
    # A key that no pass uses; see `pass_seed`.
    seed = np.random.SeedSequence(
        job.options.random_seed, spawn_key=(2**32 - 1, part.shard, part.index)
    )
    order = np.random.default_rng(seed).permutation(len(records))
    compression = "GZIP" if job.options.gzip_compress else ""
    write_records(file, (records[index] for index in order), compression)
    return {"examples": len(records), "counts": dataclasses.asdict(total)}


def make_pass(
    job: Job, chunk_files: Sequence[str], one_pass: Pass
) -> tuple[list[bytes], ExampleCounts]:
    """Returns the records of a pass that belong to one part, and the counts of the whole pass."""
    chunk = load_chunk(chunk_files[one_pass.chunk])
    partner: Chunk | None = None
    if one_pass.partner is not None and job.options.objective == "nsp":
        partner = load_chunk(chunk_files[one_pass.partner])
    seed = pass_seed(job.options.random_seed, one_pass.chunk, one_pass.dupe)
    arrays, counts = make_examples(chunk, partner, seed, job.options, job.vocab)
    if not job.options.use_v2_feature_names:
        arrays = {ORIGINAL_NAMES.get(name, name): array for name, array in arrays.items()}
    chosen = slice(one_pass.offset, None, one_pass.stride)
    return serialize_examples({name: array[chosen] for name, array in arrays.items()}), counts


def join_shard(job: Job, work: UnfinishedWork, parts: Sequence[ShardPart]) -> tuple[int, bool]:
    """Joins the parts of a shard into its output file, and removes them; returns 1, a file."""
    shard = parts[0].shard
    files = _part_files(work, parts)

    def write(path: str) -> dict:
        finished = list(map(read_counts, files))
        work.check(complete=all(finished))
        join_files(files, path)
        entry = shard_entry(path, sum(counts["examples"] for counts in finished))
        counts = sum((ExampleCounts(**one["counts"]) for one in finished), ExampleCounts())
        return entry | {"file": job.name_in_manifest(shard), "counts": dataclasses.asdict(counts)}

    work.write_output(shard, job.output_files[shard], write)
    discard(*files)
    return 1, False


def _part_files(work: UnfinishedWork, parts: Sequence[ShardPart]) -> list[str]:
    return [work.stage_file("parts", part.shard, part.index) for part in parts]


def tokenize(run_chunks: RunChunks, job: Job, work: UnfinishedWork) -> None:
    """Turns every block of the input into a chunk."""
    read, make = functools.partial(read_group, job), functools.partial(tokenize_block, job)
    bar = dict(desc="Tokenizing", unit="B", unit_scale=True)
    bar |= dict(total=estimate_bytes(job.input_files, job.options.text_field) or None)
    work.compute(run_chunks, "chunks", len(job.groups), read, make, **bar)


def make_shards(
    run_chunks: RunChunks,
    job: Job,
    work: UnfinishedWork,
    chunk_files: list[str],
    shards: dict[int, list[ShardPart]],
) -> None:
    """Creates shards, each given as a list of its parts."""

    def read(shard: int) -> list[tuple[int, ShardPart]]:
        return [(part.tokens, part) for part in shards.get(shard, [])]

    groups, make = len(job.output_files), functools.partial(make_part, job, chunk_files)
    bar = dict(desc="Creating examples", unit=" tokens", unit_scale=True)
    bar |= dict(total=sum(part.tokens for parts in shards.values() for part in parts))
    work.compute(run_chunks, "parts", groups, read, make, **bar)
    for shard, parts in shards.items():
        if not any(read_counts(file)["examples"] for file in _part_files(work, parts)):
            raise ValueError(
                f"{job.output_files[shard]} would be empty, because there is too little "
                f"text for {groups} output files: ask for fewer"
            )
    join = functools.partial(join_shard, job, work)
    bar = dict(desc="Joining", unit=" files", delay=2, total=len(shards))
    run_chunks(groups, lambda n: [(shards[n],)] if n in shards else [], join, **bar)


def useful_workers(job: Job) -> int:
    """Returns how many workers start in less time than they save."""
    if job.options.tfds or job.options.split_sentences or job.options.segmenter:
        return available_cores()
    size = sum(map(file_size, job.input_files))
    passes = job.options.dupe_factor + 2  # Tokenizing takes as long as two passes.
    return max(1, size * passes // _BYTES_PER_WORKER)

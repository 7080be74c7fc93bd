"""The steps of data creation: read a block, tokenize it, create a part of a shard, join a shard.

Each step is idempotent: it leaves its result in the work folder and does nothing if the result
already exists. `tokenize` and `make_shards` run them in processes here or elsewhere.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.base.content import estimate_content_bytes
from bert_tf.base.output_files import join_files, whole_file
from bert_tf.corpus.sources import Block
from bert_tf.examples.chunk import Chunk, load_chunk, save_chunk
from bert_tf.examples.counts import CreationStatistics, ExampleCounts
from bert_tf.examples.documents import make_chunk
from bert_tf.examples.job import Job
from bert_tf.examples.pipeline import make_examples, pass_seed
from bert_tf.examples.plan import Pass, ShardPart
from bert_tf.jobs.work_folder import WorkFolder, discard, finish, is_finished, read_counts
from bert_tf.jobs.workers import RunChunks, available_cores
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.features import ORIGINAL_NAMES, serialize_examples
from tfrecords.manifest import shard_entry
from tfrecords.writer import write_records

# Starting a worker takes as long as creating examples from this much text on one core (counting
# each byte once per pass).
_BYTES_PER_WORKER = 2**27
# Each process builds a tokenizer only once.
_tokenizer = functools.lru_cache(maxsize=1)(WordPieceTokenizer)


def read_group(job: Job, folder: WorkFolder, group: int) -> Iterator[tuple[str, Block]]:
    """Yields the blocks of an input group that have not been tokenized yet, and their names."""
    for index, block in enumerate(job.blocks(group)):
        name = f"{group:06}-{index:06}"
        if not is_finished(file := folder.chunk_file(name), file):
            yield name, block


def tokenize_block(job: Job, folder: WorkFolder, name: str, block: Block) -> int:
    """Turns a block into the chunk of this name; returns the size of the text."""
    tokenizer = _tokenizer(job.vocab, job.options.do_lower_case)
    chunk, text = make_chunk(block, tokenizer, job.options, job.lexicon)
    lengths = np.diff(chunk.sentence_starts)
    long_sentences = int(np.count_nonzero(lengths > job.options.max_seq_length - 3))
    file = folder.chunk_file(name)
    save_chunk(file, chunk)
    finish(file, dataclasses.asdict(CreationStatistics(text, long_sentences)), file)
    return len(block.data)


def make_part(job: Job, folder: WorkFolder, chunk_names: Sequence[str], part: ShardPart) -> int:
    """Creates, shuffles and writes the examples of a part; returns the tokens of its chunks.

    The chunks are named in the order of their numbers in the plan.
    """
    file = folder.part_file(part.shard, part.index)
    if is_finished(file, file):
        return part.tokens
    records: list[bytes] = []
    total = ExampleCounts()
    for one_pass in part.passes:
        pass_records, counts = make_pass(job, folder, chunk_names, one_pass)
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
    finish(file, {"examples": len(records), "counts": dataclasses.asdict(total)}, file)
    return part.tokens


def make_pass(
    job: Job, folder: WorkFolder, chunk_names: Sequence[str], one_pass: Pass
) -> tuple[list[bytes], ExampleCounts]:
    """Returns the records of a pass that belong to one part, and the counts of the whole pass."""
    chunk = load_chunk(folder.chunk_file(chunk_names[one_pass.chunk]))
    partner: Chunk | None = None
    if one_pass.partner is not None and job.options.objective == "nsp":
        partner = load_chunk(folder.chunk_file(chunk_names[one_pass.partner]))
    seed = pass_seed(job.options.random_seed, one_pass.chunk, one_pass.dupe)
    arrays, counts = make_examples(chunk, partner, seed, job.options, job.vocab)
    if not job.options.use_v2_feature_names:
        arrays = {ORIGINAL_NAMES.get(name, name): array for name, array in arrays.items()}
    chosen = slice(one_pass.offset, None, one_pass.stride)
    return serialize_examples({name: array[chosen] for name, array in arrays.items()}), counts


def join_shard(job: Job, folder: WorkFolder, overwrite: bool, parts: Sequence[ShardPart]) -> int:
    """Joins the parts of a shard into its output file, and removes them; returns 1, a file."""
    shard = parts[0].shard
    place, output = folder.shard_file(shard), job.output_files[shard]
    files = [folder.part_file(shard, part.index) for part in parts]
    if not is_finished(place, output):
        finished = list(map(read_counts, files))
        folder.check(complete=all(finished))
        examples = sum(counts["examples"] for counts in finished)
        counts = sum((ExampleCounts(**one["counts"]) for one in finished), ExampleCounts())
        with whole_file(output, overwrite) as temporary:
            join_files(files, temporary)
            entry = shard_entry(temporary, examples)
            entry |= {"file": job.name_in_manifest(shard), "counts": dataclasses.asdict(counts)}
            # First, so that every file that a killed run leaves is on record.
            finish(place, entry, temporary)
    discard(*files)
    return 1


def tokenize(run_chunks: RunChunks, job: Job, folder: WorkFolder) -> None:
    """Turns every block of the input into a chunk."""
    run_chunks(
        len(job.groups),
        functools.partial(read_group, job, folder),
        functools.partial(tokenize_block, job, folder),
        total=estimate_content_bytes(job.input_files) or None,
        desc="Tokenizing",
        unit="B",
        unit_scale=True,
    )


def make_shards(
    run_chunks: RunChunks,
    job: Job,
    folder: WorkFolder,
    chunk_names: list[str],
    shards: list[list[ShardPart]],
    overwrite: bool,
) -> None:
    """Creates shards, each given as a list of its parts; see `whole_file` for `overwrite`."""
    run_chunks(
        len(shards),
        lambda shard: [(part,) for part in shards[shard]],
        functools.partial(make_part, job, folder, chunk_names),
        total=sum(part.tokens for parts in shards for part in parts),
        desc="Creating examples",
        unit=" tokens",
        unit_scale=True,
    )
    folder.check()
    for parts in shards:
        if not any(
            read_counts(folder.part_file(part.shard, part.index))["examples"] for part in parts
        ):
            raise ValueError(
                f"{job.output_files[parts[0].shard]} would be empty, because there is too little "
                f"text for {len(job.output_files)} output files: ask for fewer"
            )
    run_chunks(
        len(shards),
        lambda shard: [(shards[shard],)],
        functools.partial(join_shard, job, folder, overwrite),
        total=len(shards),
        desc="Joining",
        unit=" files",
        delay=2,
    )


def useful_workers(job: Job) -> int:
    """Returns how many workers start in less time than they save."""
    if job.options.tfds or job.options.split_sentences or job.options.segmenter:
        return available_cores()
    size = sum(tf.io.gfile.stat(file).length for file in job.input_files)
    passes = job.options.dupe_factor + 2  # Tokenizing takes as long as two passes.
    return 1 + size * passes // _BYTES_PER_WORKER

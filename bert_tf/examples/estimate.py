"""Estimates the time and disk space of a job from a sample of its text."""

import itertools
import time
from dataclasses import replace

from bert_tf.base.progress import counted, duration
from bert_tf.corpus.sources import estimate_bytes
from bert_tf.examples.chunk import Chunk
from bert_tf.examples.counts import ExampleCounts, TextCounts
from bert_tf.examples.documents import make_chunk
from bert_tf.examples.job import Job
from bert_tf.examples.pipeline import make_examples, pass_seed
from bert_tf.examples.report import label_warnings, text_warnings
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.features import serialize_examples
from tfrecords.records import FRAME_BYTES

_SAMPLES = 8


def estimate(job: Job, num_workers: int) -> str:
    """Describes the time and disk space that a job would take. Writes nothing.

    Tokenizes up to eight blocks, from files all over the input, and makes one pass over them.
    """
    chunks, text, tokenizing = _tokenize(job)
    started = time.process_time()
    examples, record_bytes = _make_examples(job, chunks)
    making = time.process_time() - started
    total = max(estimate_bytes(job.input_files, job.options.text_field), text.bytes)
    dupe_factor = job.options.dupe_factor
    scale = total / text.bytes
    passes = scale * dupe_factor
    seconds = (scale * tokenizing + passes * making) / num_workers
    num_files = len(job.output_files)
    disk = passes * record_bytes
    scope = " (the size of a TFDS dataset is unknown: all figures are for the sample)"
    return "\n".join(
        [
            f"Sample: {text.bytes / 1e6:.1f} MB of about {total / 1e6:,.1f} MB of text"
            f"{scope if job.options.tfds else ''}, {text.documents:,} documents, "
            f"{text.unknown_tokens / text.tokens:.3%} [UNK].",
            f"Output: about {text.tokens * scale:,.0f} tokens of text and, with "
            f"--dupe_factor={dupe_factor}, {examples.examples * passes:,.0f} examples in "
            f"{counted(num_files, 'file')} of {disk / num_files / 1e6:,.1f} MB.",
            f"Time: about {duration(max(2, seconds))} with --num_workers={num_workers}.",
            f"Disk: {disk / 1e6:,.0f} MB, and up to {(disk + 3 * total) / 1e6:,.0f} MB more while "
            "the job runs.",
            *text_warnings(text, job),
            *label_warnings(examples, text, job),
            "Nothing was written (--dry_run).",
        ]
    )


def _tokenize(job: Job) -> tuple[list[Chunk], TextCounts, float]:
    """Returns the chunks of a sample, their counts and the seconds that they took on one core."""
    tokenizer = WordPieceTokenizer(job.vocab, job.options.do_lower_case)
    groups = range(0, len(job.groups), max(1, len(job.groups) // _SAMPLES))[:_SAMPLES]
    each = _SAMPLES // len(groups)
    blocks = [block for group in groups for block in itertools.islice(job.blocks(group), each)]
    if not blocks:
        raise ValueError(f"no text in {job.source}")
    # The first call traces the tokenizer's graph, which must not count.
    warm_up = replace(blocks[0], data=blocks[0].data[:10_000])
    make_chunk(warm_up, tokenizer, job.options, job.lexicon)
    started = time.process_time()
    made = [make_chunk(block, tokenizer, job.options, job.lexicon) for block in blocks]
    seconds = time.process_time() - started
    chunks = [chunk for chunk, _ in made if chunk.num_documents]
    if not chunks:
        raise ValueError(f"no text in the first blocks of {job.source}")
    return chunks, sum((counts for _, counts in made), TextCounts()), seconds


def _make_examples(job: Job, chunks: list[Chunk]) -> tuple[ExampleCounts, int]:
    """Makes one pass over the chunks; returns the counts and the size of the records on disk."""
    counts, size = ExampleCounts(), 0
    for index, chunk in enumerate(chunks):
        partner = chunks[index - 1] if len(chunks) > 1 else None
        arrays, chunk_counts = make_examples(
            chunk, partner, pass_seed(0, index, 0), job.options, job.vocab
        )
        size += sum(len(record) + FRAME_BYTES for record in serialize_examples(arrays))
        counts += chunk_counts
    return counts, size

"""How long data creation takes and how much disk, from a sample of the text."""

import itertools
import os
import time
from dataclasses import replace

import tensorflow as tf

from bert_tf.corpus.compression import estimate_content_bytes
from bert_tf.corpus.sources import Block, read_blocks, tfds_blocks
from bert_tf.examples.documents import Chunk, TextCounts, make_chunk
from bert_tf.examples.pipeline import ExampleCounts, make_examples, unit_seed
from bert_tf.examples.work import Work
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.features import serialize_examples

_SAMPLES = 8


def estimate(work: Work, num_workers: int) -> str:
    """What creating the files would take, as lines for people; writes nothing.

    Up to eight blocks, from files all over the input, are tokenized and made into examples once.

    Raises:
        ValueError: the sample holds no text.
        OSError: an input cannot be read.
    """
    tokenizer = WordPieceTokenizer(work.settings.vocab, lower_case=work.lower_case)
    blocks = list(_sample(work))
    if not blocks:
        raise ValueError(f"no text in {work.tfds or work.groups[0][0]}")
    make_chunk(replace(blocks[0], data=blocks[0].data[:10_000]), tokenizer, work.text)  # traces
    started = time.process_time()
    made = [make_chunk(block, tokenizer, work.text) for block in blocks]
    chunks = [chunk for chunk, _ in made if chunk.num_documents]
    tokenizing = time.process_time() - started
    text = sum((counts for _, counts in made), TextCounts())
    if not chunks:
        raise ValueError(f"no text in the first blocks of {work.tfds or work.groups[0][0]}")
    started = time.process_time()
    examples, record_bytes, documents = _make(work, chunks)
    making = time.process_time() - started

    sampled = sum(len(block.data) for block in blocks)
    total = estimate_content_bytes([file for group in work.groups for file in group])
    # The sample may be all there is.
    scale = max(1.0, total / sampled) if total else 1.0
    passes = scale * work.dupe_factor
    seconds = (scale * tokenizing + passes * making) / num_workers
    files = len(work.output_files)
    disk = passes * record_bytes
    share = " (TFDS: of this sample alone)" if work.tfds else ""
    return "\n".join(
        [
            f"A sample of {sampled / 1e6:.1f} MB of about {max(total, sampled) / 1e6:,.1f} MB of "
            f"text{share}: {documents:,} documents, {text.unknown_tokens / text.tokens:.3%} [UNK].",
            f"About {text.tokens * scale:,.0f} tokens and, with --dupe_factor={work.dupe_factor}, "
            f"{examples.examples * passes:,.0f} examples in {files} file{'s' * (files > 1)} of "
            f"{disk / files / 1e6:,.1f} MB.",
            f"About {_duration(seconds)} with --num_workers={num_workers}, once they run; "
            f"{disk / 1e6:,.0f} MB for the files and, until they are done, up to "
            f"{(disk + 3 * total) / 1e6:,.0f} MB more.",
            "Nothing was written (--dry_run).",
        ]
    )


def _sample(work: Work) -> list[Block]:
    if work.tfds:
        blocks = tfds_blocks(work.tfds, work.block_bytes, work.tfds_dir)
        return list(itertools.islice(blocks, _SAMPLES))
    groups = work.groups[:: max(1, len(work.groups) // _SAMPLES)][:_SAMPLES]
    each = _SAMPLES // len(groups)
    return [
        block
        for group in groups
        for block in itertools.islice(read_blocks(group, work.block_bytes), each)
    ]


def _make(work: Work, chunks: list[Chunk]) -> tuple[ExampleCounts, int, int]:
    """One pass over the chunks: counts, bytes as they are on disk, documents."""
    counts, size = ExampleCounts(), 0
    with tf.io.TFRecordWriter(os.devnull) as writer:
        for index, chunk in enumerate(chunks):
            partner = chunks[index - 1] if len(chunks) > 1 else None
            arrays, made = make_examples(chunk, partner, unit_seed(0, index, 0), work.settings)
            for record in serialize_examples(arrays):
                writer.write(record)
                size += len(record) + 16  # lengths and checksums around it
            counts += made
    return counts, size, sum(chunk.num_documents for chunk in chunks)


def _duration(seconds: float) -> str:
    hours, minutes = divmod(max(1, round(seconds / 60)), 60)
    if seconds < 90:
        return f"{max(1, round(seconds))} seconds"
    return f"{hours} hours {minutes} minutes" if hours else f"{minutes} minutes"

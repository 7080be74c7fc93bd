"""Creates pre-training files in one process, in memory that does not grow with the input.

google-research/bert holds all examples in memory and shuffles them once. Here the text is tokenized
once into chunks on disk; a unit of work is one pass (of `dupe_factor`) over one chunk. All units
are done in an order shuffled by the seed, and their examples go through a shuffle buffer that holds
those of several units. So the copies of a text lie far apart and neighbours in a file come from
several parts of the corpus; but the order is not a uniform permutation, and a "random next" segment
comes from the same chunk (about 4 MB of text), not from the whole corpus.
"""

import pathlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from bert_tf.pretraining.documents import (
    Chunk,
    TextCounts,
    chunk_documents,
    read_lines,
    tokenized_documents,
)
from bert_tf.pretraining.pipeline import ExampleCounts, Settings, make_examples, unit_seed
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.features import ORIGINAL_NAMES, serialize_examples
from tfrecords.writer import ShardedWriter

CHUNK_TOKENS = 2**20
SHUFFLE_BYTES = 2**26


@dataclass
class Statistics:
    """What was read and written. `long_sentences` are those longer than any example."""

    text: TextCounts = field(default_factory=TextCounts)
    long_sentences: int = 0
    examples: ExampleCounts = field(default_factory=ExampleCounts)


def write_examples(
    input_files: Sequence[str],
    output_files: Sequence[str],
    tokenizer: WordPieceTokenizer,
    settings: Settings,
    dupe_factor: int = 10,
    seed: int = 12345,
    compression: str = "",
    original_names: bool = True,
) -> Statistics:
    """Makes examples from text files and deals them to TFRecord files; see the module docstring.

    Raises:
        ValueError: the text gives no example; nothing is written then.
        OSError: an input cannot be read or an output not written.
    """
    statistics = Statistics()
    with tempfile.TemporaryDirectory(prefix="bert_tf_chunks_") as folder:
        max_tokens = settings.max_seq_length - 3
        chunks = _tokenize(input_files, tokenizer, max_tokens, statistics, pathlib.Path(folder))
        _check_text(input_files, statistics.text)
        order = np.random.default_rng(seed)
        units = [(chunk, dupe) for chunk in range(len(chunks)) for dupe in range(dupe_factor)]
        records = _records(chunks, order.permutation(units), seed, settings, original_names)
        with ShardedWriter(output_files, compression) as writer:
            progress = tqdm(
                total=statistics.text.tokens * dupe_factor,
                desc="Making examples",
                unit=" tokens",
                unit_scale=True,
            )
            with progress:
                counted = _count(records, statistics, progress)
                for record in _shuffled(counted, order):
                    writer.write(record)
            if writer.records_written < len(output_files):
                raise ValueError(
                    f"only {writer.records_written} examples for {len(output_files)} output files: "
                    "name fewer files"
                )
    return statistics


def _tokenize(
    files: Sequence[str],
    tokenizer: WordPieceTokenizer,
    max_tokens: int,
    statistics: Statistics,
    folder: pathlib.Path,
) -> list[pathlib.Path]:
    """Writes the chunks to `folder`; their files, in order."""
    paths = []
    counts = statistics.text
    size = sum(tf.io.gfile.stat(file).length for file in files)
    documents = tokenized_documents(read_lines(files, counts), tokenizer, counts)
    with tqdm(total=size, desc="Tokenizing", unit="B", unit_scale=True) as progress:
        for chunk in chunk_documents(documents, CHUNK_TOKENS):
            lengths = np.diff(chunk.sentence_starts)
            statistics.long_sentences += np.count_nonzero(lengths > max_tokens)
            path = folder / f"{len(paths)}.npz"
            np.savez(path, **vars(chunk))
            paths.append(path)
            progress.update(min(counts.bytes, size) - progress.n)
        progress.update(size - progress.n)
    return paths


def _check_text(files: Sequence[str], counts: TextCounts) -> None:
    names = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    if not counts.documents:
        raise ValueError(f"no text in {names}: only blank lines, or nothing the tokenizer keeps")
    if counts.sentences == 1:
        raise ValueError(
            f"only one sentence in {names}: write one sentence a line and a blank line between "
            "documents"
        )


def _records(
    chunks: Sequence[pathlib.Path],
    units: Iterable[tuple[int, int]],
    seed: int,
    settings: Settings,
    original_names: bool,
) -> Iterator[tuple[list[bytes], int, ExampleCounts]]:
    """For each unit of work its serialized examples, the size of its chunk and the counts."""
    for chunk_index, dupe_index in units:
        with np.load(chunks[chunk_index]) as arrays:
            chunk = Chunk(**arrays)
        arrays, counts = make_examples(chunk, unit_seed(seed, chunk_index, dupe_index), settings)
        if original_names:
            arrays = {ORIGINAL_NAMES.get(name, name): array for name, array in arrays.items()}
        yield serialize_examples(arrays), len(chunk.pieces), counts


def _count(
    units: Iterable[tuple[list[bytes], int, ExampleCounts]], statistics: Statistics, progress: tqdm
) -> Iterator[list[bytes]]:
    for records, tokens, counts in units:
        statistics.examples += counts
        yield records
        progress.set_postfix(examples=statistics.examples.examples, refresh=False)
        progress.update(tokens)


def _shuffled(units: Iterable[list[bytes]], rng: np.random.Generator) -> Iterator[bytes]:
    """All records, through a buffer that is shuffled and half emptied whenever it is full."""
    buffer: list[bytes] = []
    for records in units:
        buffer += records
        if sum(map(len, buffer)) > SHUFFLE_BYTES:
            buffer = [buffer[index] for index in rng.permutation(len(buffer))]
            half = len(buffer) // 2
            yield from buffer[half:]
            del buffer[half:]
    yield from (buffer[index] for index in rng.permutation(len(buffer)))

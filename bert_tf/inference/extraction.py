"""Computes the vectors of a file's lines and writes them."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.checkpoint import open_checkpoint
from bert_tf.corpus.content import is_utf8
from bert_tf.finetuning.columns import Columns
from bert_tf.finite import count_non_finite
from bert_tf.inference.encoding import EncodedLine, Line, encode_lines
from bert_tf.inference.inference_options import ExtractionOptions
from bert_tf.inference.models import load_model, load_tokenizer
from bert_tf.inference.texts import (
    CHUNK_LINES,
    check_columns,
    columns_of_run,
    in_chunks,
    is_table,
    read_lines,
    read_rows,
)
from bert_tf.inference.vector_files import FORMATS
from bert_tf.inference.vectors import VectorExtractor, chosen_layers
from bert_tf.models.encoder import BertEncoder
from bert_tf.resolution import check_length
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.input_files import expand_files
from tfrecords.progress import counted, progress_bar
from tfrecords.writer import check_output_files

# The most that the vectors in memory take, unless those of a single line take more.
_CHUNK_BYTES = 2**28


def extract_features(options: ExtractionOptions) -> None:
    """Writes the vectors."""
    files = expand_files(options.input_file)
    if len(files) > 1:
        raise ValueError(f"--input_file={options.input_file} names {len(files)} files: give one")
    options = dataclasses.replace(options, input_file=files[0])
    check_output_files([options.output_file], files)
    checkpoint = open_checkpoint(options.checkpoint, vocab_file=options.vocab_file)
    config = checkpoint.spec.config
    layers = chosen_layers(options.layers, config.num_hidden_layers)
    check_length(config, options.max_seq_length)
    tokenizer = load_tokenizer(checkpoint, options)
    encoder = load_model(checkpoint, BertEncoder, ("encoder", "projection"))
    extractor = VectorExtractor(encoder, layers, tokenizer.vocab.pad_id, options)
    read = _reader(options, columns_of_run(checkpoint.run))
    counts = _extract(read, options, extractor, tokenizer)
    size = tf.io.gfile.stat(options.output_file).length
    print(
        f"Wrote {counted(counts.vectors, 'vector')} of {len(layers)} x {config.hidden_size} "
        f"numbers for {counted(counts.lines, 'line')} to {options.output_file} "
        f"({size / 1e6:,.1f} MB, {size / 1e3 / counts.lines:,.1f} MB per 1,000 lines)."
    )
    counts.report(options.max_seq_length, config.max_position_embeddings)


@dataclasses.dataclass
class Counts:
    """How much was written, and how many lines were read in windows or changed."""

    lines: int = 0
    vectors: int = 0
    in_windows: int = 0
    truncated: int = 0
    not_utf8: int = 0

    def report(self, length: int, longest: int) -> None:
        """Says how many lines were read in windows, truncated or changed."""
        advice, total = f"--max_seq_length may be up to {longest}.", f"{self.lines:,} lines"
        if self.in_windows:
            print(
                f"Read {self.in_windows:,} of {total} in overlapping windows of {length} tokens: "
                f"{advice}"
            )
        if self.truncated:
            print(
                f"WARNING: truncated {self.truncated:,} of {total}, which are pairs, to {length} "
                f"tokens: {advice}"
            )
        if self.not_utf8:
            print(f"WARNING: dropped bytes that are not UTF-8 from {self.not_utf8:,} of {total}.")


def _reader(options: ExtractionOptions, trained: Columns) -> Callable[[], Iterator[Line]]:
    """Returns what reads a file's lines, or the rows of a table, which stay in memory.

    Args:
        trained: the columns of a table that the encoder's run read.
    """
    given = Columns(options.text_column, options.text_b_column)
    trained = Columns() if given.text else trained
    input_file = options.input_file
    check_columns(input_file, given.text, given.text_b)
    if not is_table(input_file):
        return lambda: read_lines(input_file)
    inputs = ("text", "text_b") if given.text_b or trained.text_b else ("text",)
    rows = read_rows(input_file, given, trained, inputs)
    return lambda: (row.texts for row in rows)


def _extract(
    read: Callable[[], Iterator[Line]],
    options: ExtractionOptions,
    extractor: VectorExtractor,
    tokenizer: WordPieceTokenizer,
) -> Counts:
    """Writes the vectors of lines, which take at most a few hundred megabytes of memory."""
    counts, open_file = Counts(), FORMATS[os.path.splitext(options.output_file)[1]]
    max_seq_length, dtype = options.max_seq_length, np.dtype(options.dtype)
    total = sum(1 for _ in read())
    if not total:
        raise ValueError(f"{options.input_file} is empty")
    with (
        open_file(options.output_file, extractor.layers, tokenizer.vocab, dtype) as write,
        progress_bar(total=total, desc="Extracting", unit="line", leave=False) as bar,
    ):
        for lines in in_chunks(read(), CHUNK_LINES):
            encoded = encode_lines(lines, tokenizer, max_seq_length)
            for part in _by_tokens(encoded, _CHUNK_BYTES // extractor.token_bytes):
                for vectors in extractor.extract(part):
                    if count_non_finite(vectors.values, dtype):
                        raise ValueError(
                            f"{options.input_file}: the values of text {counts.lines + 1:,} are "
                            f"too large for {dtype.name}: use --dtype=float32"
                        )
                    write(counts.lines, vectors)
                    counts.lines += 1
                    counts.vectors += len(vectors.starts)
                bar.update(len(part))
            counts.in_windows += sum(len(line.ids) > max_seq_length for line in encoded)
            counts.truncated += sum(line.truncated for line in encoded)
            counts.not_utf8 += sum(
                not is_utf8(line if isinstance(line, bytes) else b"".join(line)) for line in lines
            )
    return counts


def _by_tokens(lines: Sequence[EncodedLine], num_tokens: int) -> Iterator[list[EncodedLine]]:
    """Yields lines in parts of up to `num_tokens` tokens, or with a single longer line."""
    part, size = [], 0
    for line in lines:
        if part and size + len(line.ids) > num_tokens:
            yield part
            part, size = [], 0
        part.append(line)
        size += len(line.ids)
    yield part

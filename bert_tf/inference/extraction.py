"""Computes the vectors of a file's lines and writes them."""

import os
from dataclasses import dataclass

import numpy as np

from bert_tf.inference.encoding import encode_lines
from bert_tf.inference.lines import CHUNK_LINES, in_chunks, is_utf8, read_lines
from bert_tf.inference.vector_files import FORMATS
from bert_tf.inference.vectors import VectorExtractor
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.progress import progress_bar

# The most that the vectors in memory take, unless a single batch takes more.
_CHUNK_BYTES = 2**28


@dataclass
class Counts:
    """How much was written, and how many lines were changed."""

    lines: int = 0
    vectors: int = 0
    truncated: int = 0
    not_utf8: int = 0


def extract_file(
    input_file: str,
    output_file: str,
    extractor: VectorExtractor,
    tokenizer: WordPieceTokenizer,
    max_seq_length: int,
    dtype: np.dtype,
) -> Counts:
    """Writes the vectors of a file's lines, in a few hundred megabytes of memory.

    Args:
        output_file: its ending is a key of `FORMATS`.
        max_seq_length: lines with more tokens are truncated.
        dtype: the type of the values, except in JSON lines.

    Raises:
        ValueError, OSError: a file cannot be read or written.
    """
    counts, open_file = Counts(), FORMATS[os.path.splitext(output_file)[1]]
    line_bytes = extractor.token_bytes * max_seq_length
    chunk_lines = min(CHUNK_LINES, max(extractor.batch_size, _CHUNK_BYTES // line_bytes))
    total = sum(1 for _ in read_lines(input_file))
    with (
        open_file(output_file, extractor.layers, tokenizer.vocab, dtype) as write,
        progress_bar(total=total, desc="Extracting", unit="line", leave=False) as bar,
    ):
        for lines in in_chunks(read_lines(input_file), chunk_lines):
            encoded = encode_lines(lines, tokenizer, max_seq_length)
            for vectors in extractor.extract(encoded):
                write(counts.lines, vectors)
                counts.lines += 1
                counts.vectors += len(vectors.starts)
            counts.truncated += sum(line.truncated for line in encoded)
            counts.not_utf8 += sum(not is_utf8(line) for line in lines)
            bar.update(len(lines))
    return counts

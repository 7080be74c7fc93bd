"""Computes the vectors of a file's lines and writes them."""

import dataclasses
import functools
import os
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.base.files import expand_files
from bert_tf.base.finite import count_non_finite
from bert_tf.base.output_files import join_files
from bert_tf.base.progress import counted
from bert_tf.config import EMBEDDING
from bert_tf.inference import texts, vector_files
from bert_tf.inference.bulk import BulkJob
from bert_tf.inference.encoding import encode_lines
from bert_tf.inference.inference_options import ExtractionOptions
from bert_tf.inference.vectors import VectorExtractor
from bert_tf.jobs.work import read_counts
from bert_tf.tables.columns import Columns
from bert_tf.tables.parquet import import_pyarrow
from bert_tf.tables.rows import read_rows
from bert_tf.weights.checkpoint import fingerprint
from tfrecords.features import write_records

# The most that the vectors in memory take, unless those of a single line take more.
_CHUNK_BYTES = 2**28
# Each process loads the model only once.
_open = functools.lru_cache(maxsize=1)(VectorExtractor)


def extract_features(options: ExtractionOptions) -> None:
    """Writes the vectors."""
    files = expand_files(options.input_file, allow_empty=True)
    if options.output_file.endswith(".parquet"):
        import_pyarrow()  # before anything is computed
    _open.cache_clear()  # the checkpoint may have changed
    extractor = _open(options)
    checkpoint, rows = extractor.checkpoint, functools.partial(_rows, options)
    model = fingerprint(checkpoint), extractor.tokenizer
    joins = {options.output_file: functools.partial(_join, options)}
    if labels := _labels(options):
        joins = {labels: functools.partial(_join_labels, options)} | joins
    counts = BulkJob(options, files, *model, rows, _write_part, joins).run()
    config, lines = checkpoint.spec.config, counts["rows"]
    size = tf.io.gfile.stat(options.output_file).length
    num_layers = len(extractor.layers)
    print(
        f"Wrote {counted(counts['vectors'], 'vector')} of {num_layers} x {config.hidden_size} "
        f"numbers for {counted(lines, 'line')} to {options.output_file} "
        f"({size / 1e6:,.1f} MB, {size / 1e3 / lines:,.1f} MB per 1,000 lines)."
    )
    advice = f"--max_seq_length may be up to {config.max_position_embeddings}"
    length = f"{extractor.max_seq_length} tokens: {advice}."
    if count := counts["in_windows"]:
        print(f"Read {count:,} of {lines:,} lines in overlapping windows of {length}")
    if count := counts["truncated"]:
        print(f"WARNING: truncated {count:,} of {lines:,} lines, which are pairs, to {length}")


def _labels(options: ExtractionOptions) -> str | None:
    """Returns the path of the labels for TensorBoard's projector, if the vectors are for it."""
    stem, ending = os.path.splitext(options.output_file)
    return f"{stem}.metadata.tsv" if ending == ".tsv" else None


def _rows(options: ExtractionOptions, file: str) -> Iterator[texts.NumberedRow]:
    """Reads a file's lines, or the rows of a table."""
    if not (given := texts.table_columns(options, file)):
        return ((n, texts.TextRow(line)) for n, line in enumerate(texts.split_lines(file), 1))
    checkpoint = _open(options).checkpoint
    trained = Columns() if given.text else texts.columns_of_run(checkpoint.run)
    if checkpoint.head and checkpoint.head.kind == EMBEDDING:
        trained = dataclasses.replace(trained, text_b=None)  # it read each text alone
    inputs = ("text", "text_b") if given.text_b or trained.text_b else ("text",)
    return texts.texts_of_rows(file, *read_rows(file), given, trained, inputs)


def _write_part(
    options: ExtractionOptions, file: str, first: int, rows: Sequence[texts.TextRow | None]
) -> dict[str, int]:
    """Writes the vectors of some rows as records."""
    extractor = _open(options)
    length, dtype = extractor.max_seq_length, np.dtype(options.dtype)
    encoded = encode_lines([row.texts for row in rows if row], extractor.tokenizer, length)
    most = _CHUNK_BYTES // extractor.token_bytes
    parts = texts.in_groups(encoded, lambda line: len(line.ids), most)
    found = (vectors for part in parts for vectors in extractor.extract(part))
    num_vectors = 0

    def records() -> Iterator[bytes]:
        nonlocal num_vectors
        for index, row in enumerate(rows, first):
            vectors = next(found) if row else extractor.nothing
            if count_non_finite(vectors.values, dtype):
                raise ValueError(
                    f"{options.input_file}: the values of text {index + 1:,} are too "
                    f"large for {dtype.name}: use --dtype=float32"
                )
            num_vectors += len(vectors.starts)
            yield vector_files.record_of(index, vectors, dtype)

    write_records(file, records())
    return {
        "vectors": num_vectors,
        "in_windows": sum(len(line.ids) > length for line in encoded),
        "truncated": sum(line.truncated for line in encoded),
    }


def _join(options: ExtractionOptions, parts: Sequence[str], path: str) -> None:
    """Turns records into the file of vectors."""
    extractor, dtype = _open(options), np.dtype(options.dtype)
    layers, vocab = extractor.layers, extractor.tokenizer.vocab
    lines = (line for part in parts for line in vector_files.read_records(part, dtype))
    ending = os.path.splitext(options.output_file)[1]
    if ending == ".tfrecord":
        join_files(parts, path)
    elif ending == ".jsonl":
        vector_files.write_json_lines(path, lines, layers, vocab)
    elif ending == ".tsv":
        vector_files.write_projector(path, lines)
        vector_files.add_to_projector(options.output_file, _labels(options))
    elif ending == ".parquet":
        vector_files.write_parquet(path, lines, layers, vocab, dtype)
    else:
        num_vectors = sum(read_counts(part)["vectors"] for part in parts)
        vector_files.write_npz(path, lines, layers, dtype, num_vectors)


def _join_labels(options: ExtractionOptions, parts: Sequence[str], path: str) -> None:
    dtype, vocab = np.dtype(options.dtype), _open(options).tokenizer.vocab
    lines = (line for part in parts for line in vector_files.read_records(part, dtype))
    vector_files.write_labels(path, lines, vocab)

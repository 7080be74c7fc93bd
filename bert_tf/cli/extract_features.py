"""Writes the contextual vectors of text: one per token, word or line.

  python -m bert_tf.extract_features --checkpoint=run --input_file=text.txt \\
    --output_file=vectors.npz

The input has a text or a pair, "a ||| b", on every line; or it is a table (.csv, .tsv, .jsonl) with
a text or a pair in every row. --checkpoint is a run folder or a checkpoint of another program
(docs/checkpoints.md).

--output_file ends with

  .npz       compact arrays: values [vectors, layers, hidden_size], row_splits [lines + 1],
             starts and limits (bytes in the line), ids (of tokens), layers; line i has the
             vectors row_splits[i] to row_splits[i + 1]
  .tfrecord  compact records, one per line, with the same names
  .jsonl     the JSON lines of google-research/bert, 2.6 times as large as float32 arrays
  .tsv       tab-separated values of one layer, which must be given, as in --layers=-1, with what
             TensorBoard's embedding projector needs beside them: tensorboard --logdir=FOLDER

Flags have the names and defaults of google-research/bert's extract_features.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from bert_tf.choices import BATCH, PAIR_LENGTH
from bert_tf.inference.options import PairColumnOptions, VocabularyOptions
from tfrecords import command
from tfrecords.command import option
from tfrecords.progress import counted

if TYPE_CHECKING:
    from bert_tf.inference.extraction import Counts

_ENDINGS = (".npz", ".tfrecord", ".jsonl", ".tsv")


@dataclass(frozen=True, kw_only=True)
class Options(PairColumnOptions, VocabularyOptions):
    """The flags of the command."""

    absent_flags: ClassVar[Mapping[str, str]] = {
        "bert_config_file": "--checkpoint states it, so omit it",
        "use_tpu": "the command finds the devices, so omit it",
        "master": "the command finds the devices, so omit it",
        "num_tpu_cores": "the command finds the devices, so omit it",
        "use_one_hot_embeddings": "it is not needed, so omit it",
    }
    if_out_of_memory: ClassVar[str] = "use a smaller --batch_size or --max_seq_length"

    checkpoint: str = option(
        help="A run folder or a checkpoint of another program (docs/checkpoints.md).",
        aliases=("init_checkpoint",),
    )
    input_file: str = option(
        help='UTF-8 file, compressed or not, with one text or pair "a ||| b" per line; or a table '
        "(.csv, .tsv, .json or .jsonl), as for run_finetuning --task=csv."
    )
    output_file: str = option(
        help="File to write; its ending, .npz, .tfrecord, .jsonl or .tsv, states the format."
    )
    layers: str | None = option(
        None,
        help="Layers, separated by commas: -1 is the last, 0 the first, and embeddings is what the "
        "first one reads. Default: -1,-2,-3,-4, or all layers if there are fewer.",
    )
    pooling: str = option(
        "tokens",
        choices=("tokens", "word_first", "word_mean", "cls", "mean"),
        help="What gets a vector: tokens: every token; word_first, word_mean: every word between "
        "spaces, with the vector of its first token or the mean of all its tokens; cls, mean: the "
        "line, with the vector of [CLS] or the mean of all tokens, [CLS] and [SEP] included.",
    )
    dtype: str = option(
        "float32",
        choices=("float32", "float16"),
        help="Type of the values in .npz and .tfrecord. float16 keeps three digits.",
    )
    max_seq_length: int = option(
        128,
        **PAIR_LENGTH,
        help="Tokens that the encoder reads together. Longer lines are read in overlapping "
        "windows, and longer pairs truncated; both are counted.",
    )
    batch_size: int = option(32, **BATCH, help="Lines, or windows of them, per batch.", rare=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        ending = os.path.splitext(self.output_file)[1]
        if ending not in _ENDINGS:
            raise ValueError(
                f"--output_file={self.output_file}: its name must end with {', '.join(_ENDINGS)}"
            )
        if ending in (".jsonl", ".tsv") and self.dtype != "float32":
            raise ValueError(f"--dtype={self.dtype} has no effect on {ending}: omit it")
        if ending == ".tsv" and "," in (self.layers or ","):
            raise ValueError(
                f"--output_file={self.output_file} holds one layer: give --layers=-1 for the last"
            )


def run(options: Options) -> None:
    """Writes the vectors.

    Raises:
        ValueError, OSError: one line that names the flag or file and what to do.
    """
    import numpy as np
    import tensorflow as tf

    from bert_tf.checkpoint import open_checkpoint, run_of
    from bert_tf.finetuning.columns import Columns
    from bert_tf.inference.extraction import extract_file
    from bert_tf.inference.models import load_model, load_tokenizer
    from bert_tf.inference.table_files import columns_of_run
    from bert_tf.inference.vectors import VectorExtractor, chosen_layers
    from bert_tf.models.encoder import BertEncoder
    from bert_tf.resolution import check_length
    from tfrecords.input_files import expand_files
    from tfrecords.writer import check_output_files

    files = expand_files(options.input_file)
    if len(files) > 1:
        raise ValueError(f"--input_file={options.input_file} names {len(files)} files: give one")
    check_output_files([options.output_file], files)
    checkpoint = open_checkpoint(options.checkpoint, vocab_file=options.vocab_file)
    config, length = checkpoint.spec.config, options.max_seq_length
    layers = chosen_layers(options.layers, config.num_hidden_layers)
    check_length(config, length)
    tokenizer = load_tokenizer(checkpoint, options)
    encoder = load_model(checkpoint, BertEncoder, ("encoder", "projection"))
    pad_id = tokenizer.vocab.pad_id
    extractor = VectorExtractor(
        encoder, layers, options.pooling, pad_id, length, options.batch_size
    )
    dtype = np.dtype(options.dtype)
    given, trained = Columns(options.text_column, options.text_b_column), Columns()
    if not given.text:
        trained = columns_of_run(run_of(checkpoint))
    arguments = extractor, tokenizer, length, dtype, given, trained
    counts = extract_file(files[0], options.output_file, *arguments)
    size = tf.io.gfile.stat(options.output_file).length
    print(
        f"Wrote {counted(counts.vectors, 'vector')} of {len(layers)} x {config.hidden_size} "
        f"numbers for {counted(counts.lines, 'line')} to {options.output_file} "
        f"({size / 1e6:,.1f} MB, {size / 1e3 / counts.lines:,.1f} MB per 1,000 lines)."
    )
    _report_changes(counts, length, config.max_position_embeddings)


def _report_changes(counts: "Counts", length: int, longest: int) -> None:
    """Says how many lines were read in windows, truncated or changed."""
    advice = f"--max_seq_length may be up to {longest}."
    if counts.in_windows:
        print(
            f"Read {counts.in_windows:,} of {counts.lines:,} lines in overlapping windows of "
            f"{length} tokens: {advice}"
        )
    if counts.truncated:
        print(
            f"WARNING: truncated {counts.truncated:,} of {counts.lines:,} lines, which are pairs, "
            f"to {length} tokens: {advice}"
        )
    if counts.not_utf8:
        print(
            f"WARNING: dropped bytes that are not UTF-8 from {counts.not_utf8:,} of "
            f"{counts.lines:,} lines."
        )


if __name__ == "__main__":
    command.run(Options, run)

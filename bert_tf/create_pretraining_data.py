"""Creates the masked-LM and next-sentence examples that run_pretraining trains on.

The input is plain text: one sentence a line, a blank line between documents. The end of a file ends
its last document. Sentences are gathered into pairs [CLS] A [SEP] B [SEP]; half the time B is not
what follows A but comes from another document. About 15 % of the WordPieces are chosen to be
predicted. dupe_factor such passes, each with other pairs and masks, go to TFRecord files.

  python -m bert_tf.create_pretraining_data --input_file='corpus/*.txt' \\
    --output_file=train-0.tfrecord,train-1.tfrecord --vocab_file=vocab.txt

Flags, defaults and record format are those of google-research/bert's script of the same name. Its
memory does not grow with the input: the examples are shuffled in large parts, not all at once
(bert_tf/pretraining/local.py says how).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfrecords import command
from tfrecords.command import option

if TYPE_CHECKING:
    from bert_tf.pretraining.local import Statistics


@dataclass(frozen=True)
class Options(command.Options):
    """The flags."""

    input_file: str = option(help="Text files, comma-separated; globs allowed.")
    output_file: str = option(
        help="TFRecord files to write, comma-separated; examples are dealt to them in turn."
    )
    vocab_file: str = option(help="The vocabulary (vocab.txt), for instance from build_vocab.")
    do_lower_case: bool = option(True, help="Lower-case the text; for uncased vocabularies.")
    do_whole_word_mask: bool = option(False, help="Mask all pieces of a word or none.")
    max_seq_length: int = option(128, help="Pieces of an example, [CLS] and [SEP] counted.")
    max_predictions_per_seq: int = option(20, help="Most pieces to predict in an example.")
    random_seed: int = option(
        12345, at_least=0, help="The same seed and input give the same files."
    )
    dupe_factor: int = option(
        10, at_least=1, help="Passes over the text, each with other pairs and masks."
    )
    masked_lm_prob: float = option(0.15, help="Share of the pieces to predict.")
    short_seq_prob: float = option(
        0.1, help="Share of the documents cut into shorter examples than max_seq_length."
    )
    gzip_compress: bool = option(False, help="Compress the output with GZIP.")
    use_v2_feature_names: bool = option(
        False, help="Write input_word_ids and input_type_ids for input_ids and segment_ids."
    )


def run(options: Options) -> "Statistics":
    """Creates the files and prints statistics.

    Raises:
        ValueError, OSError: one line that names the flag or file and what to do.
    """
    from bert_tf.pretraining.local import write_examples
    from bert_tf.pretraining.pipeline import Settings
    from bert_tf.text.tokenizer import WordPieceTokenizer
    from bert_tf.text.vocab import load_vocab
    from tfrecords.reader import expand_files
    from tfrecords.writer import check_output_files

    settings = Settings(
        vocab=load_vocab(options.vocab_file),
        max_seq_length=options.max_seq_length,
        max_predictions_per_seq=options.max_predictions_per_seq,
        masked_lm_prob=options.masked_lm_prob,
        short_seq_prob=options.short_seq_prob,
        whole_word=options.do_whole_word_mask,
    )
    input_files = expand_files(options.input_file)
    output_files = [name.strip() for name in options.output_file.split(",") if name.strip()]
    check_output_files(output_files, [*input_files, options.vocab_file])
    statistics = write_examples(
        input_files,
        output_files,
        WordPieceTokenizer(settings.vocab, lower_case=options.do_lower_case),
        settings,
        dupe_factor=options.dupe_factor,
        seed=options.random_seed,
        compression="GZIP" if options.gzip_compress else "",
        original_names=not options.use_v2_feature_names,
    )
    print(report(statistics, settings.max_seq_length))
    print(f"Wrote {', '.join(output_files)}.")
    print(
        f"Next: python -m bert_tf.run_pretraining --input_file={options.output_file} "
        f"--max_seq_length={options.max_seq_length} "
        f"--max_predictions_per_seq={options.max_predictions_per_seq} --do_train "
        "--bert_config_file=bert_config.json --output_dir=OUTPUT_DIR"
    )
    return statistics


def report(statistics: "Statistics", max_seq_length: int) -> str:
    """The statistics as lines for people."""
    text, made = statistics.text, statistics.examples
    lines = [
        f"Read {text.documents:,} documents, {text.sentences:,} sentences, {text.tokens:,} tokens; "
        f"{text.unknown_tokens / text.tokens:.3%} of the tokens are [UNK].",
    ]
    if text.invalid_lines:
        lines.append(f"{text.invalid_lines:,} lines are not valid UTF-8: bad bytes were dropped.")
    if text.empty_documents or text.empty_sentences:
        lines.append(
            f"Left out: {text.empty_sentences:,} lines and {text.empty_documents:,} whole "
            "documents without a token."
        )
    fill = made.tokens / made.examples / max_seq_length
    lines += [
        f"Made {made.examples:,} examples: {fill:.1%} of max_seq_length filled, "
        f"{made.predictions / made.examples:.2f} predictions each, "
        f"{made.random_next / made.examples:.1%} with a random next segment.",
        f"{made.cut_pairs:,} pairs were too long and lost {made.cut_tokens:,} tokens "
        f"({made.cut_tokens / (made.tokens + made.cut_tokens):.1%} of all); "
        f"{statistics.long_sentences:,} sentences are longer than an example by themselves.",
    ]
    if text.documents == 1:
        lines.append(
            "WARNING: the text is one document, so there is no other to take a random next segment "
            "from: all pairs are true neighbours and the next-sentence task teaches nothing. "
            "Put blank lines between documents."
        )
    return "\n".join(lines)


def main() -> None:
    """The command."""
    command.run(Options, run)


if __name__ == "__main__":
    main()

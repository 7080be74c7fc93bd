"""Builds, extends or measures a WordPiece vocabulary (vocab.txt) for BERT from raw text.

The text may be of any language and size: plain, .gz, .bz2, .xz or .zst, or JSON lines (.jsonl). The
code that later tokenizes the text also splits it into words here, so every learned token can be
found again. The same text gives the same file, byte for byte, on any number of cores.

A new vocabulary:
  python -m bert_tf.build_vocab --input_file='text/*.txt' --output_file=vocab.txt
Ids follow the published vocabularies: [PAD] is 0, then come [unused] tokens for words of your own,
then [UNK], [CLS], [SEP] and [MASK], characters, and tokens from frequent to rare.

A published vocabulary and the 1,000 tokens that shorten the text of a domain most:
  python -m bert_tf.build_vocab --input_file='medicine/*.gz' --output_file=medical.txt \\
    --extend_vocab=bert-base-uncased/vocab.txt --num_new_tokens=1000
Old ids stay the same. medical.txt.mapping.json says which old embeddings each new one starts from:
pass it to run_pretraining or run_finetuning as --init_vocab_mapping, with the --init_checkpoint
that is to grow.

How well a vocabulary covers texts (the other two print this, too); nothing is written:
  python -m bert_tf.build_vocab --input_file=en.txt,th.txt --report_vocab=vocab.txt
"""

from dataclasses import dataclass

from bert_tf.choices import PLACEMENTS
from tfrecords import command
from tfrecords.command import option


@dataclass(frozen=True)
class Options(command.Options):
    """The flags."""

    input_file: str = option(help="Text files, comma-separated. Globs are allowed: quote them.")
    output_file: str | None = option(None, help="The vocabulary to write, one token per line.")
    vocab_size: int | None = option(
        None,
        at_least=1,
        help="The number of tokens, special and unused ones included. Default: 30522.",
    )
    do_lower_case: bool = option(
        True, help="Lower-case the text and strip accents. Turn it off for a cased vocabulary."
    )
    min_frequency: int | None = option(
        None, at_least=1, help="How often a token must occur to be included. Default: 2."
    )
    num_unused: int | None = option(
        None,
        at_least=0,
        help="The number of [unused] tokens. The default, 99, gives [UNK] the id 100, as in the "
        "published vocabularies.",
    )
    extend_vocab: str | None = option(None, help="A vocabulary to extend.")
    num_new_tokens: int | None = option(
        None, at_least=1, help="The most tokens to add to --extend_vocab. Default: 1000."
    )
    placement: str | None = option(
        None,
        help="Where new tokens go. append (the default) makes the vocabulary and the model larger; "
        "unused replaces [unused] tokens.",
        choices=PLACEMENTS,
    )
    report_vocab: str | None = option(
        None, help="A vocabulary whose coverage of the text to report. Nothing is written."
    )
    json_field: str | None = option(
        None, help="The field of JSON lines that holds the text. Default: text."
    )
    num_workers: int | None = option(
        None,
        at_least=1,
        help="Processes that count words. Default: one per core, fewer for small inputs.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.output_file and not self.report_vocab:
            raise ValueError("give --output_file, or --report_vocab to measure a vocabulary only")
        for name, has_effect, condition in (
            ("output_file", not self.report_vocab, "with --report_vocab"),
            ("extend_vocab", not self.report_vocab, "with --report_vocab"),
            ("min_frequency", not self.report_vocab, "with --report_vocab"),
            ("vocab_size", not self.report_vocab, "with --report_vocab"),
            ("num_unused", not self.report_vocab, "with --report_vocab"),
            ("vocab_size", not self.extend_vocab, "with --extend_vocab"),
            ("num_unused", not self.extend_vocab, "with --extend_vocab"),
            ("num_new_tokens", self.extend_vocab, "without --extend_vocab"),
            ("placement", self.extend_vocab, "without --extend_vocab"),
        ):
            if getattr(self, name) is not None and not has_effect:
                raise ValueError(f"--{name} has no effect {condition}: leave it out")


def run(options: Options) -> None:
    """Builds, extends or measures the vocabulary, and prints what it covers.

    Raises:
        ValueError: A file is missing or empty, or the text has no words.
        OSError: A file cannot be read or written.
    """
    from bert_tf.vocabulary import building

    text = building.TextInput(
        input_file=options.input_file,
        lower_case=options.do_lower_case,
        json_field=options.json_field,
        num_workers=options.num_workers,
    )
    if options.report_vocab:
        building.report_coverage(text, options.report_vocab)
        return
    min_frequency = 2 if options.min_frequency is None else options.min_frequency
    if options.extend_vocab:
        building.extend_vocabulary(
            text,
            options.output_file,
            extend_vocab=options.extend_vocab,
            num_new_tokens=options.num_new_tokens or 1000,
            placement=options.placement or "append",
            min_frequency=min_frequency,
        )
    else:
        building.build_vocabulary(
            text,
            options.output_file,
            vocab_size=options.vocab_size or 30522,
            min_frequency=min_frequency,
            num_unused=99 if options.num_unused is None else options.num_unused,
        )


def main() -> None:
    """Runs the command."""
    command.run(Options, run)


if __name__ == "__main__":
    main()

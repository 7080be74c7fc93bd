"""The flags of build_vocab."""

from dataclasses import dataclass

from bert_tf.choices import PLACEMENTS, VOCABULARY, WORKERS
from tfrecords import command
from tfrecords.command import option


@dataclass(frozen=True)
class VocabularyOptions(command.Options):
    """Which vocabulary to build, extend or measure, and from which text.

    Raises:
        ValueError: a flag is missing or has no effect.
    """

    input_file: str = option(help="Text files, comma-separated; globs allowed, in quotes.")
    output_file: str | None = option(None, help="The vocabulary to write, one token per line.")
    vocab_size: int | None = option(
        None,
        **VOCABULARY,
        help="The number of tokens, including special and unused ones. Default: 30522.",
    )
    do_lower_case: bool | None = option(
        None,
        help="Lower-case the text and strip accents. Turn it off for a cased vocabulary. Default: "
        "true for a new vocabulary; that of the vocabulary for --extend_vocab and --report_vocab.",
    )
    min_frequency: int | None = option(
        None, at_least=1, help="How often a token must occur to be included. Default: 2.", rare=True
    )
    num_unused: int | None = option(
        None,
        at_least=0,
        at_most=100_000,
        help="The number of [unused] tokens. The default, 99, gives [UNK] the id 100, as in the "
        "published vocabularies.",
        rare=True,
    )
    extend_vocab: str | None = option(None, help="A vocabulary to extend.")
    num_new_tokens: int | None = option(
        None, **VOCABULARY, help="Maximum number of tokens to add to --extend_vocab. Default: 1000."
    )
    placement: str | None = option(
        None,
        help="Where new tokens go. append (the default) makes the vocabulary and the model larger; "
        "unused replaces [unused] tokens.",
        choices=PLACEMENTS,
        rare=True,
    )
    report_vocab: str | None = option(
        None, help="A vocabulary whose coverage of the text to report, without writing anything."
    )
    json_field: str | None = option(
        None, help="The field of JSON lines that holds the text. Default: text.", rare=True
    )
    unwrap: bool = option(
        False,
        help="Join the lines of each paragraph, and words divided at the end of a line: for text "
        "that is broken into lines of a fixed width. Give the same flag to "
        "create_pretraining_data.",
        rare=True,
    )
    overwrite: bool = option(
        False, help="Replace a vocabulary that was built with other flags or from other text."
    )
    num_workers: int | None = option(
        None,
        **WORKERS,
        help="Number of processes. Default: one per core, fewer for small inputs.",
        rare=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.output_file and not self.report_vocab:
            raise ValueError(
                "nothing to do: give --output_file, or --report_vocab to only measure a vocabulary"
            )
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
                raise ValueError(f"--{name} has no effect {condition}: omit it")

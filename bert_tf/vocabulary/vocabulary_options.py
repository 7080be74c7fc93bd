"""The flags of build_vocab."""

from dataclasses import dataclass

from bert_tf.base.choices import PLACEMENTS, VOCABULARY, WORKERS
from bert_tf.base.command import option, rare_option
from bert_tf.corpus.corpus_options import CorpusOptions


@dataclass(frozen=True, kw_only=True)
class VocabularyOptions(CorpusOptions):
    """Which vocabulary to build, extend or measure, and from which text."""

    output_file: str | None = option(
        None,
        "The vocabulary to write, one token per line.",
        role="place",
        instead_of=("report_vocab",),
    )
    vocab_size: int = option(
        30522,
        "The number of tokens, including special and unused ones.",
        **VOCABULARY,
        instead_of=("report_vocab", "extend_vocab"),
    )
    do_lower_case: bool | None = option(
        None,
        "Lower-case the text and strip accents. Turn it off for a cased vocabulary. Default: "
        "true for a new vocabulary; that of the vocabulary for --extend_vocab and --report_vocab.",
    )
    extend_vocab: str | None = option(None, "A vocabulary to extend.", instead_of=("report_vocab",))
    num_new_tokens: int = option(
        1000, "Maximum number of tokens to add.", **VOCABULARY, needs=("extend_vocab",)
    )
    placement: str = rare_option(
        "append",
        "Where new tokens go. append makes the vocabulary and the model larger; unused replaces "
        "[unused] tokens.",
        choices=PLACEMENTS,
        needs=("extend_vocab",),
    )
    report_vocab: str | None = option(
        None,
        "Only report how well this vocabulary covers the text; write nothing.",
        role="place",
    )
    overwrite: bool = option(
        False,
        "Replace a vocabulary that was built with other flags or from other text.",
        role="place",
    )
    num_workers: int | None = rare_option(
        None,
        "Number of processes. Default: one per core, fewer for small inputs.",
        **WORKERS,
        role="place",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.output_file and not self.report_vocab:
            raise ValueError(
                "nothing to do: give --output_file, or --report_vocab to only measure a vocabulary"
            )

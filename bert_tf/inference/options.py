"""The flags that the commands for new text share."""

from dataclasses import dataclass

from bert_tf.choices import PAIR_LENGTH
from tfrecords import command
from tfrecords.command import option

# How the names of LiteRT models end.
LITE = ".tflite"


@dataclass(frozen=True, kw_only=True)
class VocabularyOptions(command.Options):
    """The vocabulary of a checkpoint of another program that does not state its own."""

    vocab_file: str | None = option(
        None,
        help="The encoder's vocabulary. Needed only if --checkpoint comes without one.",
        rare=True,
    )
    do_lower_case: bool | None = option(
        None,
        help="Whether text is lower-cased. Needed only if --checkpoint does not state it.",
        rare=True,
    )


@dataclass(frozen=True, kw_only=True)
class FineTunedOptions(VocabularyOptions):
    """How to read a fine-tuned model: what it does not state, or other values than its run had."""

    max_seq_length: int | None = option(
        None,
        **PAIR_LENGTH,
        help="Tokens per example; longer texts are truncated, and contexts and tagged texts are "
        "read in windows. Default: as in the run; for models of other programs 128 (384 for "
        "answers to questions), or the most that the model takes.",
    )
    pairs: bool = option(
        False,
        help="For a model of another program that classifies pairs of texts. A run states it.",
        rare=True,
    )
    null_score_diff_threshold: float | None = option(
        None,
        help='For models of SQuAD 2.0: a question gets no answer if "no answer" scores higher than '
        "the best answer by more than this. Default: as in the run; a model of another program "
        "answers every question.",
        rare=True,
    )


@dataclass(frozen=True, kw_only=True)
class ColumnOptions(command.Options):
    """The flag for the column of the text in a table."""

    text_column: str | None = option(
        None,
        help="Column of the text if --input_file is a table. Default: text, or the only column "
        "besides label and id.",
        rare=True,
    )


@dataclass(frozen=True, kw_only=True)
class PairColumnOptions(ColumnOptions):
    """The flags for the columns of pairs of texts."""

    text_b_column: str | None = option(
        None, help="Column of the second text, for pairs of texts in a table.", rare=True
    )


@dataclass(frozen=True, kw_only=True)
class TextOptions(ColumnOptions):
    """Where the texts come from, and the form of the answers."""

    texts: tuple = option(
        (),
        help="A text; may be repeated, and the name of the flag may be left out. Without texts "
        "and --input_file, the command reads standard input.",
        positional=True,
    )
    input_file: str | None = option(
        None,
        help="UTF-8 file, compressed or not, with one text per line; or a table (.csv, .tsv, .json "
        "or .jsonl), as for run_finetuning --task=csv.",
    )
    json: bool = option(False, help="Print a JSON object per text, on one line.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.texts and self.input_file:
            raise ValueError("texts and --input_file exclude each other: give only one")


@dataclass(frozen=True, kw_only=True)
class ExampleOptions(TextOptions, PairColumnOptions):
    """Where the texts or pairs of texts come from."""

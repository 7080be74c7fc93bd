"""The flags of the commands for new text."""

import dataclasses
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from bert_tf.base import command
from bert_tf.base.choices import BATCH, PAIR_LENGTH
from bert_tf.base.command import option, rare_option
from bert_tf.base.common_options import RunnerOptions

# How the names of LiteRT and ONNX models end.
LITE, ONNX = ".tflite", ".onnx"
_VECTORS = (".npz", ".parquet", ".tfrecord", ".jsonl", ".tsv")
_TABLES = (
    "tables (.csv, .tsv, .jsonl, .parquet or .tfrecord), as for run_finetuning --task=csv. "
    "Globs allowed, in quotes. Files may be compressed."
)
_DEVICES = ("use_tpu", "master", "num_tpu_cores")
_PREDICTIONS = (".jsonl", ".csv", ".tsv", ".parquet", ".tfrecord")


def _check_ending(path: str, endings: Collection[str]) -> None:
    if os.path.splitext(path)[1] not in endings:
        raise ValueError(f"--output_file={path}: its name must end with {', '.join(endings)}")


@dataclass(frozen=True, kw_only=True)
class TokenizerOptions(command.Options):
    """The vocabulary of a checkpoint of another program that does not state its own."""

    vocab_file: str | None = rare_option(
        None, "The encoder's vocabulary. Needed only if --checkpoint comes without one."
    )
    do_lower_case: bool | None = rare_option(
        None, "Whether text is lower-cased. Needed only if --checkpoint does not state it."
    )


@dataclass(frozen=True, kw_only=True)
class FineTunedOptions(TokenizerOptions):
    """How to read a fine-tuned model: what it does not state, or other values than its run had."""

    max_seq_length: int | None = option(
        None,
        "Tokens per example; longer texts are truncated, and contexts and tagged texts are "
        "read in windows. Default: as in the run; for models of other programs 128 (384 for "
        "answers to questions), or the most that the model takes.",
        **PAIR_LENGTH,
    )
    pairs: bool = rare_option(
        False, "The model classifies pairs of texts. Needed only for models of other programs."
    )
    null_score_diff_threshold: float | None = rare_option(
        None,
        'For models of SQuAD 2.0: a question gets no answer if "no answer" scores higher than '
        "the best answer by more than this. Default: as in the run; a model of another program "
        "answers every question.",
    )


@dataclass(frozen=True, kw_only=True)
class ColumnOptions(command.Options):
    """The flag for the column of the text in a table."""

    text_column: str | None = rare_option(
        None,
        "Column of the text if --input_file is a table. Default: text, or the only column "
        "besides label and id.",
    )


@dataclass(frozen=True, kw_only=True)
class PairColumnOptions(ColumnOptions):
    """The flags for the columns of pairs of texts."""

    text_b_column: str | None = rare_option(
        None, "Column of the second text, for pairs of texts in a table."
    )


@dataclass(frozen=True, kw_only=True)
class TextOptions(ColumnOptions):
    """Where the texts come from, and the form of the answers."""

    texts: tuple = option(
        (),
        "A text; may be repeated, and the name of the flag may be left out. Without texts "
        "and --input_file, the command reads standard input.",
        kind="positional",
        role="place",
    )
    input_file: str | None = option(
        None,
        f"UTF-8 files, comma-separated, with one text per line; or {_TABLES}",
        role="place",
        instead_of=("texts",),
    )
    json: bool = option(False, "Print a JSON object per text, on one line.", role="place")


@dataclass(frozen=True, kw_only=True)
class PredictorOptions(FineTunedOptions):
    """Which model predicts, and how it reads."""

    checkpoint: str | tuple = option(
        help="Run folder of run_finetuning, a fine-tuned model of another program "
        "(docs/checkpoints.md), a file of export.lite or export.onnx, or a SavedModel of "
        "export.classifier; several models, a,b,c, average their probabilities.",
        role="place",
    )
    batch_size: int = rare_option(32, "Examples per batch.", **BATCH)


@dataclass(frozen=True, kw_only=True)
class PredictOptions(RunnerOptions, TextOptions, PairColumnOptions, PredictorOptions):
    """The flags of predict."""

    keeps_weights: ClassVar[bool] = True

    keep_columns: bool = option(
        False,
        "Keep the other columns of a table beside the predictions.",
        needs=("json or output_file",),
    )
    output_file: str | None = option(
        None,
        "File to write for --input_file, in place of printing: .jsonl, .csv, .tsv, .parquet or "
        ".tfrecord. A killed run resumes. FILE.rejected.jsonl lists rows that cannot be read.",
        role="place",
        needs=("input_file",),
        instead_of=("json",),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.output_file:
            flags = (field.name for field in dataclasses.fields(RunnerOptions))
            self.refuse(flags, "has no effect without --output_file")
            return
        _check_ending(self.output_file, _PREDICTIONS)


@dataclass(frozen=True, kw_only=True)
class FillerOptions(TokenizerOptions):
    """Which model predicts words, and which words."""

    checkpoint: str = option(
        help="Run folder of run_pretraining, SavedModel of export.encoder, or a checkpoint of "
        "another program with a masked-LM head (docs/checkpoints.md)."
    )
    top_k: int | None = option(
        None,
        "Number of words to show for each [MASK]. Default: 5, or all of --targets.",
        at_least=1,
    )
    targets: tuple = option(
        (),
        "Words to compare, comma-separated: only these are shown, the likeliest first. Each must "
        "be a single token of the vocabulary, such as paris or ##ing. The flag may be repeated.",
    )


@dataclass(frozen=True, kw_only=True)
class FillMaskOptions(TextOptions, FillerOptions):
    """The flags of fill_mask."""

    keeps_weights: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class ExtractionOptions(RunnerOptions, PairColumnOptions, TokenizerOptions):
    """The flags of extract_features."""

    keeps_weights: ClassVar[bool] = True
    absent_flags: ClassVar[Mapping[str, str]] = {
        "bert_config_file": "--checkpoint states it, so omit it",
        "use_one_hot_embeddings": "it is not needed, so omit it",
    } | dict.fromkeys(_DEVICES, "the command finds the devices, so omit it")
    if_out_of_memory: ClassVar[str] = "use a smaller --batch_size or --max_seq_length"

    checkpoint: str = option(
        help="A run folder or a checkpoint of another program (docs/checkpoints.md).",
        aliases=("init_checkpoint",),
        role="place",
    )
    input_file: str = option(
        help=f'UTF-8 files, comma-separated, of one text or pair "a ||| b" per line; or {_TABLES}',
        role="place",
    )
    output_file: str = option(
        help="File to write; its ending, .npz, .parquet, .tfrecord, .jsonl or .tsv, states the "
        "format.",
        role="place",
    )
    layers: str | None = option(
        None,
        "Layers, comma-separated: -1 is the last, 0 the first, and embeddings the input of the "
        "first. Default: -1,-2,-3,-4, or all layers if there are fewer.",
    )
    pooling: str = option(
        "tokens",
        "What gets a vector. tokens: every token; word_first, word_mean: every word between "
        "spaces, with the vector of its first token or the mean of all its tokens; cls, mean: the "
        "line, with the vector of [CLS] or the mean of all tokens, [CLS] and [SEP] included.",
        choices=("tokens", "word_first", "word_mean", "cls", "mean"),
    )
    dtype: str = option(
        "float32",
        "Type of the values in .npz, .parquet and .tfrecord. float16 keeps three digits.",
        choices=("float32", "float16"),
    )
    max_seq_length: int | None = option(
        None,
        "Tokens that the encoder reads together. Longer lines are read in overlapping "
        "windows, and longer pairs truncated; both are counted. Default: 128, or the most that "
        "the encoder takes.",
        **PAIR_LENGTH,
    )
    batch_size: int = rare_option(32, "Lines, or windows of them, per batch.", **BATCH)

    def __post_init__(self) -> None:
        super().__post_init__()
        ending = os.path.splitext(self.output_file)[1]
        _check_ending(self.output_file, _VECTORS)
        if ending in (".jsonl", ".tsv"):
            self.refuse(["dtype"], f"has no effect on {ending}")
        if ending == ".tsv" and "," in (self.layers or ","):
            raise ValueError(f"--output_file={self.output_file} holds one layer: give --layers=-1")


@dataclass(frozen=True, kw_only=True)
class PageOptions(TokenizerOptions):
    """What a page of explore shows."""

    checkpoint: str = option(
        help="A run folder, or a checkpoint of another program (docs/checkpoints.md)."
    )
    texts: tuple = option(
        (),
        "A text; may be repeated, and the name of the flag may be left out. Write a pair as "
        '"a ||| b". Without texts, the page shows examples.',
        kind="positional",
        aliases=("text",),
    )
    top_k: int = option(5, "How many words to show for each masked token.", at_least=1)
    max_seq_length: int | None = option(
        None,
        "Tokens per text; longer texts are truncated, and the page says so. Default: 64, or "
        "the most that the model takes.",
        **PAIR_LENGTH,
    )


@dataclass(frozen=True, kw_only=True)
class ExplorerOptions(PageOptions):
    """The flags of explore."""

    keeps_weights: ClassVar[bool] = True
    output_file: str | None = option(
        None, "The page to write, such as page.html.", instead_of=("serve",)
    )
    overwrite: bool = option(False, "Replace an existing --output_file.")
    serve: bool = option(
        False,
        "Show the page at a local address, and take new texts there; the default without "
        "--output_file. It listens on 127.0.0.1, so only programs on this machine reach it.",
    )
    open: bool = option(False, "Open the page in a browser.")
    port: int = option(
        8000, "Where --serve listens; 0 for any free port.", at_least=0, at_most=65535
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.output_file:
            _check_ending(self.output_file, [".html"])

"""The flags that the export commands share."""

from dataclasses import dataclass
from typing import ClassVar

from bert_tf.base import command
from bert_tf.base.choices import SINGLE_LENGTH, STORED_PRECISIONS
from bert_tf.base.command import option, rare_option
from bert_tf.inference import inference_options as inference


@dataclass(frozen=True, kw_only=True)
class ExportOptions(command.Options):
    """Where to write, and what only the user can say for the model card."""

    output_dir: str = option(help="Folder to write; must be new or empty.")
    license: str | None = option(
        None,
        'The license of the weights, such as "apache-2.0", for the model card. Default: that of '
        "the card beside the checkpoint, otherwise none.",
    )


@dataclass(frozen=True, kw_only=True)
class ModelOptions(ExportOptions):
    """In which form to write a model."""

    precision: str = option(
        "float32",
        "Type of the stored weights; outputs are always float32. bfloat16 (for CPUs that have "
        "instructions for it, GPUs and TPUs) and float16 (for GPUs) halve the folder, and the "
        "model computes in that type. int8 quarters it; the model computes in float32. Each of "
        "them changes the outputs a little. To fine-tune an encoder, export it in float32.",
        choices=STORED_PRECISIONS,
    )


@dataclass(frozen=True, kw_only=True)
class SingleFileOptions(command.Options):
    """What becomes a single file, and where."""

    ending: ClassVar[str]

    checkpoint: str = option(
        help="Run folder of run_finetuning or run_pretraining, or a checkpoint of another "
        "program (docs/checkpoints.md)."
    )
    output_file: str = option(help="The file to write; must be new, and end in .tflite or .onnx.")
    max_seq_length: int | None = option(
        None,
        "Tokens per example that predict reads; a LiteRT model always computes as many. Default: "
        "as in a fine-tuning run; otherwise 128, or the most that the model takes.",
        **SINGLE_LENGTH,
    )
    evaluate: bool = option(
        False,
        "Measure the metrics of the new model and of the original on the dev set of the "
        "fine-tuning run. The data must still be where the run found it.",
    )
    pairs: bool = rare_option(
        False, "The model classifies pairs of texts. Needed only for models of other programs."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.output_file.endswith(self.ending):
            raise ValueError(f"--output_file={self.output_file} must end in {self.ending}")


@dataclass(frozen=True, kw_only=True)
class ExportTokenizerOptions(ExportOptions, inference.TokenizerOptions):
    """Which vocabulary the exported model has."""

    vocab_file: str | None = option(
        None, "The encoder's vocabulary. Needed only if --checkpoint comes without one."
    )
    replace_vocab: bool = rare_option(
        False,
        "Use --vocab_file although the run has another vocabulary. Only correct if ids keep "
        "their meaning, for example if you renamed [unused] tokens.",
        needs=("vocab_file",),
    )


@dataclass(frozen=True, kw_only=True)
class PreprocessorOptions(ExportTokenizerOptions):
    """The length of the outputs of a preprocessor."""

    max_seq_length: int | None = option(
        None,
        "Length of the preprocessor's outputs for single texts; its bert_pack_inputs takes any "
        "length. Default: 128, or the most that the encoder takes.",
        **SINGLE_LENGTH,
    )

"""The flags that the export commands share."""

from dataclasses import dataclass

from bert_tf.inference import inference_options as inference
from tfrecords import command
from tfrecords.command import option, rare_option

UNKNOWN_LICENSE = "unknown: set --license"


@dataclass(frozen=True, kw_only=True)
class ExportOptions(command.Options):
    """Where to write, and what only the user can say for the model card."""

    output_dir: str = option(help="Folder to write; must be new or empty.")
    license: str = option(
        UNKNOWN_LICENSE, 'The license of the weights for the model card, such as "apache-2.0".'
    )


@dataclass(frozen=True, kw_only=True)
class VocabularyOptions(ExportOptions, inference.VocabularyOptions):
    """Which vocabulary the exported model has."""

    vocab_file: str | None = option(
        None, "The encoder's vocabulary. Needed only if --checkpoint comes without one."
    )
    replace_vocab: bool = rare_option(
        False,
        "Use --vocab_file although the run has another vocabulary. Only correct if ids keep "
        "their meaning, for example if you renamed [unused] tokens.",
    )

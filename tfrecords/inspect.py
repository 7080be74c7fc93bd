"""Checks pre-training records, prints statistics and shows some records.

  python -m tfrecords.inspect --input_file='train.tfrecord-*' --plot=lengths.png

It checks the framing and checksums of the records, the lengths and values of all features, and the
size, number of records and checksum of each file against the manifest beside it. If the vocabulary
is known, it also checks where [CLS] and [SEP] are, shows words instead of ids, and distinguishes
[MASK] from random tokens. The vocabulary is that of the manifest unless --vocab_file is given. If
anything is wrong, the exit code is 1 and a line that starts with BAD names each problem.
"""

from dataclasses import dataclass

from bert_tf.base import command
from bert_tf.base.command import option


@dataclass(frozen=True, kw_only=True)
class Options(command.Options):
    """The flags of the command."""

    input_file: str = option(help="TFRecord files, comma-separated; globs allowed.")
    vocab_file: str | None = option(
        None, "Vocabulary that the records were created with. Default: that of the manifest."
    )
    num_examples: int = option(3, "Number of records to show.", at_least=0)
    plot: str | None = option(
        None,
        "Plot lengths, fill and masked positions to this file (.png, .svg or .pdf).",
    )
    overwrite: bool = option(False, "Replace an existing --plot.")


run = command.late("tfrecords.inspection:inspect")

if __name__ == "__main__":
    command.run(__name__)

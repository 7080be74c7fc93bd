"""Zips the test predictions of fine-tuning runs for GLUE's server.

  python -m bert_tf.glue_submission --output_file=glue.zip run-cola run-sst2

Each run is the folder of a run_finetuning with --do_predict. The command checks that every
file covers its whole test set with labels of its task, and lists which of the eleven files are
missing. The server is at gluebenchmark.com.
"""

from dataclasses import dataclass

from bert_tf.base import command
from bert_tf.base.command import option


@dataclass(frozen=True, kw_only=True)
class Options(command.Options):
    """The flags of the command."""

    runs: tuple = option(
        (),
        "Run folder of run_finetuning; may be repeated, and the name of the flag may be "
        "left out. Required.",
        kind="positional",
    )
    output_file: str = option(help="The zip file to write.")
    overwrite: bool = option(False, "Replace an existing --output_file.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.runs:
            raise ValueError("no runs: give the run folders of run_finetuning")
        if not self.output_file.endswith(".zip"):
            raise ValueError(f"--output_file={self.output_file}: its name must end with .zip")


def run(options: Options) -> None:
    """Writes the zip file and prints what is in it and what is missing."""
    from bert_tf.finetuning.tasks.glue import write_submission

    files, missing = write_submission(options.runs, options.output_file, options.overwrite)
    print(f"Wrote {options.output_file}: {', '.join(files)}.")
    if missing:
        print(
            f"WARNING: missing {len(missing)} of {len(files) + len(missing)} files: "
            f"{', '.join(missing)}. Add the runs of these tasks."
        )


if __name__ == "__main__":
    command.run(__name__)

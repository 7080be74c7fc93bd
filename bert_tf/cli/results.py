"""Compares fine-tuning runs with each other and with published results.

  python -m bert_tf.results --folder=runs
  python -m bert_tf.results runs --output_file=results.md

The folder holds run folders of run_finetuning, at any depth. Runs that differ only in
--random_seed share one row: their mean and standard deviation (with n - 1). The first tables have a
row for each setting of the flags, and show the metric that chooses the best weights. The others
repeat the figures of the BERT paper for these tasks, in percent, and add a row for each model that
was fine-tuned, at the setting that is best on the dev set. Their titles name the split: some
published figures are from test sets whose labels are not public.
"""

import os
from dataclasses import dataclass

from bert_tf.base import command
from bert_tf.base.command import option


@dataclass(frozen=True, kw_only=True)
class Options(command.Options):
    """The flags of the command."""

    folder: str = option(help="Folder with runs of run_finetuning.", kind="positional")
    output_file: str | None = option(
        None, "Also write the tables to this file: .md for Markdown, or .txt."
    )
    overwrite: bool = option(False, "Replace an existing --output_file.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.output_file and not self.output_file.endswith((".md", ".txt")):
            raise ValueError(f"--output_file={self.output_file}: end it with .md or .txt")


def run(options: Options) -> None:
    """Prints and writes the tables."""
    from bert_tf.base.output_files import atomic_write, check_output_files
    from bert_tf.comparison.comparing import (
        print_tables,
        published_tables,
        read_groups,
        task_tables,
    )
    from bert_tf.runs.run import VOCAB
    from bert_tf.training.reports import EVAL_RESULTS

    if options.output_file:
        # The table can lie in a run, but not in the place of what the run holds.
        beside = os.path.dirname(options.output_file)
        kept = (os.path.join(beside, name) for name in (VOCAB, EVAL_RESULTS))
        check_output_files([options.output_file], [options.folder, *kept], options.overwrite)
    groups, unfinished = read_groups(options.folder)
    tables = task_tables(groups) + published_tables(groups)
    print_tables(tables, unfinished)
    if not options.output_file:
        return
    as_markdown = options.output_file.endswith(".md")
    texts = (table.markdown() if as_markdown else table.text() for table in tables)
    atomic_write(options.output_file, "\n\n".join(texts) + "\n", options.overwrite)
    print(f"\nWrote {options.output_file}.")


if __name__ == "__main__":
    command.run(__name__)

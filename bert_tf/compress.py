"""Compresses a fine-tuned model: a smaller student learns from it.

  python -m bert_tf.compress --recipe=pkd6 --teacher=run-sst2 --task=sst2 \\
    --data_dir=glue/SST-2 --output_dir=run-sst2-pkd6

The output is the folder of a fine-tuned model, which predict, export.classifier, results and
convert_checkpoint read. Run the same command again to resume an interrupted run. To compare size,
quality and speed of all students in a folder with their teachers and with published figures:

  python -m bert_tf.compress --report=runs

Recipes (docs/compression.md has their papers and published results):
  layers      no teacher: fine-tunes the lowest half of the layers
  distilbert  the teacher's probabilities, its last hidden states, and the labels
  pkd6, pkd3  the teacher's probabilities, [CLS] of every second or fourth layer, and the labels
  pd          the teacher's probabilities alone; for any --init_checkpoint
  tinybert    attention scores, hidden states and embeddings, then the teacher's probabilities
  internal    attention and [CLS] from the lowest layer up, then probabilities and labels;
              internal-progressive: one layer at a time
  theseus     layers replace modules of the teacher at random, more and more of them
  heads       no teacher: removes the --sparsity of the attention heads that contribute least
  weights     no teacher: sets the --sparsity of the weights that are smallest to zero
  q8bert      weights and activations of 8 bits while it trains
  qbert       weights of 2 to 8 bits, more of them in layers that are sensitive: --bits=2/3

The student starts with layers of the teacher: --student_layers chooses them. --init_checkpoint
names another initial encoder, and --preset or --bert_config_file with --vocab_file a random one.
"""

import sys

from bert_tf.compression.options import CompressionOptions as Options
from bert_tf.compression.options import ReportOptions
from tfrecords import command


def run(options: Options) -> dict[str, float]:
    """Compresses; see `bert_tf.compression.run.compress`.

    With --num_seeds or --grid it returns the results of the best student.
    """
    from bert_tf.finetuning.runs.sweep import sweep

    return sweep(options) if options.is_sweep else options.start()


def report(options: ReportOptions) -> None:
    """Compares students with their teachers; see `bert_tf.compression.report.report`."""
    from bert_tf.compression.report import report

    report(options.report)


def main() -> None:
    """Runs the command."""
    names = [argument.lstrip("-").partition("=")[0] for argument in sys.argv[1:]]
    if "report" in names:
        command.run(ReportOptions, report)
    else:
        command.run(Options, run)


if __name__ == "__main__":
    main()

"""Exports the best weights of a fine-tuning run as a SavedModel, from raw text to predictions.

  python -m export.classifier --checkpoint=run-sst2 --output_dir=classifier

where `run-sst2` is the output folder of run_finetuning. To use it:

  import tensorflow as tf, tensorflow_text  # the latter registers operations
  classify = tf.saved_model.load("classifier")
  classify(["a text", "another"])  # a dict of probabilities [batch, classes] and label [batch]
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfrecords import command
from tfrecords.command import option

if TYPE_CHECKING:
    from bert_tf.finetuning.task import Task


@dataclass(frozen=True, kw_only=True)
class Options(command.Options):
    """The flags of the command."""

    checkpoint: str = option(help="Output folder of run_finetuning.")
    output_dir: str = option(help="Folder to write; must be new or empty.")


def run(options: Options) -> None:
    """Exports the best weights of a fine-tuning run.

    Raises:
        ValueError, OSError: one line that names the flag or file and what to do.
    """
    example_call = export_classifier(options.checkpoint, options.output_dir)
    print(
        f"Wrote the best weights of {options.checkpoint} to {options.output_dir}. To use them:\n"
        "  import tensorflow as tf, tensorflow_text\n"
        f"  model = tf.saved_model.load({options.output_dir!r})\n"
        f"  model{example_call}"
    )


def export_classifier(run_folder: str, output_dir: str, task: "Task | None" = None) -> str:
    """Writes the best weights of a fine-tuning run as a SavedModel.

    Args:
        run_folder: the output folder of run_finetuning.
        output_dir: must be new or empty.
        task: the run's task; needed only if it is not registered.

    Returns:
        the arguments of a call of the exported model, with a comment on its result.

    Raises:
        ValueError: `run_folder` does not hold a fine-tuning run, or `output_dir` is not empty.
        OSError: a file cannot be read or written.
    """
    from bert_tf.checkpoint import open_checkpoint
    from bert_tf.finetuning.registry import get_task
    from bert_tf.finetuning.run import FINISHED
    from bert_tf.resolution import resolve_vocab
    from bert_tf.run_folder import RunFolder
    from bert_tf.text.tokenizer import WordPieceTokenizer
    from bert_tf.training.checkpoints import BEST, latest_checkpoint
    from bert_tf.training.strategy import set_precision
    from bert_tf.weights.loading import load_weights
    from export.saved_models import save_folder
    from tfrecords.vocabulary import load_vocab
    from tfrecords.writer import check_new_folder

    check_new_folder(output_dir)
    folder = RunFolder(run_folder)
    flags = folder.read_flags()
    if "task" not in flags:
        raise ValueError(
            f"{run_folder} is not the output folder of run_finetuning: name one as --checkpoint"
        )
    if not flags.get(FINISHED, True):
        newest, best = latest_checkpoint(run_folder), latest_checkpoint(folder.file(BEST))
        print(
            f"WARNING: {run_folder} is unfinished: its best weights so far are {best}, and its "
            f"newest checkpoint is {newest}. Run the same run_finetuning command to finish it."
        )
    task = task or get_task(flags["task"])
    checkpoint = open_checkpoint(folder.file(BEST))
    vocab_file, lower_case = resolve_vocab(checkpoint)
    # Outputs are float32, whatever the precision of training was.
    set_precision("float32")
    model = task.build_model(checkpoint.spec.config)
    load_weights(checkpoint.path, checkpoint.tensors, model.weights)
    tokenizer = WordPieceTokenizer(load_vocab(vocab_file), lower_case)
    module = task.serving(model, tokenizer, flags["max_seq_length"])
    save_folder(module, output_dir, {"serving_default": module.serving})
    return task.example_call()


def main() -> None:
    """Runs the command."""
    command.run(Options, run)


if __name__ == "__main__":
    main()

"""Exports a fine-tuned model as a SavedModel from text to predictions.

  python -m export.classifier --checkpoint=run-sst2 --output_dir=classifier

--checkpoint is a run folder of run_finetuning, whose best weights are exported, or a
fine-tuned model of another program.

To use the result:

  import tensorflow as tf, tensorflow_text  # the latter registers operations
  classify = tf.saved_model.load("classifier")
  classify(["a text", "another"])  # a dict of probabilities [batch, classes] and label [batch]
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bert_tf.base import command
from bert_tf.base.command import option
from bert_tf.base.command_help import command_line
from bert_tf.base.progress import for_caller, say
from bert_tf.inference.inference_options import FineTunedOptions
from export.export_options import ModelOptions

if TYPE_CHECKING:
    from bert_tf.finetuning.task import Task


@dataclass(frozen=True, kw_only=True)
class Options(ModelOptions, FineTunedOptions):
    """The flags of the command."""

    checkpoint: str = option(
        help="Run folder of run_finetuning, or a fine-tuned model of another program "
        "(docs/checkpoints.md), converted or not."
    )


def run(options: Options) -> None:
    """Exports the best weights of a fine-tuning run."""
    example_call = _export(options)
    check = command_line("export.check", saved_model_dir=options.output_dir)
    print(f"Wrote the model of {options.checkpoint} to {options.output_dir}.")
    say(
        "To use them:\n  import tensorflow as tf, tensorflow_text\n"
        f"  model = tf.saved_model.load({options.output_dir!r})\n"
        f"  model{example_call}" + for_caller(f"\nNext: {check}", "")
    )


def export_classifier(
    run_folder: str, output_dir: str, task: "Task | None" = None, **flags: Any
) -> str:
    """Writes the best weights of a fine-tuning run, or another fine-tuned model, as a SavedModel.

    Args:
        run_folder: a run folder of run_finetuning, or a fine-tuned model of another program.
        output_dir: must be new or empty.
        task: the run's task; needed only if it is not registered.
        flags: other flags of the command, such as `max_seq_length`, `precision` or `license`.

    Returns:
        the arguments of a call of the exported model, with a comment on its result.

    Example:
        export_classifier("reviews", "classifier", max_seq_length=128)

    Raises:
        ValueError: `run_folder` holds no fine-tuned model, or `output_dir` is not empty.
        OSError: a file cannot be read or written.
    """
    return _export(Options(checkpoint=run_folder, output_dir=output_dir, **flags), task)


def _export(options: Options, task: "Task | None" = None) -> str:
    from bert_tf.finetuning.fine_tuned import load_task_model, open_fine_tuned
    from bert_tf.inference.models import load_tokenizer
    from export.saved_models import check_output
    from export.text_models import write_text_model

    check_output(options.output_dir)
    checkpoint, task, length = open_fine_tuned(
        options.checkpoint,
        task,
        options.max_seq_length,
        options.pairs,
        options.null_score_diff_threshold,
        options.vocab_file,
    )
    tokenizer = load_tokenizer(checkpoint, options)
    write_text_model(
        options,
        checkpoint,
        tokenizer,
        lambda: load_task_model(task, checkpoint, allow_non_finite=True),
        lambda model: task.serving(model, tokenizer, length),
        kind=f"{task.name}, a fine-tuned BERT",
        about="A SavedModel of a fine-tuned BERT that maps raw text to predictions; the tokenizer "
        f"is inside. {task.long_inputs.format(length)} TensorFlow Serving calls the signature "
        "`serving_default`.",
        call=task.example_call(),
    )
    return task.example_call()


if __name__ == "__main__":
    command.run(__name__)

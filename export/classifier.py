"""Exports a fine-tuned model as a SavedModel from text to predictions.

  python -m export.classifier --checkpoint=run-sst2 --output_dir=classifier

--checkpoint is the output folder of run_finetuning, whose best weights are exported, or a
fine-tuned model of another program.

To use the result:

  import tensorflow as tf, tensorflow_text  # the latter registers operations
  classify = tf.saved_model.load("classifier")
  classify(["a text", "another"])  # a dict of probabilities [batch, classes] and label [batch]
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bert_tf.inference.inference_options import FineTunedOptions
from export.export_options import ExportOptions
from tfrecords import command
from tfrecords.command import option
from tfrecords.command_help import command_line
from tfrecords.progress import say

if TYPE_CHECKING:
    from bert_tf.finetuning.task import Task


_EXAMPLE = """
import tensorflow as tf
import tensorflow_text  # registers the tokenizer's operations

model = tf.saved_model.load("FOLDER")
outputs = model{call}
"""


@dataclass(frozen=True, kw_only=True)
class Options(ExportOptions, FineTunedOptions):
    """The flags of the command."""

    checkpoint: str = option(
        help="Output folder of run_finetuning, or a fine-tuned model of another program "
        "(docs/checkpoints.md), converted or not."
    )
    precision: str = option(
        "float32",
        "Type of the stored weights. bfloat16 (for CPUs that have instructions for it, GPUs "
        "and TPUs) and float16 (for GPUs) halve the folder, and the model computes in that type. "
        "int8 quarters it; the model computes in float32. Each of them changes the outputs a "
        "little.",
        choices=("float32", "bfloat16", "float16", "int8"),
    )


def run(options: Options) -> None:
    """Exports the best weights of a fine-tuning run."""
    example_call = _export(options)
    check = command_line("export.check", saved_model_dir=options.output_dir)
    print(f"Wrote the model of {options.checkpoint} to {options.output_dir}.")
    say(
        "To use them:\n  import tensorflow as tf, tensorflow_text\n"
        f"  model = tf.saved_model.load({options.output_dir!r})\n"
        f"  model{example_call}\n"
        f"Next: {check}"
    )


def export_classifier(
    run_folder: str, output_dir: str, task: "Task | None" = None, **flags: Any
) -> str:
    """Writes the best weights of a fine-tuning run, or another fine-tuned model, as a SavedModel.

    Args:
        run_folder: the output folder of run_finetuning, or a fine-tuned model of another program.
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
    import keras

    from bert_tf.finetuning.fine_tuned import load_task_model, open_fine_tuned
    from bert_tf.inference.models import load_tokenizer
    from bert_tf.models.encoder import skip_padding
    from export.batching import batching_files
    from export.card import CARD, CardFacts, model_card
    from export.int8_weights import Int8Model
    from export.saved_models import add_vocab, check_output, save_folder
    from export.warmup import WARMUP, warmup_requests

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
    int8, before, stored = options.precision == "int8", keras.config.dtype_policy(), ""
    # The precision of the export does not depend on that of training.
    keras.config.set_dtype_policy("float32" if int8 else options.precision)
    model = load_task_model(task, checkpoint, allow_non_finite=True)
    skip_padding(model)
    keras.config.set_dtype_policy(before)
    served = Int8Model(model) if int8 else model
    module = task.serving(served, tokenizer, length)
    if int8:
        module.stored, stored = served.stored, " Its matrices are in 8 bits."
    elif options.precision != "float32":
        stored = f" It computes in {options.precision}; its outputs are float32."
    add_vocab(module, tokenizer.vocab, tokenizer.lower_case)
    facts = CardFacts(
        license=options.license,
        config=checkpoint.spec.config,
        run=checkpoint.run,
        converted_from=f"{options.checkpoint} ({checkpoint.format})" if checkpoint.format else None,
    )
    card = model_card(
        options.output_dir,
        f"{task.name}, a fine-tuned BERT",
        "A SavedModel of a fine-tuned BERT that maps raw text to predictions; the tokenizer is "
        f"inside. {task.long_inputs.format(length)} TensorFlow Serving calls the "
        f"signature `serving_default`.{stored}",
        _EXAMPLE.format(call=task.example_call()),
        tokenizer.vocab,
        tokenizer.lower_case,
        facts,
    )
    inputs = module.serving.input_signature
    files = {CARD: card, WARMUP: warmup_requests(inputs)} | batching_files(inputs)
    save_folder(module, options.output_dir, {"serving_default": module.serving}, files)
    return task.example_call()


if __name__ == "__main__":
    command.run(__name__)

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
from typing import TYPE_CHECKING

from bert_tf.inference.inference_options import FineTunedOptions
from export.export_options import UNKNOWN_LICENSE, ExportOptions
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
_STORED = {
    "bfloat16": " It computes in bfloat16; its outputs are float32.",
    "float16": " It computes in float16; its outputs are float32.",
    "int8": " Its matrices are in 8 bits.",
}


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
    example_call = export_classifier(
        options.checkpoint,
        options.output_dir,
        max_seq_length=options.max_seq_length,
        pairs=options.pairs,
        null_score_diff_threshold=options.null_score_diff_threshold,
        precision=options.precision,
        license=options.license,
        vocab_file=options.vocab_file,
        do_lower_case=options.do_lower_case,
    )
    check = command_line("export.check", saved_model_dir=options.output_dir)
    print(f"Wrote the model of {options.checkpoint} to {options.output_dir}.")
    say(
        "To use them:\n  import tensorflow as tf, tensorflow_text\n"
        f"  model = tf.saved_model.load({options.output_dir!r})\n"
        f"  model{example_call}\n"
        f"Next: {check}"
    )


def export_classifier(
    run_folder: str,
    output_dir: str,
    task: "Task | None" = None,
    *,
    max_seq_length: int | None = None,
    pairs: bool = False,
    null_score_diff_threshold: float | None = None,
    precision: str = "float32",
    license: str = UNKNOWN_LICENSE,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
) -> str:
    """Writes the best weights of a fine-tuning run, or another fine-tuned model, as a SavedModel.

    Args:
        run_folder: the output folder of run_finetuning, or a fine-tuned model of another program.
        output_dir: must be new or empty.
        task: the run's task; needed only if it is not registered.
        max_seq_length: longer texts are truncated, and contexts and tagged texts are read in
            windows. Default: that of the run, or of the task.
        pairs: whether a model of another program classifies pairs of texts.
        null_score_diff_threshold: for models of SQuAD 2.0: a question gets no answer if "no answer"
            scores higher than the best answer by more than this. Default: that of the run; a model
            of another program answers every question.
        precision: the type of the stored weights: "float32", "bfloat16", "float16", or "int8" for
            matrices in 8 bits. Outputs are float32.
        license: the license of the weights, for the model card.
        vocab_file, do_lower_case: the vocabulary and casing of a model that does not state them.

    Returns:
        the arguments of a call of the exported model, with a comment on its result.

    Raises:
        ValueError: `run_folder` holds no fine-tuned model, or `output_dir` is not empty.
        OSError: a file cannot be read or written.
    """
    import keras

    from bert_tf.finetuning.fine_tuned import load_task_model, open_fine_tuned
    from bert_tf.resolution import resolve_vocab
    from bert_tf.text.tokenizer import WordPieceTokenizer
    from export.card import CARD, model_card
    from export.lite_model import Int8Model
    from export.saved_models import add_vocab, check_output, save_folder
    from export.warmup import WARMUP, warmup_requests

    check_output(output_dir)
    checkpoint, task, length = open_fine_tuned(
        run_folder, task, max_seq_length, pairs, null_score_diff_threshold, vocab_file
    )
    config = checkpoint.spec.config
    vocab, lower_case = resolve_vocab(checkpoint, vocab_file, do_lower_case)
    int8, before = precision == "int8", keras.config.dtype_policy()
    # The precision of the export does not depend on that of training.
    keras.config.set_dtype_policy("float32" if int8 else precision)
    model = load_task_model(task, checkpoint, allow_non_finite=True)
    keras.config.set_dtype_policy(before)
    served = Int8Model(model) if int8 else model
    module = task.serving(served, WordPieceTokenizer(vocab, lower_case), length)
    if int8:
        module.stored = served.stored
    add_vocab(module, vocab, lower_case)
    card = model_card(
        output_dir,
        f"{task.name}, a fine-tuned BERT",
        "A SavedModel of a fine-tuned BERT that maps raw text to predictions; the tokenizer is "
        f"inside. {task.long_inputs.format(length)} TensorFlow Serving calls the "
        f"signature `serving_default`.{_STORED.get(precision, '')}",
        _EXAMPLE.format(call=task.example_call()),
        license=license,
        vocab=vocab,
        lower_case=lower_case,
        config=config,
        run=checkpoint.run,
        converted_from=f"{run_folder} ({checkpoint.format})" if checkpoint.format else None,
    )
    files = {CARD: card, WARMUP: warmup_requests(module.serving.input_signature)}
    save_folder(module, output_dir, {"serving_default": module.serving}, files)
    return task.example_call()


if __name__ == "__main__":
    command.run(__name__)

"""Exports a SavedModel that maps text to vectors.

  python -m export.embedder --output_dir=embedder \\
    --checkpoint=hf:sentence-transformers/all-MiniLM-L6-v2

--checkpoint is a sentence-transformers folder, whose pooling, normalization and length become those
of the SavedModel, or any other checkpoint (docs/checkpoints.md).

To use the result:

  import tensorflow as tf, tensorflow_text  # the latter registers operations
  embed = tf.saved_model.load("embedder")
  embed(["a text", "another"])["embedding"]  # [batch, hidden_size]
"""

from dataclasses import dataclass

from bert_tf.base import command
from bert_tf.base.choices import EMBEDDING_POOLINGS, SINGLE_LENGTH
from bert_tf.base.command import option
from bert_tf.base.command_help import command_line
from bert_tf.base.progress import for_caller, say
from bert_tf.inference.inference_options import TokenizerOptions
from export.export_options import ModelOptions


@dataclass(frozen=True, kw_only=True)
class Options(ModelOptions, TokenizerOptions):
    """The flags of the command."""

    checkpoint: str = option(
        help="A sentence-transformers folder, a run folder, or a checkpoint of "
        "another program (docs/checkpoints.md)."
    )
    pooling: str | None = option(
        None,
        "How to compute the vector: mean or max of the last layer's outputs for all tokens, or "
        "cls, its output for [CLS]. Default: as in the folder; otherwise mean.",
        choices=EMBEDDING_POOLINGS,
    )
    normalize: bool | None = option(
        None, "Divide each vector by its length. Default: as in the folder; otherwise no."
    )
    max_seq_length: int | None = option(
        None,
        "Tokens per text; longer texts are truncated. Default: as in the folder; otherwise 128, "
        "or the most that the model takes.",
        **SINGLE_LENGTH,
    )


def run(options: Options) -> None:
    """Exports the model, and prints what was written and what to run next."""
    from bert_tf.inference.models import load_tokenizer
    from bert_tf.inference.text_embedder import build_embedder, embedding_module, embedding_settings
    from bert_tf.weights.opening import open_checkpoint
    from export.saved_models import check_output
    from export.text_models import write_text_model

    check_output(options.output_dir)
    checkpoint = open_checkpoint(options.checkpoint, vocab_file=options.vocab_file)
    settings = embedding_settings(
        checkpoint, options.pooling, options.normalize, options.max_seq_length
    )
    tokenizer = load_tokenizer(checkpoint, options)
    head = settings.head
    pooling = f"{head.pooling} pooling{', a dense layer' if head.outputs else ''}"
    pooling += ", normalized" if head.normalize else ""
    write_text_model(
        options,
        checkpoint,
        tokenizer,
        lambda: build_embedder(checkpoint, settings),
        lambda model: embedding_module(model, tokenizer, settings.max_seq_length),
        kind="text to vectors",
        about=f"A SavedModel of a BERT that maps raw text to vectors ({pooling}); the tokenizer is "
        f"inside. Texts are truncated to {settings.max_seq_length} tokens. TensorFlow Serving "
        "calls the signature `serving_default`.",
        call='(["a text", "another"])["embedding"]',
    )
    size = head.outputs or checkpoint.spec.config.hidden_size
    print(f"Wrote {options.output_dir}: maps a text to {size} numbers, {pooling}.")
    check = command_line("export.check", saved_model_dir=options.output_dir)
    load = f'tf.saved_model.load({options.output_dir!r})(["a text"])["embedding"]'
    say(for_caller(f"Next: {check}", f"Try: {load}"))


if __name__ == "__main__":
    command.run(__name__)

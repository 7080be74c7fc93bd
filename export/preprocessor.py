"""Exports a SavedModel from text to the inputs of an encoder.

  python -m export.preprocessor --checkpoint=run --output_dir=preprocessor

It contains the tokenizer that the training data was created with. Without --checkpoint,
--vocab_file and --do_lower_case or --nodo_lower_case describe the tokenizer.

Use it with the SavedModel of export.encoder:

  import tensorflow_hub as hub, tensorflow_text  # registers the operations
  preprocessor = hub.load("preprocessor")
  inputs = preprocessor(["one text each"])
  pair = [preprocessor.tokenize(["a question"]), preprocessor.tokenize(["an answer"])]
  inputs = preprocessor.bert_pack_inputs(pair, seq_length=64)
"""

from dataclasses import dataclass

from bert_tf.base import command
from bert_tf.base.command import option
from bert_tf.base.command_help import command_line
from bert_tf.base.progress import say
from export.export_options import PreprocessorOptions

_EXAMPLE = """
import tensorflow as tf
import tensorflow_text  # registers the tokenizer's operations

preprocessor = tf.saved_model.load("FOLDER")
inputs = preprocessor(tf.constant(["a text", "another"]))  # for a call of the encoder

# Pairs of texts, and another length:
pair = [preprocessor.tokenize(tf.constant(texts)) for texts in (["a question"], ["an answer"])]
inputs = preprocessor.bert_pack_inputs(pair, seq_length=tf.constant(64))
"""


@dataclass(frozen=True, kw_only=True)
class Options(PreprocessorOptions):
    """The flags of the command."""

    checkpoint: str | None = option(
        None,
        "Run folder, a checkpoint in one, or a checkpoint of another program "
        "(docs/checkpoints.md), whose vocabulary and casing to use.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.checkpoint or self.vocab_file):
            raise ValueError("no vocabulary: give --checkpoint or --vocab_file")


def run(options: Options) -> None:
    """Exports the preprocessor, and prints what was written and what to run next."""
    print(write(options))
    check = command_line("export.check", saved_model_dir=options.output_dir)
    say(f"Next: {check}")


def write(options: Options) -> str:
    """Exports the preprocessor; returns a sentence that says what was written."""
    from bert_tf.text.sentencepiece import make_tokenizer
    from bert_tf.weights.opening import open_checkpoint
    from bert_tf.weights.resolving import check_length, fitting_length, resolve_vocab
    from export.preprocessor_module import PreprocessorModule
    from export.saved_models import casing_of, check_output, license_of, save_model

    check_output(options.output_dir)
    checkpoint, length = None, options.max_seq_length or 128
    if options.checkpoint:
        checkpoint = open_checkpoint(options.checkpoint, vocab_file=options.vocab_file)
        config = checkpoint.spec.config
        length = options.max_seq_length or fitting_length(config)
        check_length(config, length)
    vocab, lower_case = resolve_vocab(
        checkpoint, options.vocab_file, options.do_lower_case, options.replace_vocab
    )
    module = PreprocessorModule(make_tokenizer(vocab, lower_case), length)
    casing = casing_of(lower_case)
    save_model(
        module,
        module.__call__,
        options.output_dir,
        f"{casing} BERT preprocessor",
        f"Maps text to the inputs of a BERT encoder, of {length} tokens; `bert_pack_inputs` takes "
        "any length. A SavedModel with the interface of TensorFlow Hub's preprocessors.",
        _EXAMPLE,
        vocab,
        lower_case,
        license=license_of(options.license, checkpoint),
    )
    source = options.vocab_file or options.checkpoint
    return f"Wrote the {casing} preprocessor of {source} to {options.output_dir}."


if __name__ == "__main__":
    command.run(__name__)

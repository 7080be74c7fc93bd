"""Exports a pre-trained encoder as a SavedModel that hub.KerasLayer loads.

  python -m export.encoder --checkpoint=run --output_dir=encoder

where `run` is the output folder of run_pretraining. Together with the SavedModel of
export.preprocessor, in a tf_keras model:

  text = tf_keras.Input([], dtype=tf.string)
  outputs = hub.KerasLayer("encoder", trainable=True)(hub.KerasLayer("preprocessor")(text))
  outputs["pooled_output"]    # [batch, hidden_size]
  outputs["sequence_output"]  # [batch, seq_length, hidden_size]

hub.load("encoder").mlm(inputs) also takes masked_lm_positions and returns mlm_logits.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfrecords import command
from tfrecords.command import option
from tfrecords.command_line import command_line, unused_name

if TYPE_CHECKING:
    from bert_tf.models.pretrainer import BertPretrainer


@dataclass(frozen=True, kw_only=True)
class Options(command.Options):
    """The flags of the command."""

    checkpoint: str = option(
        help="Output folder of run_pretraining, one checkpoint in it, such as run/ckpt-1000, or a "
        "checkpoint of another program (docs/checkpoints.md)."
    )
    output_dir: str = option(help="Folder to write; must be new or empty.")
    vocab_file: str | None = option(
        None, help="The encoder's vocabulary. Needed only if the run does not hold it."
    )
    replace_vocab: bool = option(
        False,
        help="Use --vocab_file although the run has another vocabulary. Only correct if ids keep "
        "their meaning, for example if you renamed [unused] tokens.",
    )
    do_lower_case: bool | None = option(
        None, help="Whether the text is lower-cased. Needed only if the run does not state it."
    )


def run(options: Options) -> None:
    """Exports the encoder of a checkpoint.

    Raises:
        ValueError, OSError: one line that names the flag or file and what to do.
    """
    from bert_tf.checkpoint import open_checkpoint
    from bert_tf.models.pretrainer import BertPretrainer
    from bert_tf.resolution import resolve_vocab
    from bert_tf.weights.loading import load_weights
    from bert_tf.weights.names import part_of
    from tfrecords.writer import check_new_folder

    check_new_folder(options.output_dir)
    checkpoint = open_checkpoint(options.checkpoint, replace_vocab=options.replace_vocab)
    if "masked_lm" not in map(part_of, checkpoint.tensors):
        raise ValueError(
            f"{options.checkpoint} is a fine-tuning run: export it with export.classifier"
        )
    vocab_file, lower_case = resolve_vocab(
        checkpoint, options.vocab_file, options.do_lower_case, options.replace_vocab
    )
    # Outputs are float32, whatever the precision of training was.
    model = BertPretrainer(checkpoint.spec.config, dtype="float32")
    load_weights(checkpoint.path, checkpoint.tensors, model.weights)
    export_encoder(model, vocab_file, options.output_dir, do_lower_case=lower_case)
    casing = "uncased" if lower_case else "cased"
    preprocessor = command_line(
        "export.preprocessor",
        checkpoint=options.checkpoint,
        vocab_file=options.vocab_file,
        do_lower_case=options.do_lower_case,
        replace_vocab=options.replace_vocab or None,
        output_dir=unused_name("preprocessor"),
    )
    print(
        f"Wrote the {casing} encoder of {checkpoint.path} to {options.output_dir}.\n"
        f"Next: {preprocessor}"
    )


def export_encoder(
    model: "BertPretrainer", vocab_file: str, output_dir: str, *, do_lower_case: bool
) -> None:
    """Writes the encoder and masked-LM head of a pretrainer as a SavedModel.

    The interface is that of tensorflow/models `export_tfhub_lib.py`. Outputs have the compute type
    of `model`; users expect float32.

    Raises:
        ValueError: the vocabulary has more tokens than the model, or `output_dir` is not empty.
        OSError: `vocab_file` cannot be read or `output_dir` cannot be written.
    """
    from export.encoder_module import EncoderModule
    from export.saved_models import save_folder
    from tfrecords.vocabulary import load_vocab

    size = len(load_vocab(vocab_file))
    if size > model.config.vocab_size:
        raise ValueError(
            f"{vocab_file} has {size} tokens, more than the encoder's {model.config.vocab_size}: "
            "give the vocabulary it was trained with"
        )
    module = EncoderModule(model, vocab_file, do_lower_case)
    save_folder(module, output_dir, {"serving_default": module.serving})


def main() -> None:
    """Runs the command."""
    command.run(Options, run)


if __name__ == "__main__":
    main()

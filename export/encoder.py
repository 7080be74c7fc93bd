"""Exports a pre-trained encoder as a SavedModel that hub.KerasLayer loads.

  python -m export.encoder --checkpoint=OUTPUT_DIR --vocab_file=vocab.txt --output_dir=encoder

where OUTPUT_DIR is that of run_pretraining. Then, with the folder of export.preprocessor, in a
tf_keras model:

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

if TYPE_CHECKING:
    from bert_tf.models.pretrainer import BertPretrainer


@dataclass(frozen=True)
class Options(command.Options):
    """The flags."""

    checkpoint: str = option(
        help="Output folder of run_pretraining, or one checkpoint in it, such as DIR/ckpt-1000; "
        "bert_config.json must be in the same folder."
    )
    vocab_file: str = option(help="The vocabulary the encoder was trained with (vocab.txt).")
    output_dir: str = option(help="Folder to write; must be new or empty.")
    do_lower_case: bool = option(True, help="Whether the vocabulary is of lower-cased text.")


def run(options: Options) -> None:
    """Exports the encoder of a checkpoint.

    Raises:
        ValueError, OSError: one line that names the flag or file and what to do.
    """
    from bert_tf.models.pretrainer import BertPretrainer
    from bert_tf.training import checkpoints
    from bert_tf.weights.loading import load_weights
    from export import saved_models

    saved_models.check_new_folder(options.output_dir)
    checkpoint = checkpoints.latest_checkpoint(options.checkpoint)
    # Whatever precision trained it, outputs are float32.
    model = BertPretrainer(_config_beside(checkpoint), dtype="float32")
    load_weights(checkpoint, model.weights)
    export_encoder(model, options.vocab_file, options.output_dir, options.do_lower_case)
    print(f"Wrote the encoder of {checkpoint} to {options.output_dir}.")
    lower_case = "" if options.do_lower_case else " --nodo_lower_case"
    print(
        f"Next: python -m export.preprocessor --vocab_file={options.vocab_file}{lower_case} "
        "--output_dir=PREPROCESSOR_DIR"
    )


def export_encoder(
    model: "BertPretrainer", vocab_file: str, output_dir: str, do_lower_case: bool = True
) -> None:
    """Writes a pretrainer's encoder and masked-LM head as a SavedModel.

    The interface is that of tensorflow/models `export_tfhub_lib.py`; outputs have the compute type
    of `model`. Float32 is what users expect.

    Raises:
        ValueError: the vocabulary has more words than the model, or `output_dir` is not empty.
        OSError: `vocab_file` cannot be read or `output_dir` not be written.
    """
    from export import saved_models
    from export.encoder_module import EncoderModule
    from tfrecords.vocabulary import load_vocab

    words = len(load_vocab(vocab_file))
    if words > model.config.vocab_size:
        raise ValueError(
            f"{vocab_file} has {words} words, the encoder only {model.config.vocab_size}; give the "
            "vocabulary it was trained with"
        )
    module = EncoderModule(model, vocab_file, do_lower_case)
    saved_models.save_folder(module, output_dir, {"serving_default": module.serving})


def _config_beside(checkpoint: str):
    import os

    from bert_tf.config import BertConfig

    return BertConfig.from_json_file(os.path.join(os.path.dirname(checkpoint), "bert_config.json"))


def main() -> None:
    """The command."""
    command.run(Options, run)


if __name__ == "__main__":
    main()

"""Exports a preprocessor, from text to an encoder's inputs, as a SavedModel.

  python -m export.preprocessor --vocab_file=vocab.txt --output_dir=preprocessor

It holds the very tokenizer that made the training data. Use it with the folder of export.encoder:

  import tensorflow_hub as hub, tensorflow_text  # the latter registers the operations
  preprocessor = hub.load("preprocessor")
  inputs = preprocessor(["one text each"])
  pair = [preprocessor.tokenize(["a question"]), preprocessor.tokenize(["an answer"])]
  inputs = preprocessor.bert_pack_inputs(pair, seq_length=64)
"""

from dataclasses import dataclass

from tfrecords import command
from tfrecords.command import option


@dataclass(frozen=True)
class Options(command.Options):
    """The flags."""

    vocab_file: str = option(help="The vocabulary the encoder was trained with (vocab.txt).")
    output_dir: str = option(help="Folder to write; must be new or empty.")
    do_lower_case: bool = option(True, help="Lower-case the text; for uncased vocabularies.")
    max_seq_length: int = option(
        128, help="Length of the inputs made from single texts; bert_pack_inputs takes any."
    )


def run(options: Options) -> None:
    """Exports the preprocessor.

    Raises:
        ValueError, OSError: one line that names the flag or file and what to do.
    """
    from bert_tf.text.tokenizer import WordPieceTokenizer
    from export import saved_models
    from export.preprocessor_module import PreprocessorModule
    from tfrecords.vocabulary import load_vocab

    saved_models.check_new_folder(options.output_dir)
    tokenizer = WordPieceTokenizer(load_vocab(options.vocab_file), options.do_lower_case)
    module = PreprocessorModule(tokenizer, options.max_seq_length, options.vocab_file)
    signatures = {"serving_default": module.__call__}
    saved_models.save_folder(module, options.output_dir, signatures)
    print(f"Wrote the preprocessor to {options.output_dir}.")


def main() -> None:
    """The command."""
    command.run(Options, run)


if __name__ == "__main__":
    main()

"""Exports a preprocessor, from text to the inputs of an encoder, as a SavedModel.

  python -m export.preprocessor --checkpoint=run --output_dir=preprocessor

It contains the tokenizer that the training data was created with. Use it with the SavedModel of
export.encoder:

  import tensorflow_hub as hub, tensorflow_text  # the latter registers the operations
  preprocessor = hub.load("preprocessor")
  inputs = preprocessor(["one text each"])
  pair = [preprocessor.tokenize(["a question"]), preprocessor.tokenize(["an answer"])]
  inputs = preprocessor.bert_pack_inputs(pair, seq_length=64)

Without a run, --vocab_file and --do_lower_case or --nodo_lower_case describe the tokenizer.
"""

from dataclasses import dataclass

from tfrecords import command
from tfrecords.command import option


@dataclass(frozen=True, kw_only=True)
class Options(command.Options):
    """The flags of the command."""

    checkpoint: str | None = option(
        None, help="Run folder, or a checkpoint in one, whose vocabulary and casing to use."
    )
    output_dir: str = option(help="Folder to write; must be new or empty.")
    vocab_file: str | None = option(
        None, help="The encoder's vocabulary. Needed only if no run folder holds it."
    )
    replace_vocab: bool = option(
        False,
        help="Use --vocab_file although the run has another vocabulary. Only correct if ids keep "
        "their meaning, for example if you renamed [unused] tokens.",
    )
    do_lower_case: bool | None = option(
        None, help="Whether to lower-case the text. Needed only if no run folder states it."
    )
    max_seq_length: int | None = option(
        None,
        at_least=3,
        help="Length of the inputs for single texts; bert_pack_inputs takes any length. Default: "
        "128, or the most that the encoder takes.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.checkpoint or self.vocab_file):
            raise ValueError("no vocabulary: give --checkpoint or --vocab_file")


def run(options: Options) -> None:
    """Exports the preprocessor.

    Raises:
        ValueError, OSError: one line that names the flag or file and what to do.
    """
    from bert_tf.checkpoint import open_checkpoint
    from bert_tf.resolution import check_length, resolve_vocab
    from bert_tf.text.tokenizer import WordPieceTokenizer
    from export.preprocessor_module import PreprocessorModule
    from export.saved_models import save_folder
    from tfrecords.vocabulary import load_vocab
    from tfrecords.writer import check_new_folder

    check_new_folder(options.output_dir)
    checkpoint = (
        open_checkpoint(options.checkpoint, replace_vocab=options.replace_vocab)
        if options.checkpoint
        else None
    )
    length = options.max_seq_length or 128
    if checkpoint:
        config = checkpoint.spec.config
        length = options.max_seq_length or min(length, config.max_position_embeddings)
        check_length(config, length)
    vocab_file, lower_case = resolve_vocab(
        checkpoint, options.vocab_file, options.do_lower_case, options.replace_vocab
    )
    tokenizer = WordPieceTokenizer(load_vocab(vocab_file), lower_case)
    module = PreprocessorModule(tokenizer, length, vocab_file)
    save_folder(module, options.output_dir, {"serving_default": module.__call__})
    casing = "uncased" if lower_case else "cased"
    print(f"Wrote the {casing} preprocessor of {vocab_file} to {options.output_dir}.")


def main() -> None:
    """Runs the command."""
    command.run(Options, run)


if __name__ == "__main__":
    main()

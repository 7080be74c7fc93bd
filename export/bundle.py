"""Packages a model for publishing.

  python -m export.bundle --checkpoint=run --license=mit --output_dir=release
  python -m export.bundle --checkpoint=run --classifier=sst2 --output_dir=model

--checkpoint is a run folder of run_pretraining, or a checkpoint of another program
(docs/checkpoints.md). --classifier adds the model of a run of run_finetuning. The folder holds
  encoder, preprocessor, classifier  SavedModels
  encoder.tar.gz and so on           the same, for hub.load from a URL and for Kaggle Models
  huggingface                        the encoder for transformers
  bert_config.json, vocab.txt        its configuration and vocabulary
  README.md                          the model card: what it holds, and how to load it

docs/exports.md describes how to publish it. Archives of the same files have the same bytes.
"""

from dataclasses import dataclass

from bert_tf.base import command
from bert_tf.base.command import option
from bert_tf.base.progress import say
from export.export_options import PreprocessorOptions

_HOLDS = {
    "encoder": "SavedModel: token ids to contextual vectors",
    "preprocessor": "SavedModel: text to the inputs of the encoder",
    "classifier": "SavedModel: text to predictions",
    "huggingface": "the encoder for `transformers.AutoModel.from_pretrained`",
    "bert_config.json": "the configuration of the encoder",
    "vocab.txt": "its vocabulary",
    "spiece.model": "its vocabulary",
}
_EXAMPLE = """
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # registers the tokenizer's operations

folder = "FOLDER"
preprocessor, encoder = hub.load(f"{folder}/preprocessor"), hub.load(f"{folder}/encoder")
outputs = encoder(preprocessor(tf.constant(["a text", "another"])))
print(outputs["pooled_output"], outputs["sequence_output"])
"""


@dataclass(frozen=True, kw_only=True)
class Options(PreprocessorOptions):
    """The flags of the command."""

    checkpoint: str = option(
        help="Run folder of run_pretraining, or a checkpoint of another program "
        "(docs/checkpoints.md)."
    )
    classifier: str | None = option(
        None, "Run folder of run_finetuning: add its best weights, as a classifier."
    )


def run(options: Options) -> None:
    """Writes the folder, whole or not at all."""
    from bert_tf.base.output_files import whole_folder
    from export.saved_models import check_output, write_archive

    check_output(options.output_dir)
    with whole_folder(options.output_dir) as folder:
        models = _export(options, folder)
        archives = [f"{model}.tar.gz" for model in models]
        for model, archive in zip(models, archives, strict=True):
            say(f"Packing {archive} ...")
            write_archive(f"{folder}/{model}", f"{folder}/{archive}")
        others = _write_others(options, folder, models)
    print(f"Wrote {options.output_dir}: {', '.join([*models, *archives, *others])}.")


def _export(options: Options, folder: str) -> list[str]:
    """Writes the SavedModels; returns their names."""
    from export import classifier, encoder, preprocessor

    names = ("checkpoint", "vocab_file", "replace_vocab", "do_lower_case", "license")
    shared = {name: getattr(options, name) for name in names}
    say("Exporting encoder ...")
    encoder.write(encoder.Options(**shared, output_dir=f"{folder}/encoder"))
    say("Exporting preprocessor ...")
    length = options.max_seq_length
    preprocessor.write(
        preprocessor.Options(**shared, output_dir=f"{folder}/preprocessor", max_seq_length=length)
    )
    if not options.classifier:
        return ["encoder", "preprocessor"]
    say("Exporting classifier ...")
    path = f"{folder}/classifier"
    classifier.export_classifier(options.classifier, path, license=options.license)
    return ["encoder", "preprocessor", "classifier"]


def _write_others(options: Options, folder: str, models: list[str]) -> list[str]:
    """Writes what is beside the SavedModels; returns the names."""
    from bert_tf.base.output_files import atomic_write, make_folder
    from bert_tf.inference.models import with_parts
    from bert_tf.text.tokenizer_files import TokenizerFiles
    from bert_tf.weights.formats import huggingface
    from bert_tf.weights.opening import open_checkpoint
    from export.saved_models import CARD, casing_of, license_of, model_card
    from tfrecords.vocabulary import write_vocab

    encoder = open_checkpoint(f"{folder}/encoder")
    # Without a pooler that is random because the source has none.
    source = open_checkpoint(options.checkpoint, vocab_file=options.vocab_file)
    make_folder(f"{folder}/huggingface")
    huggingface.write(with_parts(encoder, source.parts), f"{folder}/huggingface")
    spec = encoder.spec
    write_vocab(f"{folder}/{spec.vocab.file_name}", spec.vocab)
    if spec.vocab.tokenizer_values():
        TokenizerFiles(folder).write(spec.vocab, spec.lower_case)
    spec.config.to_json_file(f"{folder}/bert_config.json")
    names = ["huggingface", "bert_config.json", spec.vocab.file_name]
    rows = "\n".join(f"| `{name}` | {_HOLDS[name]} |" for name in [*models, *names])
    card = model_card(
        options.output_dir,
        f"{casing_of(spec.lower_case)} BERT encoder",
        f"| | |\n|---|---|\n{rows}\n\nEvery SavedModel has a model card of its own, and is also "
        "an archive for `hub.load`, such as `hub.load('https://.../encoder.tar.gz')`.",
        _EXAMPLE,
        spec.vocab,
        spec.lower_case,
        license=license_of(options.license, source),
        config=spec.config,
    )
    atomic_write(f"{folder}/{CARD}", card)
    return [*names, CARD]


if __name__ == "__main__":
    command.run(__name__)

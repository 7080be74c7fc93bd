"""Exports a pre-trained encoder as a SavedModel that hub.KerasLayer loads.

  python -m export.encoder --checkpoint=run --output_dir=encoder

--checkpoint is a run folder of run_pretraining, or a checkpoint of another program
(docs/checkpoints.md). For serving, --precision=bfloat16 or float16 writes a folder of half the
size, and --precision=int8 one of a quarter.

Together with the SavedModel of export.preprocessor, in a tf_keras model:

  text = tf_keras.Input([], dtype=tf.string)
  outputs = hub.KerasLayer("encoder", trainable=True)(hub.KerasLayer("preprocessor")(text))
  outputs["pooled_output"]    # [batch, hidden_size]
  outputs["sequence_output"]  # [batch, seq_length, hidden_size]

hub.load("encoder").mlm(inputs) also takes masked_lm_positions and returns mlm_logits.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bert_tf.base import command
from bert_tf.base.command import option
from bert_tf.base.command_help import command_line, unused_name
from bert_tf.base.progress import for_caller, say
from export.export_options import ExportTokenizerOptions, ModelOptions

if TYPE_CHECKING:
    from bert_tf.models.bert_encoder import BertEncoder
    from bert_tf.models.pretrainer import BertPretrainer
    from tfrecords.vocabulary import Vocabulary

_EXAMPLE = """
import tensorflow as tf

encoder = tf.saved_model.load("FOLDER")
ids = tf.constant([[[CLS], [SEP]]])  # export.preprocessor's SavedModel makes them from text
inputs = {
    "input_word_ids": ids,
    "input_mask": tf.ones_like(ids),
    "input_type_ids": tf.zeros_like(ids),
}
outputs = encoder(inputs, training=False)
print(outputs["pooled_output"], outputs["sequence_output"])
"""


@dataclass(frozen=True, kw_only=True)
class Options(ModelOptions, ExportTokenizerOptions):
    """The flags of the command."""

    checkpoint: str = option(
        help="Run folder of run_pretraining, one checkpoint in it, such as run/ckpt-1000, or a "
        "checkpoint of another program (docs/checkpoints.md)."
    )


def run(options: Options) -> None:
    """Exports the encoder of a checkpoint, and prints what was written and what to run next."""
    print(write(options))
    preprocessor = command_line(
        "export.preprocessor",
        checkpoint=options.checkpoint,
        vocab_file=options.vocab_file,
        do_lower_case=options.do_lower_case,
        replace_vocab=options.replace_vocab or None,
        output_dir=unused_name("preprocessor"),
    )
    load = f"bert_tf.load_preprocessor({options.checkpoint!r})"
    say(for_caller(f"Next: {preprocessor}", f"Try: {load}"))


def write(options: Options) -> str:
    """Exports the encoder of a checkpoint; returns a sentence that says what was written."""
    from bert_tf.inference.models import with_parts
    from bert_tf.models.bert_encoder import BertEncoder
    from bert_tf.models.pretrainer import BertPretrainer
    from bert_tf.weights.checkpoint import load_or_warn
    from bert_tf.weights.names import part_of
    from bert_tf.weights.opening import open_checkpoint
    from bert_tf.weights.resolving import resolve_vocab
    from export.saved_models import casing_of, check_output, license_of

    check_output(options.output_dir)
    checkpoint = open_checkpoint(options.checkpoint, vocab_file=options.vocab_file)
    if "head" in checkpoint.parts:
        raise ValueError(
            f"{options.checkpoint} is a fine-tuned model: use export.classifier, or, for its "
            "encoder alone, first convert_checkpoint --to=run --allow_extra='task_model/*'"
        )
    vocab, lower_case = resolve_vocab(
        checkpoint, options.vocab_file, options.do_lower_case, options.replace_vocab
    )
    # Checkpoints of other programs may lack the heads of pre-training.
    kind = BertPretrainer if "masked_lm" in checkpoint.parts else BertEncoder
    # The precision of training does not matter.
    int8 = options.precision == "int8"
    model = kind(checkpoint.spec.config, dtype="float32" if int8 else options.precision)
    # The next-sentence head is not exported.
    weights = [weight for weight in model.weights if part_of(weight.path) != "next_sentence"]
    random = load_or_warn(with_parts(checkpoint, checkpoint.parts - {"next_sentence"}), weights)
    source = f"{options.checkpoint} ({checkpoint.format})" if checkpoint.format else None
    if "pooler" in random:
        source = f"{source or options.checkpoint}, which has no pooler: pooled_output is random"
    export_encoder(
        model,
        vocab,
        options.output_dir,
        do_lower_case=lower_case,
        int8=int8,
        license=license_of(options.license, checkpoint),
        run=checkpoint.run,
        converted_from=source,
    )
    return (
        f"Wrote the {casing_of(lower_case)} encoder of {checkpoint.path} to {options.output_dir}"
        f"{'' if kind is BertPretrainer else ', without the masked-LM head, which it lacks'}."
    )


def export_encoder(
    model: "BertPretrainer | BertEncoder",
    vocab: "Vocabulary | str",
    output_dir: str,
    *,
    do_lower_case: bool,
    int8: bool = False,
    **facts: Any,
) -> None:
    """Writes an encoder, with the masked-LM head of a pretrainer, as a SavedModel.

    The interface is that of tensorflow/models `export_tfhub_lib.py`. Weights and computation have
    the types of `model`; outputs are float32.

    Args:
        model: a pretrainer, or an encoder to export it without `mlm`.
        vocab: its vocabulary, or a vocab.txt.
        int8: whether to store the matrices of a float32 model in 8 bits.
        facts: what the model card says besides: the `license` of the weights, the `run` that
            trained them, and `converted_from`, the original checkpoint of another program.

    Example:
        model, tokenizer, config = bert_tf.load("run")
        export_encoder(model, tokenizer.vocab, "encoder", do_lower_case=tokenizer.lower_case)

    Raises:
        ValueError: the vocabulary has more tokens than the model, or `output_dir` is not empty.
        OSError: the vocabulary cannot be read, or `output_dir` cannot be written.
    """
    from bert_tf.weights.checkpoint import check_fits
    from export.encoder_module import EncoderModule
    from export.saved_models import CONFIG_COPY, casing_of, save_model
    from tfrecords.vocabulary import load_vocab

    vocab = load_vocab(vocab) if isinstance(vocab, str) else vocab
    config = model.config
    check_fits("the vocabulary", vocab, config, "the encoder")
    module = EncoderModule(model, vocab, do_lower_case, int8)
    save_model(
        module,
        module.serving,
        output_dir,
        f"{casing_of(do_lower_case)} BERT encoder",
        _about(model.compute_dtype, int8, hasattr(model, "masked_lm")),
        _EXAMPLE.replace("[CLS], [SEP]", f"{vocab.cls_id}, {vocab.sep_id}"),
        vocab,
        do_lower_case,
        config=config,
        files={CONFIG_COPY: json.dumps(config.to_dict(), indent=2) + "\n"},
        **facts,
    )


def _about(precision: str, int8: bool, has_head: bool) -> str:
    use = "It is for serving. To fine-tune, export in float32."
    if precision == "float32" and not int8:
        use = "Fine-tune it with `hub.KerasLayer(..., trainable=True)`."
    return (
        "A BERT encoder as a SavedModel with the interface of TensorFlow Hub's encoders"
        f"{', and with its masked-LM head as `mlm`' if has_head else ''}. It computes in "
        f"{precision}{' from matrices in 8 bits' if int8 else ''}; its outputs are float32. {use}"
    )


if __name__ == "__main__":
    command.run(__name__)

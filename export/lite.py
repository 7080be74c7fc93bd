"""Exports an encoder or a classifier as a LiteRT model, for small devices.

  python -m export.lite --checkpoint=run-sst2 --output_file=sst2.tflite --quantize=int8

--checkpoint is the output folder of run_finetuning, whose best weights become a model from token
ids to probabilities; or the output folder of run_pretraining, or a checkpoint of another program,
whose encoder is exported.

The model takes one example at a time, int32 [1, max_seq_length]: input_word_ids, input_mask and
input_type_ids. What turns text into them is not part of it. Its file is also a zip archive of
vocab.txt, tokenizer_config.json, classifier.json and labels.txt, for tokenization on the device
(docs/exports.md). In Python, predict does the tokenization:

  unzip sst2.tflite
  python -m bert_tf.predict --checkpoint=sst2.tflite "a moving film"

The command also runs the model and prints how much its outputs differ from the original's.
--evaluate measures both on the dev set of the fine-tuning run.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bert_tf.choices import SINGLE_LENGTH
from bert_tf.inference.inference_options import LITE
from tfrecords import command
from tfrecords.command import option, rare_option
from tfrecords.command_help import command_line
from tfrecords.progress import say

if TYPE_CHECKING:
    import keras

    from bert_tf.finetuning.features import Features
    from bert_tf.finetuning.tasks.text_task import TextTask
    from bert_tf.weights.checkpoint import Checkpoint


@dataclass(frozen=True, kw_only=True)
class Options(command.Options):
    """The flags of the command."""

    checkpoint: str = option(
        help="Output folder of run_finetuning or run_pretraining, or a checkpoint of another "
        "program (docs/checkpoints.md)."
    )
    output_file: str = option(help="The file to write; must be new, and end in .tflite.")
    quantize: str = option(
        "none",
        "How to store the weights. float16 halves the file. int8 quarters it, computes with "
        "8 bits and changes the outputs a little.",
        choices=("none", "float16", "int8"),
    )
    max_seq_length: int | None = option(
        None,
        "Tokens per example; shorter examples are padded and take as long. Default: as in a "
        "fine-tuning run; otherwise 128, or the most that the model takes.",
        **SINGLE_LENGTH,
    )
    evaluate: bool = option(
        False,
        "Measure the metrics of the new model and of the original on the dev set of the "
        "fine-tuning run. The data must still be where the run found it.",
    )
    pairs: bool = rare_option(
        False, "A model of another program classifies pairs of texts. The task of a run states it."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.output_file.endswith(LITE):
            raise ValueError(f"--output_file={self.output_file} must end in {LITE}")


@dataclass(frozen=True)
class _Source:
    """What to export.

    Attributes:
        checkpoint: where it comes from.
        length: tokens per example.
        function: maps the encoder's inputs to outputs by name.
        model: the model that `function` calls.
        task: what it was fine-tuned for; None for an encoder.
    """

    checkpoint: "Checkpoint"
    length: int
    function: Callable[[dict], dict]
    model: "keras.Model"
    task: "TextTask | None" = None


def run(options: Options) -> None:
    """Exports a model, compares it with the original, and prints what was written."""
    import tensorflow as tf

    from bert_tf.inference.lite import runner
    from bert_tf.training.strategy import set_precision
    from export import lite_model
    from tfrecords.writer import atomic_write

    path = options.output_file
    if tf.io.gfile.exists(path):
        raise ValueError(f"{path} exists: remove it or name another file")
    set_precision("float32")
    source = _open(options)
    checkpoint = source.checkpoint
    features = _dev_features(options.checkpoint, source) if options.evaluate else None
    weights, files = source.model.trainable_weights, _files(source)
    model = lite_model.convert(source.function, weights, source.length, options.quantize)
    data = lite_model.with_files(model, files)
    vocab_size, run_model = checkpoint.spec.config.vocab_size, runner(data)
    differences = lite_model.differences(source.function, run_model, vocab_size, source.length)
    atomic_write(path, data)
    kind, before = "classifier" if source.task else "encoder", 4 * source.model.count_params()
    shown = ", ".join(f"{name} {value:.2g}" for name, value in differences.items())
    print(
        f"Wrote the {kind} of {checkpoint.path} to {path}: {len(data) / 1e6:.2f} MB; its weights "
        f"are {before / 1e6:.2f} MB in float32. Inside: {', '.join(['the model', *files])}.\n"
        f"Largest differences from the model's outputs for random inputs: {shown}."
    )
    if features:
        print(_evaluation(source, features, run_model))
    say(_next(path, source))


def _open(options: Options) -> _Source:
    from bert_tf.checkpoint import open_checkpoint
    from bert_tf.finetuning.fine_tuned import open_fine_tuned
    from bert_tf.runs.run import Run

    path, length = options.checkpoint, options.max_seq_length
    if "task" not in Run(path).flags:
        checkpoint = open_checkpoint(path)
        if not checkpoint.head and not options.pairs:
            return _encoder(checkpoint, length)
    return _classifier(*open_fine_tuned(path, None, length, options.pairs))


def _encoder(checkpoint: "Checkpoint", length: int | None) -> _Source:
    from bert_tf.models.encoder import BertEncoder
    from bert_tf.resolution import check_length, fitting_length
    from bert_tf.weights.checkpoint import load_or_warn

    config = checkpoint.spec.config
    length = length or fitting_length(config)
    check_length(config, length)
    model = BertEncoder(config)
    load_or_warn(checkpoint, model.weights)

    def encode(inputs):
        outputs = model(inputs, training=False)
        return {name: outputs[name] for name in ("pooled_output", "sequence_output")}

    return _Source(checkpoint, length, encode, model)


def _classifier(checkpoint: "Checkpoint", task: "TextTask", length: int) -> _Source:
    import tensorflow as tf

    from bert_tf.finetuning.fine_tuned import load_task_model

    head = task.head
    if not head or head.kind != "classifier":
        raise ValueError(
            f"{checkpoint.path} is a model for {task.name}: of fine-tuned models, only those that "
            "predict classes or a number for a text or a pair of texts can be exported to LiteRT"
        )
    if not checkpoint.spec.config.has_layers:
        raise ValueError(
            f"{checkpoint.path} is a BiLSTM, which LiteRT cannot run: use export.classifier"
        )
    model = load_task_model(task, checkpoint, allow_non_finite=True)

    def classify(inputs):
        logits = model(inputs, training=False)
        if not head.labels:
            return {"value": logits}
        return {"probabilities": (tf.sigmoid if head.multi_label else tf.nn.softmax)(logits)}

    return _Source(checkpoint, length, classify, model, task)


def _dev_features(path: str, source: _Source) -> "Features":
    """Reads the dev set of a fine-tuning run."""
    import dataclasses

    from bert_tf.finetuning.fine_tune import read_features
    from bert_tf.finetuning.registry import options_of_run
    from bert_tf.runs.run import Run

    options = dataclasses.replace(options_of_run(Run(path)), max_seq_length=source.length)
    dev, spec = source.task.dev_splits[0], source.checkpoint.spec
    return read_features(options, source.task, spec, [dev], say)[dev]


def _evaluation(source: _Source, features: "Features", runner: Callable) -> str:
    """Returns a line that compares the metrics of the new model with those of the original."""
    import tensorflow as tf

    from export.lite_model import scores

    original = tf.function(lambda **inputs: source.function(inputs), autograph=False)
    theirs, ours = (scores(source.task, features, run) for run in (original, runner))
    shown = ", ".join(f"{name} {ours[name]:.4f} ({theirs[name]:.4f})" for name in ours)
    return (
        f"On {source.task.dev_set}, {len(features):,} examples, with the original's in "
        f"parentheses: {shown}."
    )


def _files(source: _Source) -> dict[str, str]:
    """Returns what the text side needs, as far as it is known: file name -> content."""
    from bert_tf.inference.lite import CLASSIFIER

    spec, task, files = source.checkpoint.spec, source.task, {}
    if spec.vocab:
        tokenizer = {"do_lower_case": spec.lower_case, "model_max_length": source.length}
        tokenizer |= spec.vocab.tokenizer_values()
        files["vocab.txt"] = spec.vocab.text
        files["tokenizer_config.json"] = json.dumps(tokenizer, indent=2) + "\n"
    if task:
        # The arguments of `classifier_task`.
        about = {"labels": task.head.labels, "pairs": task.pairs}
        if task.head.multi_label:
            about |= {"multi_label": True, "label_separator": task.separator}
        files[CLASSIFIER] = json.dumps(about, indent=2) + "\n"
        if task.head.labels:
            files["labels.txt"] = "".join(f"{label}\n" for label in task.head.labels)
    return files


def _next(path: str, source: _Source) -> str:
    """Returns how to run the model."""
    code = (
        "To run it:\n  import tensorflow as tf\n"
        f"  run = tf.lite.Interpreter({path!r}).get_signature_runner()\n"
        "  run(input_word_ids=..., input_mask=..., input_type_ids=...)  # int32 "
        f"[1, {source.length}]"
    )
    if not source.task:
        return code
    text = "One text. ||| Another." if source.task.pairs else "A text."
    return f"{code}\nNext: {command_line('bert_tf.predict', text, checkpoint=path)}"


if __name__ == "__main__":
    command.run(__name__)

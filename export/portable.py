"""What the exports to a single file have in common: what they read, compare and print.

Such a file holds an encoder, a classifier, a tagger or an embedder, and texts that say how to
tokenize.
"""

import dataclasses
import importlib
import json
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.command_help import command_line
from bert_tf.base.finite import check_computed
from bert_tf.base.output_files import atomic_write, check_can_write, check_free
from bert_tf.base.progress import progress_bar, say
from bert_tf.config import EMBEDDING
from bert_tf.finetuning.batches import eval_batches
from bert_tf.finetuning.fine_tuned import load_task_model, open_fine_tuned
from bert_tf.finetuning.preparing import read_features
from bert_tf.finetuning.registry import options_of_run
from bert_tf.finetuning.task import Task
from bert_tf.finetuning.tasks.tagging import TaggingTask
from bert_tf.finetuning.tasks.text_task import TextTask
from bert_tf.finetuning.tokenizing import Features
from bert_tf.inference.single_file import CLASSIFIER, FILE_FORMS, outputs_of
from bert_tf.inference.text_embedder import build_embedder, embedding_settings
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.models.inputs import INPUTS
from bert_tf.models.task_model import BertEmbedder
from bert_tf.runs.run import Run
from bert_tf.training.strategy import set_precision
from bert_tf.weights.checkpoint import Checkpoint, load_or_warn
from bert_tf.weights.formats.sentence_transformers import settings_of
from bert_tf.weights.opening import open_checkpoint
from bert_tf.weights.resolving import check_length, fitting_length
from export.export_options import SingleFileOptions

Function = Callable[[dict], dict[str, tf.Tensor]]


@dataclasses.dataclass(frozen=True)
class Source:
    """What to export: a function from the encoder's inputs to outputs by name, and its model."""

    checkpoint: Checkpoint
    length: int  # the tokens of an example
    function: Function
    model: keras.Model
    task: TextTask | TaggingTask | None = None  # None for encoders and embedders

    @property
    def kind(self) -> str:
        """What it is: of fine-tuned models, the kind of their head."""
        if self.task:
            return self.task.head.kind
        return EMBEDDING if isinstance(self.model, BertEmbedder) else "encoder"


def export_file(options: SingleFileOptions) -> None:
    """Exports a model, compares it with the original, and prints what was written."""
    path, (form, writer) = options.output_file, FILE_FORMS[options.ending]
    make_file = importlib.import_module(f"{writer}_model").make_file
    check_can_write(path)
    check_free(path, advice="remove it or name another file")
    set_precision("float32")
    source = _open(options)
    checkpoint = source.checkpoint
    features = _dev_features(options.checkpoint, source) if options.evaluate else None
    files = _files(source)
    data = make_file(source, files, options.quantize)
    vocab_size, run_model = checkpoint.spec.config.vocab_size, form(data).run
    found = largest_differences(source.function, run_model, vocab_size, source.length)
    atomic_write(path, data, overwrite=False)
    kind = "embedder" if source.kind == EMBEDDING else source.kind
    before = 4 * source.model.count_params()
    shown = ", ".join(f"{name} {value:.2g}" for name, value in found.items())
    print(
        f"Wrote the {kind} of {checkpoint.path} to {path}: {len(data) / 1e6:.2f} MB; its "
        f"weights are {before / 1e6:.2f} MB in float32. Inside: "
        f"{', '.join(['the model', *files])}.\n"
        f"Largest differences from the model's outputs for random inputs: {shown}."
    )
    if features:
        print(_evaluation(source, features, run_model))
    if CLASSIFIER in files:
        text = "One text. ||| Another." if getattr(source.task, "pairs", False) else "A text."
        say(f"Next: {command_line('bert_tf.predict', text, checkpoint=path)}")


def _open(options: SingleFileOptions) -> Source:
    path, length = options.checkpoint, options.max_seq_length
    run = Run(path)
    if "task" not in run.flags or (run.head and run.head.kind == EMBEDDING):
        checkpoint = open_checkpoint(path)
        head = checkpoint.head
        if not options.pairs and (not head or head.kind == EMBEDDING):
            make = _embedder if settings_of(checkpoint) else _encoder
            return make(checkpoint, length)
    return _predictor(*open_fine_tuned(path, None, length, options.pairs))


def _encoder(checkpoint: Checkpoint, length: int | None) -> Source:
    config = checkpoint.spec.config
    length = length or fitting_length(config)
    check_length(config, length)
    model = BertEncoder(config)
    load_or_warn(checkpoint, model.weights)

    def encode(inputs):
        outputs = model(inputs, training=False)
        return {name: outputs[name] for name in ("pooled_output", "sequence_output")}

    return Source(checkpoint, length, encode, model)


def _embedder(checkpoint: Checkpoint, length: int | None) -> Source:
    settings = embedding_settings(checkpoint, None, None, length)
    model = build_embedder(checkpoint, settings)

    def embed(inputs):
        return {"embedding": model(inputs, training=False)}

    return Source(checkpoint, settings.max_seq_length, embed, model)


def _predictor(checkpoint: Checkpoint, task: TextTask | TaggingTask, length: int) -> Source:
    head = task.head
    if not head or head.kind not in ("classifier", "tagger"):
        raise ValueError(
            f"{checkpoint.path} is a model for {task.name}, but only models that predict classes, "
            "a number, tags or vectors fit in a single file: use export.classifier"
        )
    if not checkpoint.spec.config.has_layers or getattr(task, "feature_based", None):
        raise ValueError(f"{checkpoint.path} has LSTMs: use export.classifier")
    model = load_task_model(task, checkpoint, allow_non_finite=True)

    def classify(inputs):
        logits = model(inputs, training=False)
        if not head.labels:
            return {"value": logits}
        if head.kind == "classifier":
            logits = tf.reshape(logits, [-1, len(head.labels)])
        return {"probabilities": (tf.sigmoid if head.multi_label else tf.nn.softmax)(logits)}

    return Source(checkpoint, length, classify, model, task)


def _dev_features(path: str, source: Source) -> Features:
    """Reads the dev set of a fine-tuning run."""
    if source.kind == EMBEDDING:
        raise ValueError("--evaluate is not for models that compute vectors: omit it")
    options = dataclasses.replace(options_of_run(Run(path)), max_seq_length=source.length)
    dev, spec = source.task.dev_splits[0], source.checkpoint.spec
    return read_features(options, source.task, spec, [dev], say)[dev]


def _evaluation(source: Source, features: Features, run: Callable[[dict], dict]) -> str:
    """Returns a line that compares the metrics of the new model with those of the original."""
    original = tf.function(source.function, autograph=False)
    theirs, ours = (scores(source.task, features, function) for function in (original, run))
    shown = ", ".join(f"{name} {ours[name]:.4f} ({theirs[name]:.4f})" for name in ours)
    return (
        f"On {source.task.dev_set}, {len(features):,} examples, with the original's in "
        f"parentheses: {shown}."
    )


def _files(source: Source) -> dict[str, str]:
    """Returns what the text side needs, as far as it is known: file name -> content."""
    spec, task, files = source.checkpoint.spec, source.task, {}
    if spec.vocab:
        tokenizer = {"do_lower_case": spec.lower_case, "model_max_length": source.length}
        tokenizer |= spec.vocab.tokenizer_values()
        files["vocab.txt"] = spec.vocab.text
        files["tokenizer_config.json"] = json.dumps(tokenizer, indent=2) + "\n"
    labels = task.head.labels if task else ()
    if source.kind != "encoder":
        about = {"labels": labels, "kind": source.kind}
        if source.kind == "classifier":
            about["pairs"] = task.pairs
        if task and task.head.multi_label:
            about |= {"multi_label": True, "label_separator": task.separator}
        files[CLASSIFIER] = json.dumps(about, indent=2) + "\n"
    if labels:
        files["labels.txt"] = "".join(f"{label}\n" for label in labels)
    return files


def largest_differences(
    function: Function, run: Callable[[dict], dict], vocab_size: int, length: int
) -> dict[str, float]:
    """Returns the largest difference of two models on a few random inputs, for each output."""
    largest: dict[str, float] = {}
    for seed in range(4):
        inputs = random_inputs(vocab_size, length, seed)
        found = run(inputs)
        for name, expected in function(inputs).items():
            difference = np.max(np.abs(found[name] - expected))
            # Unlike `max`, it keeps NaN.
            largest[name] = float(np.maximum(largest.get(name, 0.0), difference))
    return largest


def random_inputs(vocab_size: int, length: int, seed: int) -> dict[str, np.ndarray]:
    """Returns random tokens in two segments, and padding: int32 [1, length] by name."""
    random = np.random.default_rng(seed)
    tokens = random.integers(2, length + 1)
    mask = np.arange(length) < tokens
    ids = random.integers(0, vocab_size, length) * mask
    types = (np.arange(length) >= random.integers(1, tokens)) * mask
    return {n: x[None].astype(np.int32) for n, x in zip(INPUTS, (ids, mask, types), strict=True)}


def scores(task: Task, features: Features, run: Callable[[dict], dict]) -> dict[str, float]:
    """Returns the metrics of a function for a split.

    It maps the encoder's inputs, int32 [1, length] by name, to `probabilities` or a `value`.
    """
    rows: dict[int, np.ndarray] = {}
    # Like a TPU, the model has one length.
    batches = eval_batches(features, 1, device="TPU")
    bar = dict(total=len(features), desc="Evaluating", unit="example", leave=False)
    for batch in progress_bar(iterable=batches, **bar):
        found = run({name: batch[name].numpy() for name in INPUTS})
        row = outputs_of(found, task.head)[0]
        rows[int(batch["example_index"][0])] = (
            row[: int(tf.reduce_sum(batch["input_mask"]))] if task.token_outputs else row
        )
    values = [rows[index] for index in range(len(features))]
    values = values if task.token_outputs else np.stack(values)
    outputs = {"logits" if task.head.labels else "values": values}
    check_computed(outputs)
    return task.score(task.decode(outputs, features), features)

"""Converts functions of Keras models to LiteRT, and compares the result with them."""

import io
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf

from bert_tf.finetuning.batches import eval_batches
from bert_tf.finetuning.features import Features
from bert_tf.finetuning.task import Task
from bert_tf.finite import check_computed
from bert_tf.inference.lite import outputs_of, silent
from bert_tf.models.inputs import INPUTS
from tfrecords.progress import progress_bar

Function = Callable[[dict], dict[str, tf.Tensor]]


def convert(
    function: Function, weights: Sequence[keras.Variable], length: int, quantize: str = "none"
) -> bytes:
    """Returns the LiteRT model of a function.

    Args:
        function: maps the encoder's inputs, int32 [1, length], to float32 tensors by name.
        weights: the variables that it uses.
        length: tokens per example.
        quantize: how the weights are stored: "none" (float32), "float16", or "int8", LiteRT's
            dynamic-range quantization, which also computes in 8 bits and quantizes the inputs of
            matrix products as it runs.
    """
    module = tf.Module()
    module.weights = [weight.value for weight in weights]
    signature = {name: tf.TensorSpec([1, length], tf.int32, name) for name in INPUTS}
    serving = tf.function(function, input_signature=[signature], autograph=False)
    with tempfile.TemporaryDirectory() as folder, silent():
        # Without a SavedModel, the converter loses the variables.
        tf.saved_model.save(module, folder, signatures=serving.get_concrete_function())
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        if quantize != "none":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if quantize == "float16":
            converter.target_spec.supported_types = [tf.float16]
        return converter.convert()


def differences(
    function: Function, run: Callable, vocab_size: int, length: int
) -> dict[str, float]:
    """Returns the largest difference between a function and its LiteRT model, for each output.

    Both get a few random inputs; `run` is what `bert_tf.inference.lite.runner` returned.
    """
    largest: dict[str, float] = {}
    for seed in range(4):
        inputs = random_inputs(vocab_size, length, seed)
        found = run(**inputs)
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
    """Returns the metrics of a function for a split, one example at a time.

    Args:
        features: the split; its `max_seq_length` is the length of the inputs.
        run: maps the encoder's inputs, int32 [1, length] by name, to `probabilities` or a `value`.
    """
    rows: dict[int, np.ndarray] = {}
    batches = eval_batches(features, 1, static_length=True)
    bar = dict(total=len(features), desc="Evaluating", unit="example", leave=False)
    for batch in progress_bar(iterable=batches, **bar):
        found = run(**{name: batch[name].numpy() for name in INPUTS})
        rows[int(batch["example_index"][0])] = outputs_of(found, task.head)[0]
    values = np.stack([rows[index] for index in range(len(features))])
    outputs = {"logits" if task.head.labels else "values": values}
    check_computed(outputs)
    return task.score(task.decode(outputs, features), features)


def with_files(model: bytes, files: Mapping[str, str]) -> bytes:
    """Appends text files to a model, as a zip archive that LiteRT does not read."""
    target = io.BytesIO(model)
    with zipfile.ZipFile(target, "a") as archive:
        for name, text in files.items():
            # A ZipInfo has no time of its own: the same files give the same bytes.
            archive.writestr(zipfile.ZipInfo(name), text)
    return target.getvalue()

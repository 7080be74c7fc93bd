"""Converts encoders, classifiers, taggers and embedders to LiteRT."""

import io
import tempfile
import zipfile
from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from bert_tf.base.process import silent
from bert_tf.models.inputs import INPUTS
from export.portable import Function, Source


def make_file(source: Source, texts: Mapping[str, str], quantize: str) -> bytes:
    """Returns the LiteRT model of a source, with texts behind it."""
    weights = source.model.weights
    return with_files(to_lite(source.function, weights, source.length, quantize), texts)


def to_lite(
    function: Function, weights: Sequence[keras.Variable], length: int, quantize: str = "none"
) -> bytes:
    """Returns the LiteRT model of a function of the encoder's inputs, int32 [1, length].

    "int8" is LiteRT's dynamic-range quantization, which also computes in 8 bits and quantizes the
    inputs of matrix products as it runs.
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


def with_files(model: bytes, files: Mapping[str, str]) -> bytes:
    """Appends text files to a model, as a zip archive that LiteRT does not read."""
    target = io.BytesIO(model)
    with zipfile.ZipFile(target, "a") as archive:
        for name, text in files.items():
            # A ZipInfo has no time of its own: the same files give the same bytes.
            archive.writestr(zipfile.ZipInfo(name), text)
    return target.getvalue()

"""The points of an encoder: the interface of TensorFlow Hub's text encoders.

Source: tensorflow/hub docs/reusable_saved_models.md, docs/common_saved_model_apis/text.md;
tensorflow/models official/nlp/tools/export_tfhub_lib.py.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.weights.formats.saved_model import read_asset
from export.card import CONFIG_COPY
from export.checks.points import Point, Subject, differences, largest_difference, saved_again

NAMES = ("default", "encoder_outputs", "pooled_output", "sequence_output")


def example_inputs(subject: Subject, batch: int = 2, length: int = 6) -> dict[str, tf.Tensor]:
    """Returns random tokens of the vocabulary in two segments, without padding."""
    ids = np.random.default_rng(0).integers(0, num_tokens(subject), (batch, length))
    types = np.tile(np.arange(length) >= length // 2, (batch, 1))
    values = {"input_word_ids": ids, "input_mask": np.ones_like(ids), "input_type_ids": types}
    return {name: tf.constant(value, tf.int32) for name, value in values.items()}


def num_tokens(subject: Subject) -> int:
    """Returns the size of the vocabulary."""
    try:
        return len(read_asset(_vocab_path(subject.model)))
    except (AttributeError, ValueError, OSError):
        return 5  # a point of its own reports this


def _vocab_path(model: Any) -> str:
    return model.vocab_file.asset_path.numpy().decode()


def _tolerance(subject: Subject) -> float:
    exact = all(v.dtype != tf.bfloat16 and v.dtype != tf.float16 for v in subject.model.variables)
    return 1e-3 if exact else 0.3


def compare(subject: Subject, found: Any, expected: Any) -> str:
    """Says by how much two outputs differ if it is more than rounding; "" otherwise."""
    difference = largest_difference(found, expected)
    return f"a difference of {difference:.2g}" if difference > _tolerance(subject) else ""


def _outputs(subject: Subject) -> str:
    missing = set(NAMES) - set(subject.model(example_inputs(subject)))
    return f"no {', '.join(sorted(missing))}" if missing else ""


def _shapes(subject: Subject, batch: int = 2, length: int = 6) -> str:
    outputs = subject.model(example_inputs(subject, batch, length))
    hidden = outputs["pooled_output"].shape[-1]
    sequence, pooled = (batch, length, hidden), (batch, hidden)
    tensors = {name: outputs[name] for name in ("pooled_output", "default", "sequence_output")}
    layers = outputs["encoder_outputs"]
    if not isinstance(layers, list | tuple):
        return f"encoder_outputs is a {type(layers).__name__}"
    tensors |= {f"encoder_outputs[{index}]": layer for index, layer in enumerate(layers)}
    shapes = dict.fromkeys(tensors, sequence) | {"pooled_output": pooled, "default": pooled}
    found = {name: (tuple(x.shape), x.dtype.name) for name, x in tensors.items()}
    return differences(found, {name: (shape, "float32") for name, shape in shapes.items()})


def _any_shape(subject: Subject) -> str:
    longest = [v.shape[0] for v in subject.model.variables if "position_embedding" in v.name]
    found = (
        f"for {batch} of {length} tokens: {problem}"
        for batch, length in ((1, 1), (3, 7), *((1, most) for most in longest))
        if (problem := _shapes(subject, batch, length))
    )
    return next(found, "")


def _aliases(subject: Subject) -> str:
    outputs = subject.model(example_inputs(subject))
    found = [outputs["default"], outputs["encoder_outputs"][-1]]
    return compare(subject, found, [outputs["pooled_output"], outputs["sequence_output"]])


def _padding(subject: Subject) -> str:
    inputs = example_inputs(subject)
    padded = {name: tf.pad(value, [(0, 1), (0, 3)]) for name, value in inputs.items()}
    outputs, expected = subject.model(padded), subject.model(inputs)
    found = [outputs["pooled_output"][:2], outputs["sequence_output"][:2, :6]]
    return compare(subject, found, [expected["pooled_output"], expected["sequence_output"]])


def _training(subject: Subject) -> str:
    inputs = example_inputs(subject)
    subject.model(inputs, training=True)
    still = [subject.model(inputs)["default"], subject.model(inputs, training=False)["default"]]
    return compare(subject, *still)


def _dropout(subject: Subject) -> str:
    config = own_config(subject)
    if config and not (config.hidden_dropout_prob or config.attention_probs_dropout_prob):
        return ""
    first, second = (
        subject.model(example_inputs(subject), training=True)["default"] for _ in range(2)
    )
    return "" if largest_difference(first, second) else "the same outputs in two calls"


def own_config(subject: Subject) -> BertConfig | None:
    """Returns the configuration that bert_tf writes into its exports; None for other exports."""
    path = f"{subject.folder}/{CONFIG_COPY}"
    return BertConfig.from_json_file(path) if tf.io.gfile.exists(path) else None


def _variable_lists(subject: Subject) -> str:
    model = subject.model
    ids = {id(variable) for variable in model.variables}
    if not model.trainable_variables:
        return "no trainable variable"
    if stray := [v.name for v in model.trainable_variables if id(v) not in ids]:
        return f"{', '.join(stray[:3])} in trainable_variables only"
    if fixed := [v.name for v in model.trainable_variables if not v.trainable]:
        return f"{', '.join(fixed[:3])} in trainable_variables, but not trainable"
    values = [loss() for loss in model.regularization_losses]
    return "" if all(value.shape == () for value in values) else "losses that are not scalars"


def _gradients(subject: Subject) -> str:
    inputs = example_inputs(subject)
    return without_gradient(subject.model, inputs, ("pooled_output", "sequence_output"))


def without_gradient(model: Any, inputs: dict[str, tf.Tensor], outputs: Sequence[str]) -> str:
    """Says which trainable variables get no gradient in training; "" if all get one."""
    variables = list(model.trainable_variables)
    with tf.GradientTape() as tape:
        predictions = model(inputs, training=True)
        loss = sum(tf.reduce_sum(predictions[name]) for name in outputs)
    gradients = tape.gradient(loss, variables)
    without = [v.name for v, x in zip(variables, gradients, strict=True) if x is None]
    return f"{', '.join(without[:3])} without a gradient" if without else ""


def _keras_layer(subject: Subject) -> str:
    import tensorflow_hub as hub

    layer = hub.KerasLayer(subject.model, trainable=True)
    layer(example_inputs(subject), training=True)
    found, expected = len(layer.trainable_weights), len(subject.model.trainable_variables)
    return "" if found == expected else f"{found} trainable weights, not {expected}"


def _vocabulary(subject: Subject) -> str:
    path, casing = _vocab_path(subject.model), subject.model.do_lower_case
    if not path.startswith(f"{subject.folder.rstrip('/')}/assets/"):
        return f"vocab_file at {path}"
    read_asset(path)  # raises an error for any other file
    return differences(
        {"the type of do_lower_case": casing.dtype, "its trainable": casing.trainable},
        {"the type of do_lower_case": tf.bool, "its trainable": False},
    )


def _serving(subject: Subject) -> str:
    inputs = example_inputs(subject)
    served = subject.signature(**inputs).values()
    outputs = subject.model(inputs)
    for name in ("pooled_output", "sequence_output"):
        same = [x for x in served if x.shape == outputs[name].shape]
        if not any(largest_difference(x, outputs[name]) <= _tolerance(subject) for x in same):
            return f"no output that equals {name}"
    return ""


def _readable(subject: Subject) -> str:
    names = set(subject.signature.structured_outputs)
    missing = {"default", "pooled_output", "sequence_output"} - names
    return f"{', '.join(sorted(names))}" if missing else ""


def _stored_once(subject: Subject) -> str:
    reader = tf.train.load_checkpoint(f"{subject.folder}/variables/variables")
    shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    stored = sum(
        int(np.prod(shapes[key])) * types[key].size for key in shapes if types[key] != tf.string
    )
    lists = [subject.model.variables, getattr(subject.model, "mlm", subject.model).variables]
    variables = {id(v): v for values in lists for v in values}.values()
    needed = sum(int(np.prod(v.shape)) * v.dtype.size for v in variables)
    if stored <= needed * 1.01 + 1024:
        return ""
    return f"{stored:,} bytes of weights on disk, but {needed:,} bytes of variables"


def _moves(subject: Subject) -> str:
    def use(model: Any, folder: str) -> str:
        inputs = example_inputs(subject)
        path = _vocab_path(model)
        if not path.startswith(folder):
            return f"the vocabulary at {path}"
        return compare(subject, model(inputs), subject.model(inputs))

    return saved_again(subject, use)


POINTS = (
    Point(
        "a call maps a dict of input_word_ids, input_mask and input_type_ids, int32 [batch, "
        f"seq_length], to a dict of {', '.join(NAMES)}",
        _outputs,
    ),
    Point(
        "outputs are float32: pooled_output [batch, hidden], sequence_output [batch, seq_length, "
        "hidden], encoder_outputs a list with one such tensor per layer",
        _shapes,
    ),
    Point("any batch size works, and any length up to the number of positions", _any_shape),
    Point("default is pooled_output; the last of encoder_outputs is sequence_output", _aliases),
    Point("padding and other rows of the batch change nothing", _padding),
    Point(
        "training may be True or False; with False, the default, outputs are deterministic",
        _training,
    ),
    Point("training=True applies dropout", _dropout, required=False),
    Point("variables, trainable_variables and regularization_losses are lists", _variable_lists),
    Point("every trainable variable gets a gradient", _gradients),
    Point("hub.KerasLayer(..., trainable=True) takes the model", _keras_layer),
    Point(
        "vocab_file is a vocabulary in assets, and do_lower_case a boolean variable that is not "
        "trainable",
        _vocabulary,
    ),
    Point("serving_default takes the same inputs and gives the same outputs", _serving),
    Point(
        "the outputs of serving_default are named default, pooled_output and sequence_output",
        _readable,
        required=False,
    ),
    Point("the variables file holds every weight once", _stored_once),
    Point("saved again, moved and loaded, the model gives the same outputs", _moves),
)


def points(subject: Subject) -> list[Point]:
    """Returns the points of an encoder.

    An encoder need not ignore padding if its configuration says so.
    """
    config = own_config(subject)
    skipped = _padding if config and config.reads_padding else None
    return [point for point in POINTS if point.problem is not skipped]

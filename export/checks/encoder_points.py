"""The points of an encoder: the interface of TensorFlow Hub's text encoders.

Source: tensorflow/hub docs/reusable_saved_models.md, docs/common_saved_model_apis/text.md;
tensorflow/models official/nlp/tools/export_tfhub_lib.py.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.models.inputs import POSITIONS
from bert_tf.weights.formats.saved_model import read_asset
from export.checks import points as shared
from export.checks.points import Point, Points, Subject, expect

NAMES = ("default", "encoder_outputs", "pooled_output", "sequence_output")
# Those of the encoder itself, and of its sub-object for masked tokens.
POINTS, MLM_POINTS = Points(), Points()
_NO_HEAD = Point("mlm", "mlm predicts masked tokens", lambda _: expect(False, "no mlm"), False)


def points(subject: Subject) -> list[Point]:
    """Returns the points of an encoder, which need not ignore padding if it says so."""
    skipped = "padding" if subject.config and subject.config.reads_padding else ""
    head = MLM_POINTS if hasattr(subject.model, "mlm") else [_NO_HEAD]
    return [point for point in POINTS if point.name != skipped] + head


def _inputs(subject: Subject, batch: int = 2, length: int = 6) -> dict[str, tf.Tensor]:
    """Returns random tokens of the vocabulary in two segments, without padding."""
    ids = np.random.default_rng(0).integers(0, _num_tokens(subject), (batch, length))
    types = np.tile(np.arange(length) >= length // 2, (batch, 1))
    values = {"input_word_ids": ids, "input_mask": np.ones_like(ids), "input_type_ids": types}
    return {name: tf.constant(value, tf.int32) for name, value in values.items()}


def _num_tokens(subject: Subject) -> int:
    try:
        return len(read_asset(_vocab_path(subject.model)))
    except (AttributeError, ValueError, OSError):
        return 5  # a point of its own reports this


def _vocab_path(model: Any) -> str:
    return model.vocab_file.asset_path.numpy().decode()


def _tolerance(subject: Subject) -> float:
    types = {variable.dtype for variable in subject.model.variables}
    return 0.3 if types & {tf.bfloat16, tf.float16} else 1e-3


def _expect_close(subject: Subject, found: Any, expected: Any) -> None:
    """Expects two outputs to differ by no more than rounding."""
    difference = shared.largest_difference(found, expected)
    expect(not difference > _tolerance(subject), f"a difference of {difference:.2g}")


def _expect_gradients(model: Any, inputs: dict[str, tf.Tensor], outputs: Sequence[str]) -> None:
    """Expects all trainable variables to get a gradient in training."""
    variables = list(model.trainable_variables)
    with tf.GradientTape() as tape:
        predictions = model(inputs, training=True)
        loss = sum(tf.reduce_sum(predictions[name]) for name in outputs)
    gradients = tape.gradient(loss, variables)
    without = [v.name for v, x in zip(variables, gradients, strict=True) if x is None]
    expect(not without, f"{', '.join(without[:3])} without a gradient")


@POINTS(
    "a call maps a dict of input_word_ids, input_mask and input_type_ids, int32 [batch, "
    "seq_length], to float32 pooled_output and default [batch, hidden], sequence_output [batch, "
    "seq_length, hidden] and encoder_outputs, a list with one such tensor per layer"
)
def outputs(subject: Subject, batch: int = 2, length: int = 6) -> None:
    tensors = dict(subject.model(_inputs(subject, batch, length)))
    shared.expect_names(NAMES, tensors)
    layers = tensors.pop("encoder_outputs")
    expect(isinstance(layers, list | tuple), f"encoder_outputs is a {type(layers).__name__}")
    hidden = tensors["pooled_output"].shape[-1]
    expected = dict.fromkeys(("pooled_output", "default"), (batch, hidden))
    expected["sequence_output"] = (batch, length, hidden)
    for index, layer in enumerate(layers):
        name = f"encoder_outputs[{index}]"
        tensors[name], expected[name] = layer, (batch, length, hidden)
    shared.expect_tensors(tensors, expected, "float32")


@POINTS("any batch size works, and any length up to the number of positions")
def any_shape(subject: Subject) -> None:
    longest = [v.shape[0] for v in subject.model.variables if "position_embedding" in v.name]
    for batch, length in ((1, 1), (3, 7), *((1, most) for most in longest)):
        outputs(subject, batch, length)


@POINTS("default is pooled_output; the last of encoder_outputs is sequence_output")
def aliases(subject: Subject) -> None:
    outputs = subject.model(_inputs(subject))
    found = [outputs["default"], outputs["encoder_outputs"][-1]]
    _expect_close(subject, found, [outputs["pooled_output"], outputs["sequence_output"]])


@POINTS("padding and other rows of the batch change nothing")
def padding(subject: Subject) -> None:
    inputs = _inputs(subject)
    padded = {name: tf.pad(value, [(0, 1), (0, 3)]) for name, value in inputs.items()}
    outputs, expected = subject.model(padded), subject.model(inputs)
    found = [outputs["pooled_output"][:2], outputs["sequence_output"][:2, :6]]
    _expect_close(subject, found, [expected["pooled_output"], expected["sequence_output"]])


@POINTS("training may be True or False; with False, the default, outputs are deterministic")
def training(subject: Subject) -> None:
    inputs = _inputs(subject)
    subject.model(inputs, training=True)
    still = [subject.model(inputs)["default"], subject.model(inputs, training=False)["default"]]
    _expect_close(subject, *still)


@POINTS("training=True applies dropout", required=False)
def training_dropout(subject: Subject) -> None:
    config = subject.config
    if config and not (config.hidden_dropout_prob or config.attention_probs_dropout_prob):
        return
    pair = [subject.model(_inputs(subject), training=True)["default"] for _ in range(2)]
    expect(shared.largest_difference(*pair), "the same outputs in two calls")


@POINTS("variables, trainable_variables and regularization_losses are lists")
def variable_lists(subject: Subject) -> None:
    model = subject.model
    ids = {id(variable) for variable in model.variables}
    expect(model.trainable_variables, "no trainable variable")
    stray = [v.name for v in model.trainable_variables if id(v) not in ids]
    expect(not stray, f"{', '.join(stray[:3])} in trainable_variables only")
    fixed = [v.name for v in model.trainable_variables if not v.trainable]
    expect(not fixed, f"{', '.join(fixed[:3])} in trainable_variables, but not trainable")
    scalars = all(loss().shape == () for loss in model.regularization_losses)
    expect(scalars, "losses that are not scalars")


@POINTS("every trainable variable gets a gradient")
def gradients(subject: Subject) -> None:
    _expect_gradients(subject.model, _inputs(subject), ("pooled_output", "sequence_output"))


@POINTS("hub.KerasLayer(..., trainable=True) takes the model")
def encoder_layer(subject: Subject) -> None:
    import tensorflow_hub as hub

    layer = hub.KerasLayer(subject.model, trainable=True)
    layer(_inputs(subject), training=True)
    found, expected = len(layer.trainable_weights), len(subject.model.trainable_variables)
    expect(found == expected, f"{found} trainable weights, not {expected}")


@POINTS(
    "vocab_file is a vocabulary in assets, and do_lower_case a boolean variable that is not "
    "trainable"
)
def vocabulary(subject: Subject) -> None:
    path, casing = _vocab_path(subject.model), subject.model.do_lower_case
    expect(path.startswith(f"{subject.folder.rstrip('/')}/assets/"), f"vocab_file at {path}")
    read_asset(path)  # raises an error for any other file
    shared.expect_equal(
        {"the type of do_lower_case": casing.dtype, "its trainable": casing.trainable},
        {"the type of do_lower_case": tf.bool, "its trainable": False},
    )


@POINTS("serving_default takes the same inputs and gives the same outputs")
def encoder_serving(subject: Subject) -> None:
    inputs = _inputs(subject)
    outputs = subject.model(inputs)
    expected = {name: outputs[name] for name in ("pooled_output", "sequence_output")}

    def same(a: tf.Tensor, b: tf.Tensor) -> bool:
        return a.shape == b.shape and shared.largest_difference(a, b) <= _tolerance(subject)

    shared.expect_served(subject, expected, same, **inputs)


@POINTS(
    "the outputs of serving_default are named default, pooled_output and sequence_output",
    required=False,
)
def readable(subject: Subject) -> None:
    names = set(subject.signature.structured_outputs)
    lost = {"default", "pooled_output", "sequence_output"} - names
    expect(not lost, ", ".join(sorted(names)))


@POINTS("the variables file holds every weight once")
def stored_once(subject: Subject) -> None:
    reader = tf.train.load_checkpoint(f"{subject.folder}/variables/variables")
    sizes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    stored = sum(
        int(np.prod(sizes[key])) * types[key].size for key in sizes if types[key] != tf.string
    )
    lists = [subject.model.variables, getattr(subject.model, "mlm", subject.model).variables]
    variables = {id(v): v for values in lists for v in values}.values()
    needed = sum(int(np.prod(v.shape)) * v.dtype.size for v in variables)
    found = f"{stored:,} bytes of weights on disk, but {needed:,} bytes of variables"
    expect(stored <= needed * 1.01 + 1024, found)


@POINTS("saved again, moved and loaded, the model gives the same outputs")
def encoder_moves(subject: Subject) -> None:
    with shared.saved_again(subject) as (model, folder):
        path, inputs = _vocab_path(model), _inputs(subject)
        expect(path.startswith(folder), f"the vocabulary at {path}")
        _expect_close(subject, model(inputs), subject.model(inputs))


def _predict(subject: Subject, positions: list[int]) -> dict[str, Any]:
    masked = {POSITIONS: tf.constant([positions] * 2, tf.int32)}
    return subject.model.mlm(_inputs(subject) | masked)


@MLM_POINTS(
    f"mlm also takes {POSITIONS} [batch, predictions] and returns mlm_logits [batch, "
    "predictions, vocab_size] with the outputs of the encoder, without default"
)
def mlm_outputs(subject: Subject) -> None:
    outputs = _predict(subject, [1, 3, 4])
    shared.expect_names({"mlm_logits", *NAMES} - {"default"}, outputs)
    expect("default" not in outputs, "default")
    tokens, known = outputs["mlm_logits"].shape[-1], _num_tokens(subject)
    shared.expect_tensors(outputs, {"mlm_logits": (2, 3, tokens)}, "float32")
    expect(tokens >= known, f"logits of {tokens} tokens for a vocabulary of {known}")


@MLM_POINTS("mlm gives the outputs of the encoder")
def mlm_equals_root(subject: Subject) -> None:
    expected = dict(subject.model(_inputs(subject)))
    del expected["default"]
    outputs = _predict(subject, [0])
    _expect_close(subject, {name: outputs[name] for name in expected}, expected)


@MLM_POINTS(f"mlm_logits are those of {POSITIONS}, in their order")
def mlm_positions(subject: Subject) -> None:
    both, one = (_predict(subject, p)["mlm_logits"] for p in ([4, 2], [2]))
    _expect_close(subject, both[:, 1:], one)


@MLM_POINTS(
    "mlm.trainable_variables are the encoder's plus five (six in a MobileBERT) that the root "
    "does not have"
)
def mlm_variables(subject: Subject) -> None:
    root, mlm = subject.model, subject.model.mlm
    ids = {id(v) for v in mlm.trainable_variables}
    own = [v.name for v in root.trainable_variables if id(v) not in ids]
    expect(not own, f"{len(own)} variables of the encoder that mlm does not share: {own[:3]}")
    head = ids - {id(v) for v in root.variables}
    expected = 6 if subject.config and subject.config.own_masked_lm_width else 5
    expect(len(head) == expected, f"{len(head)} variables that are not the encoder's")


@MLM_POINTS("mlm takes training=True, and each of its trainable variables gets a gradient")
def mlm_training(subject: Subject) -> None:
    inputs = _inputs(subject) | {POSITIONS: tf.constant([[0]] * 2, tf.int32)}
    _expect_gradients(subject.model.mlm, inputs, ("mlm_logits", "pooled_output"))

"""The points of a model from text to predictions: the conventions of TensorFlow Serving.

Source: tensorflow/serving docs serving_basic.md, saved_model_warmup.md.
"""

import numpy as np
import tensorflow as tf

from export.checks.points import Points, Subject, expect, saved_again
from export.text_models import WARMUP

POINTS = Points()
_TEXTS = ["A text.", "", "größer 文 🙂", "many words " * 600]


def _specs(subject: Subject) -> list[tf.TensorSpec]:
    return tf.nest.flatten(subject.signature.structured_input_signature)


def _inputs(subject: Subject, texts: list[str]) -> dict[str, tf.Tensor]:
    """Returns inputs of strings [B], or [B, 2] for inputs of several strings, such as choices."""
    one = tf.constant(texts, tf.string)
    # Between equal choices, rounding errors would decide.
    two = tf.stack([one, "not " + one], axis=1)
    return {spec.name: one if spec.shape.rank == 1 else two for spec in _specs(subject)}


def _different(found: dict[str, tf.Tensor], expected: dict[str, tf.Tensor]) -> str:
    """Returns the first output that differs; outputs per token may be padded to the batch."""
    return next((name for name in expected if not _close(found[name], expected[name])), "")


def _close(found: tf.Tensor, expected: tf.Tensor) -> bool:
    found, expected = np.atleast_1d(found.numpy()), np.atleast_1d(expected.numpy())
    same = tuple(slice(min(sizes)) for sizes in zip(found.shape, expected.shape, strict=True))
    if not np.issubdtype(found.dtype, np.number):
        return bool((found[same] == expected[same]).all())
    return bool(np.allclose(found[same], expected[same], rtol=1e-3, atol=1e-3))


@POINTS("serving_default takes strings [batch], of any batch size")
def batches(subject: Subject) -> None:
    for spec in _specs(subject):
        expect(spec.shape in ([None], [None, None]), f"{spec.name} of shape {spec.shape}")
    for count in (0, 1, 4):
        for name, value in subject.signature(**_inputs(subject, _TEXTS[:count])).items():
            found = f"{name} of shape {value.shape} for {count} texts"
            expect(value.shape.rank != 0 and value.shape[0] == count, found)


@POINTS("the predictions for a text do not depend on the rest of the batch")
def independent_rows(subject: Subject) -> None:
    together = subject.signature(**_inputs(subject, _TEXTS))
    for index, text in enumerate(_TEXTS):
        alone = subject.signature(**_inputs(subject, [text]))
        first = {name: value[0] for name, value in alone.items()}
        name = _different(first, {name: value[index] for name, value in together.items()})
        expect(not name, f"{name} depends on the other texts of the batch")


@POINTS("no operation runs in Python")
def python_functions(subject: Subject) -> None:
    graph = subject.signature.graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    found = {node.op for node in nodes if "PyFunc" in node.op}
    expect(not found, f"{', '.join(found)} operations")


@POINTS("saved again, moved and loaded, the model gives the same predictions")
def predictor_moves(subject: Subject) -> None:
    inputs = _inputs(subject, _TEXTS)
    expected = subject.signature(**inputs)
    with saved_again(subject) as (model, _):
        name = _different(model.signatures["serving_default"](**inputs), expected)
    expect(not name, f"another {name}")


@POINTS("the vocabulary is an asset in the folder", required=False)
def assets(subject: Subject) -> None:
    expect(any(tf.io.gfile.stat(x).length for x in subject.assets()), "no file in assets")


@POINTS(f"{WARMUP} holds warm-up requests", required=False)
def has_requests(subject: Subject) -> None:
    expect(tf.io.gfile.exists(f"{subject.folder}/{WARMUP}"), "no such file")

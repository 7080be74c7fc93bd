"""The points of a model from text to predictions: the conventions of TensorFlow Serving.

Source: tensorflow/serving docs serving_basic.md, saved_model_warmup.md.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from export.checks.points import Point, Subject, saved_again
from export.warmup import WARMUP, parse_warmup_request

# TensorFlow Serving refuses more requests.
_MOST_REQUESTS = 1000
_TEXTS = ["A text.", "", "größer 文 🙂", "many words " * 600]


def _inputs(subject: Subject, texts: list[str]) -> dict[str, tf.Tensor]:
    """Returns inputs of strings [B], or [B, 2] for inputs of several strings, such as choices."""
    one = tf.constant(texts, tf.string)
    # Between equal choices, rounding errors would decide.
    two = tf.stack([one, "not " + one], axis=1)
    return {spec.name: one if spec.shape.rank == 1 else two for spec in _specs(subject)}


def _specs(subject: Subject) -> list[tf.TensorSpec]:
    return tf.nest.flatten(subject.signature.structured_input_signature)


def _batches(subject: Subject) -> str:
    shapes = {spec.name: spec.shape for spec in _specs(subject)}
    fixed = [name for name, shape in shapes.items() if shape not in ([None], [None, None])]
    if fixed:
        return f"{fixed[0]} of shape {shapes[fixed[0]]}"
    for count in (0, 1, 4):
        for name, value in subject.signature(**_inputs(subject, _TEXTS[:count])).items():
            if value.shape.rank == 0 or value.shape[0] != count:
                return f"{name} of shape {value.shape} for {count} texts"
    return ""


def _rows(subject: Subject) -> str:
    """Compares a batch with its texts one by one."""
    together = subject.signature(**_inputs(subject, _TEXTS))
    for index, text in enumerate(_TEXTS):
        alone = subject.signature(**_inputs(subject, [text]))
        if name := _different({n: x[0] for n, x in alone.items()}, _row(together, index)):
            return f"{name} depends on the other texts of the batch"
    return ""


def _row(outputs: dict[str, tf.Tensor], index: int) -> dict[str, tf.Tensor]:
    return {name: value[index] for name, value in outputs.items()}


def _different(found: dict[str, tf.Tensor], expected: dict[str, tf.Tensor]) -> str:
    """Returns the first output that differs; outputs per token may be padded to the batch."""
    return next((name for name in expected if not _close(found[name], expected[name])), "")


def _close(found: tf.Tensor, expected: tf.Tensor) -> bool:
    found, expected = np.atleast_1d(found.numpy()), np.atleast_1d(expected.numpy())
    same = tuple(slice(min(sizes)) for sizes in zip(found.shape, expected.shape, strict=True))
    if not np.issubdtype(found.dtype, np.number):
        return bool((found[same] == expected[same]).all())
    return bool(np.allclose(found[same], expected[same], rtol=1e-3, atol=1e-3))


def _python_functions(subject: Subject) -> str:
    graph = subject.signature.graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    found = {node.op for node in nodes if "PyFunc" in node.op}
    return f"{', '.join(found)} operations" if found else ""


def _moves(subject: Subject) -> str:
    inputs = _inputs(subject, _TEXTS)
    expected = subject.signature(**inputs)

    def use(model: Any, _: str) -> str:
        name = _different(model.signatures["serving_default"](**inputs), expected)
        return f"another {name}" if name else ""

    return saved_again(subject, use)


def _assets(subject: Subject) -> str:
    found = [asset for asset in subject.assets() if tf.io.gfile.stat(asset).length]
    return "" if found else "no file in assets"


def _has_requests(subject: Subject) -> str:
    return "" if tf.io.gfile.exists(f"{subject.folder}/{WARMUP}") else "no such file"


def _requests(subject: Subject) -> str:
    if _has_requests(subject):
        return ""
    records = [x.numpy() for x in tf.data.TFRecordDataset(f"{subject.folder}/{WARMUP}")]
    if not 0 < len(records) <= _MOST_REQUESTS:
        return f"{len(records):,} requests"
    for number, record in enumerate(records, 1):
        try:
            signature, inputs = parse_warmup_request(record)
            subject.model.signatures[signature](**inputs)
        except Exception as error:
            return f"request {number}: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
    return ""


def _version(subject: Subject) -> str:
    name = subject.folder.rstrip("/").rpartition("/")[2]
    advice = "serve a copy as NAME/1, with the folder NAME as the base path"
    return "" if name.isdigit() else f"{name}: {advice}"


POINTS = (
    Point("serving_default takes strings [batch], of any batch size", _batches),
    Point("the predictions for a text do not depend on the rest of the batch", _rows),
    Point("no operation runs in Python", _python_functions),
    Point("saved again, moved and loaded, the model gives the same predictions", _moves),
    Point("the vocabulary is an asset in the folder", _assets, required=False),
    Point(f"{WARMUP} holds warm-up requests", _has_requests, required=False),
    Point(f"warm-up requests, at most {_MOST_REQUESTS:,}, can be answered", _requests),
    Point("the name of the folder is a version, as servers expect", _version, required=False),
)

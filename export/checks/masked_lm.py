"""The points of an encoder's masked-LM head, the sub-object `mlm`.

Source: tensorflow/models official/nlp/tools/export_tfhub_lib.py.
"""

from typing import Any

import tensorflow as tf

from export.checks.encoder import (
    NAMES,
    compare,
    example_inputs,
    num_tokens,
    own_config,
    without_gradient,
)
from export.checks.points import Point, Subject, differences

_POSITIONS = "masked_lm_positions"


def points(subject: Subject) -> tuple[Point, ...]:
    """Returns the points of the head; without a head, the advice to add one."""
    return _POINTS if hasattr(subject.model, "mlm") else (_NO_HEAD,)


def _predict(subject: Subject, positions: list[int], length: int = 6) -> dict[str, Any]:
    inputs = example_inputs(subject, length=length)
    return subject.model.mlm(inputs | {_POSITIONS: tf.constant([positions] * 2, tf.int32)})


def _mlm_outputs(subject: Subject) -> str:
    outputs = _predict(subject, [1, 3, 4])
    if names := {"mlm_logits", *NAMES} - {"default"} - set(outputs):
        return f"no {', '.join(sorted(names))}"
    if "default" in outputs:
        return "default"
    batch, predictions, tokens = outputs["mlm_logits"].shape
    found = {"mlm_logits": (batch, predictions), "its type": outputs["mlm_logits"].dtype.name}
    if problem := differences(found, {"mlm_logits": (2, 3), "its type": "float32"}):
        return problem
    known = num_tokens(subject)
    return "" if tokens >= known else f"logits of {tokens} tokens for a vocabulary of {known}"


def _mlm_equals_root(subject: Subject) -> str:
    expected = dict(subject.model(example_inputs(subject)))
    del expected["default"]
    outputs = _predict(subject, [0])
    return compare(subject, {name: outputs[name] for name in expected}, expected)


def _mlm_training(subject: Subject) -> str:
    inputs = example_inputs(subject) | {_POSITIONS: tf.constant([[0]] * 2, tf.int32)}
    return without_gradient(subject.model.mlm, inputs, ("mlm_logits", "pooled_output"))


def _mlm_positions(subject: Subject) -> str:
    both, one = (_predict(subject, p)["mlm_logits"] for p in ([4, 2], [2]))
    return compare(subject, both[:, 1:], one)


def _mlm_variables(subject: Subject) -> str:
    root, mlm = subject.model, subject.model.mlm
    ids = {id(v) for v in mlm.trainable_variables}
    if own := [v.name for v in root.trainable_variables if id(v) not in ids]:
        return f"{len(own)} variables of the encoder that mlm does not share, such as {own[0]}"
    shared = {id(v) for v in root.variables}
    head = [v for v in mlm.trainable_variables if id(v) not in shared]
    config = own_config(subject)
    expected = 6 if config and config.own_masked_lm_width else 5
    return "" if len(head) == expected else f"{len(head)} variables that are not the encoder's"


_NO_HEAD = Point("mlm predicts masked tokens", lambda _: "no mlm", required=False)
_POINTS = (
    Point(
        f"mlm also takes {_POSITIONS} [batch, predictions] and returns mlm_logits [batch, "
        "predictions, vocab_size] with the outputs of the encoder, without default",
        _mlm_outputs,
    ),
    Point("mlm gives the outputs of the encoder", _mlm_equals_root),
    Point(f"mlm_logits are those of {_POSITIONS}, in their order", _mlm_positions),
    Point(
        "mlm.trainable_variables are the encoder's plus five (six in a MobileBERT) that the root "
        "does not have",
        _mlm_variables,
    ),
    Point(
        "mlm takes training=True, and each of its trainable variables gets a gradient",
        _mlm_training,
    ),
)

"""What export.check examines: a SavedModel of one kind, and the points it must satisfy."""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the operations of tokenizers

RESULTS = ("ok", "WRONG", "advice")


@dataclass(frozen=True)
class Subject:
    """A loaded SavedModel.

    Attributes:
        folder: where it is.
        model: the object that `tf.saved_model.load` returned.
    """

    folder: str
    model: Any

    @property
    def signature(self) -> Callable:
        """The default signature; raises a KeyError if there is none."""
        return self.model.signatures["serving_default"]

    def assets(self) -> list[str]:
        """Returns the paths of the assets."""
        return tf.io.gfile.glob(f"{self.folder}/assets/*")


@dataclass(frozen=True)
class Point:
    """One expectation.

    Attributes:
        expected: what should hold, as a clause.
        problem: returns what was found instead; "" if the point holds.
        required: whether a problem is an error; otherwise it is advice.
    """

    expected: str
    problem: Callable[[Subject], str]
    required: bool = True


def open_subject(folder: str) -> tuple[Subject, str, Sequence[Point]]:
    """Loads a SavedModel; returns it, what it is, and the points for this kind.

    Raises:
        ValueError: the folder holds no SavedModel, or one of another kind.
        OSError: the SavedModel cannot be read.
    """
    from export import check_encoder, check_masked_lm, check_preprocessor, check_serving

    if not tf.saved_model.contains_saved_model(folder):
        versions = [name.strip("/") for name in _entries(folder) if name.strip("/").isdigit()]
        advice = f": did you mean {folder}/{versions[-1]}?" if versions else ""
        raise ValueError(f"{folder} holds no saved_model.pb{advice}")
    try:
        subject = Subject(folder, tf.saved_model.load(folder))
    # TensorFlow raises errors of many types for damaged files.
    except Exception as error:
        raise OSError(f"cannot load {folder}: {_first_line(error)}") from error
    names, kinds = _inputs(subject)
    if "input_word_ids" in names:
        points = [*check_encoder.POINTS, *check_masked_lm.points(subject)]
        return subject, "an encoder", points
    if hasattr(subject.model, "bert_pack_inputs") or hasattr(subject.model, "tokenize"):
        return subject, "a preprocessor", check_preprocessor.POINTS
    if kinds == {tf.string}:
        return subject, "a model from text to answers", check_serving.POINTS
    raise ValueError(
        f"{folder} is no encoder, preprocessor or model from text to answers: it takes "
        f"{', '.join(names) or 'nothing that serving_default or a call would name'}"
    )


def examine(subject: Subject, points: Sequence[Point]) -> Iterator[tuple[str, str]]:
    """Yields, for every point, one of `RESULTS` and a line that describes the point."""
    for point in points:
        try:
            found = point.problem(subject)
        # Whatever the model raises is what was found.
        except Exception as error:
            found = f"{type(error).__name__}: {_first_line(error)}"
        if not found:
            yield "ok", point.expected
        else:
            yield "WRONG" if point.required else "advice", f"{point.expected}. Found: {found}"


def differences(found: dict[str, Any], expected: dict[str, Any]) -> str:
    """Says which of the values that should be equal differ."""
    return "; ".join(
        f"{name} is {found[name]}, not {value}"
        for name, value in expected.items()
        if found[name] != value
    )


def largest_difference(found: Any, expected: Any) -> float:
    """Returns the largest difference between two nests of tensors."""
    pairs = zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True)
    return max(float(np.max(np.abs(a - b), initial=0)) for a, b in pairs)


def saved_again(subject: Subject, use: Callable[[Any, str], str]) -> str:
    """Saves the model, moves the folder, loads that and returns what `use` finds wrong with it.

    Args:
        use: gets the loaded model and its folder.
    """
    with tempfile.TemporaryDirectory() as folder:
        first, second = os.path.join(folder, "first"), os.path.join(folder, "second")
        tf.saved_model.save(subject.model, first, signatures=subject.model.signatures)
        os.rename(first, second)
        return use(tf.saved_model.load(second), second)


def _inputs(subject: Subject) -> tuple[list[str], set[tf.DType]]:
    """Returns the names and types of the inputs of the default signature, or else of a call."""
    if "serving_default" in subject.model.signatures:
        functions = [subject.signature]
    else:
        call = vars(subject.model).get("__call__")
        functions = getattr(call, "concrete_functions", [])
    specs = [
        spec
        for function in functions
        for spec in tf.nest.flatten(function.structured_input_signature)
        if isinstance(spec, tf.TensorSpec)
    ]
    return sorted({spec.name for spec in specs}), {spec.dtype for spec in specs}


def _entries(folder: str) -> list[str]:
    return sorted(tf.io.gfile.listdir(folder)) if tf.io.gfile.isdir(folder) else []


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else "no message"

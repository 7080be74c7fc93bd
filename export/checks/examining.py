"""Finds out what a SavedModel is, and examines it."""

from collections.abc import Iterator, Sequence

import tensorflow as tf

import bert_tf.text.operations  # noqa: F401, registers those of tokenizers
from export.checks import encoder_points as encoder
from export.checks import preprocessor_points as preprocessor
from export.checks import serving_points as serving
from export.checks.points import Point, Subject, Wrong

RESULTS = ("ok", "WRONG", "advice")


def open_subject(folder: str) -> tuple[Subject, str, Sequence[Point]]:
    """Loads a SavedModel; returns it, what it is, and the points for this kind."""
    if not tf.saved_model.contains_saved_model(folder):
        raise ValueError(f"{folder} holds no saved_model.pb: give the folder of a SavedModel")
    try:
        subject = Subject(folder, tf.saved_model.load(folder))
    # TensorFlow raises errors of many types for damaged files.
    except Exception as error:
        raise OSError(f"cannot load {folder}: {_first_line(error)}") from error
    specs = _inputs(subject)
    names = sorted({spec.name for spec in specs})
    if "input_word_ids" in names:
        return subject, "an encoder", encoder.points(subject)
    if hasattr(subject.model, "bert_pack_inputs") or hasattr(subject.model, "tokenize"):
        return subject, "a preprocessor", preprocessor.POINTS
    if {spec.dtype for spec in specs} == {tf.string}:
        return subject, "a model from text to predictions", serving.POINTS
    raise ValueError(
        f"{folder} is not an encoder, a preprocessor or a model from text to predictions: its "
        f"inputs are {', '.join(names) or 'not named'}"
    )


def examine(subject: Subject, points: Sequence[Point]) -> Iterator[tuple[str, str]]:
    """Yields, for every point, one of `RESULTS` and a line that describes the point."""
    for point in points:
        found = ""
        try:
            point.check(subject)
        except Wrong as wrong:
            found = str(wrong)
        # Whatever the model raises is what was found.
        except Exception as error:
            found = f"{type(error).__name__}: {_first_line(error)}"
        if not found:
            yield "ok", point.expected
        else:
            yield "WRONG" if point.required else "advice", f"{point.expected}. Found: {found}"


def _inputs(subject: Subject) -> list[tf.TensorSpec]:
    """Returns the inputs of the default signature, or else of a call."""
    if "serving_default" in subject.model.signatures:
        functions = [subject.signature]
    else:
        call = vars(subject.model).get("__call__")
        functions = getattr(call, "concrete_functions", [])
    specs = [tf.nest.flatten(function.structured_input_signature) for function in functions]
    return [spec for group in specs for spec in group if isinstance(spec, tf.TensorSpec)]


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else "no message"

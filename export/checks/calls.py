"""Calls signatures with inputs of other shapes than they state, in a process of its own.

Nothing compares shapes where a server calls a signature, and an operation may end the process.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence

import tensorflow as tf

import bert_tf.text.operations  # noqa: F401, registers those of tokenizers
from export.checks.points import Point, Subject, expect

_SHAPES = ([], [0], [1], [2], [3], [0, 0], [0, 2], [2, 0], [1, 1], [2, 2], [2, 3], [2, 2, 2])


def other_shapes(specs: Sequence[tf.TensorSpec]) -> Iterator[dict[str, tf.Tensor]]:
    """Yields inputs of which all, or one, have another shape; those as stated have two rows."""
    stated = {spec.name: [2] * (spec.shape.rank or 0) for spec in specs}
    values = {x.name: "a b" if x.dtype == tf.string else tf.zeros([], x.dtype) for x in specs}
    for shape in _SHAPES:
        for shapes in (dict.fromkeys(stated, shape), *(stated | {name: shape} for name in stated)):
            yield {name: tf.fill(shapes[name], value) for name, value in values.items()}


def _call_all(folder: str) -> None:
    """Calls the signatures of a SavedModel; prints each call before it."""
    for name, signature in tf.saved_model.load(folder).signatures.items():
        for inputs in other_shapes(tf.nest.flatten(signature.structured_input_signature)):
            shapes = ", ".join(f"{x} {value.shape.as_list()}" for x, value in inputs.items())
            print(f"{name} with {shapes}", flush=True)
            with contextlib.suppress(tf.errors.OpError):
                signature(**inputs)


def _call_apart(subject: Subject) -> None:
    command = [sys.executable, "-m", "export.checks.calls", subject.folder]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    last = ["loading", *done.stdout.splitlines()][-1]
    expect(done.returncode == 0, f"the process ended with {done.returncode}: {last}")


POINT = Point("calls", "inputs of other shapes do not end the process", _call_apart)


if __name__ == "__main__":
    _call_all(sys.argv[1])

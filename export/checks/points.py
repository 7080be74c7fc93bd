"""What a point of export.check is, and what the checks share."""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf


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


def differences(found: dict[str, Any], expected: dict[str, Any]) -> str:
    """Says which values differ from the expected ones; "" if none does."""
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
    """Saves the model, moves the folder, loads it and returns what `use` finds wrong.

    Args:
        use: gets the loaded model and its folder.
    """
    with tempfile.TemporaryDirectory() as folder:
        first, second = os.path.join(folder, "first"), os.path.join(folder, "second")
        tf.saved_model.save(subject.model, first, signatures=subject.model.signatures)
        os.rename(first, second)
        return use(tf.saved_model.load(second), second)

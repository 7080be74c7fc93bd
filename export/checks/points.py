"""What a point of export.check is, and what the checks share."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from export.saved_models import CONFIG_COPY


@dataclass(frozen=True)
class Subject:
    """A folder, and the object that `tf.saved_model.load` returned for it."""

    folder: str
    model: Any

    @property
    def signature(self) -> Callable:
        """The default signature; raises a KeyError if there is none."""
        return self.model.signatures["serving_default"]

    @property
    def config(self) -> BertConfig | None:
        """The configuration that bert_tf writes into its exports; None for other exports."""
        path = f"{self.folder}/{CONFIG_COPY}"
        return BertConfig.from_json_file(path) if tf.io.gfile.exists(path) else None

    def assets(self) -> list[str]:
        """Returns the paths of the assets."""
        return tf.io.gfile.glob(f"{self.folder}/assets/*")


@dataclass(frozen=True)
class Point:
    """One expectation; `check` raises a `Wrong` if it does not hold, advice unless `required`."""

    name: str
    expected: str
    check: Callable[[Subject], None]
    required: bool = True


class Points(list[Point]):
    """A table of points. A call decorates the function that checks the next one."""

    def __call__(self, expected: str, required: bool = True) -> Callable:
        def add(check: Callable[[Subject], None]) -> Callable[[Subject], None]:
            self.append(Point(check.__name__, expected, check, required))
            return check

        return add


class Wrong(Exception):
    """What was found in place of what a point expects."""


def expect(holds: object, found: str) -> None:
    """Raises a `Wrong` that says what was found unless a condition holds."""
    if not holds:
        raise Wrong(found)


def expect_names(expected: Iterable[str], found: Collection[str]) -> None:
    """Expects names to be there."""
    lost = sorted(set(expected) - set(found))
    expect(not lost, f"no {', '.join(lost)}")


def expect_equal(found: Mapping[str, Any], expected: Mapping[str, Any], place: str = "") -> None:
    """Expects values by their names; `place` comes before what was found."""
    names = [name for name, value in expected.items() if found[name] != value]
    shown = "; ".join(f"{name} is {found[name]}, not {expected[name]}" for name in names)
    expect(not names, f"{place}{shown}")


def expect_tensors(
    tensors: Mapping[str, tf.Tensor], shapes: Mapping[str, tuple[int, ...]], dtype: str
) -> None:
    """Expects the tensors in `shapes` to have these shapes and this type."""
    found = {name: (tuple(tensors[name].shape), tensors[name].dtype.name) for name in shapes}
    expect_equal(found, {name: (shape, dtype) for name, shape in shapes.items()})


def largest_difference(found: Any, expected: Any) -> float:
    """Returns the largest difference between two nests of tensors."""
    pairs = zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True)
    return max(float(np.max(np.abs(a - b), initial=0)) for a, b in pairs)


def expect_served(
    subject: Subject, expected: Mapping[str, tf.Tensor], same: Callable[..., bool], *args, **kwargs
) -> None:
    """Expects the default signature to return outputs, by any name, for its arguments."""
    found = subject.signature(*args, **kwargs).values()
    lost = [name for name, value in expected.items() if not any(same(x, value) for x in found)]
    expect(not lost, f"no output that equals {', '.join(lost)}")


@contextlib.contextmanager
def saved_again(subject: Subject) -> Iterator[tuple[Any, str]]:
    """Saves the model, moves the folder and loads it; yields the model and its folder."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = os.path.join(folder, "first"), os.path.join(folder, "second")
        tf.saved_model.save(subject.model, first, signatures=subject.model.signatures)
        os.rename(first, second)
        yield tf.saved_model.load(second), second

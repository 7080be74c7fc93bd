"""The weights of classes in the loss."""

import math
import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from bert_tf.base.files import shortened, similar
from bert_tf.base.progress import counted
from bert_tf.tables.table import as_number

BALANCED = "balanced"


def class_weights(value: str, labels: Sequence[str], targets: np.ndarray) -> tuple[float, ...]:
    """Returns the weight of each class.

    "balanced" gives every class the same total weight: examples / (classes * examples of the
    class), counting only classes that occur. The mean weight of an example is then 1.

    Args:
        value: "balanced", or `label=weight` separated by commas; other classes weigh 1.
        targets: the classes of the training examples, int [N].
    """
    if value != BALANCED:
        # A label may hold commas, a weight none.
        items = re.sub("(=[^,]*),", "\\1\n", value).split("\n")
        stated = dict(_parse(item, labels) for item in items)
        if len(stated) < len(items):
            raise ValueError(f"--class_weights={value} names a class twice")
        return tuple(stated.get(label, 1.0) for label in labels)
    counts = np.bincount(targets, minlength=len(labels))
    present = np.count_nonzero(counts)
    return tuple(len(targets) / (present * count) if count else 0.0 for count in counts.tolist())


def describe_weights(weights: Sequence[float], labels: Sequence[str], targets: np.ndarray) -> str:
    """Returns a line that tells the user the weights and where they apply."""
    counts = np.bincount(targets, minlength=len(labels))
    parts = [
        f"{label} {weight:.4g} ({counted(count, 'example')})"
        for label, weight, count in zip(labels, weights, counts.tolist(), strict=True)
    ]
    return f"Class weights: {', '.join(parts)}."


def _parse(item: str, labels: Sequence[str]) -> tuple[str, float]:
    label, _, number = unicodedata.normalize("NFC", item).rpartition("=")
    weight = as_number(number)
    if label not in labels or not 0 < weight < math.inf:
        raise ValueError(
            f"--class_weights: {item!r} is neither `{BALANCED}` nor label=weight, with a weight "
            f"above 0 and one of the labels {shortened(labels, 20)}{similar(label, labels)}"
        )
    return label, weight

"""Finds NaN and infinity."""

from collections.abc import Mapping, Sequence

import numpy as np

_WITHOUT = "OSUbiu"


class NonFinite(ValueError):
    """A model computed values that are not finite."""


def count_non_finite(values: np.ndarray, dtype: np.dtype | str | None = None) -> int:
    """Returns how many values are not finite, or would not be finite as `dtype`."""
    if values.dtype.kind in _WITHOUT:
        return 0
    with np.errstate(over="ignore"):
        finite = np.isfinite(values if dtype is None else values.astype(dtype))
    return values.size - int(finite.sum())


def note_non_finite(
    bad: dict[str, str], name: str, values: np.ndarray, dtype: np.dtype | str | None = None
) -> None:
    """Adds a description to `bad` if values are not finite, or would not be finite as `dtype`."""
    if count := count_non_finite(values, dtype):
        bad[name] = f"{name} ({count:,} of {values.size:,} values)"


def check_computed(outputs: Mapping[str, np.ndarray | Sequence[np.ndarray]]) -> None:
    """Raises a `NonFinite` if the outputs of a model hold NaN or infinity."""
    for values in outputs.values():
        arrays = [values] if isinstance(values, np.ndarray) else values
        if any(map(count_non_finite, arrays)):
            raise NonFinite(
                "the model computes NaN or infinity: use another checkpoint, because its weights "
                "are damaged or too large for its precision"
            )

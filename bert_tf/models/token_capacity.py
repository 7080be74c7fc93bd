"""Skips padding where XLA compiles the step, for one number of tokens."""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from keras import ops

from bert_tf.layers.padding import first_places_kept, token_places

_STEP = 128
# Taking tokens out of a batch and putting them back costs time, too. A guess: no GPU or TPU has
# measured how much.
_LEAST_PADDING = 0.15


@dataclass(frozen=True)
class TokenCapacity:
    """How many places the encoder computes of a batch with no more tokens than that.

    A `training.trainer.Shortcut`. The gradients are those of the whole batch, to rounding.
    """

    tokens: int

    @classmethod
    def for_rows(cls, lengths: np.ndarray, rows: int, places: int) -> Self | None:
        """Returns a capacity that batches hardly ever exceed, or None if there is little padding.

        It lies four standard deviations above the mean of a random batch. Its rows have any of the
        `lengths`, and with padding this many `places`.
        """
        tokens = rows * lengths.mean() + 4 * math.sqrt(rows) * lengths.std()
        capacity = math.ceil(tokens / _STEP) * _STEP
        return cls(capacity) if capacity <= (1 - _LEAST_PADDING) * rows * places else None

    def applies(self, batch: dict[str, Any]) -> Any:
        """Returns whether the tokens of a batch fit, bool []."""
        mask = first_places_kept(batch["input_mask"])
        return ops.sum(ops.cast(mask, "int32")) <= self.tokens

    def shorten(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Adds the input `token_places`."""
        return batch | {"token_places": token_places(batch["input_mask"], self.tokens)}

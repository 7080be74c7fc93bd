"""The tokens of a batch without its padding, also where XLA compiles for one number of them.

Only attention relates tokens to each other. Everything else in an encoder treats each token alone,
and so can leave out the padding: its result is the same, with less work.

Source: ByteTransformer (arXiv:2210.03052), section III.D, "zero padding algorithm".
"""

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from keras import ops

_STEP = 128
# Taking tokens out of a batch and putting them back costs time, too. A guess: no GPU or TPU has
# measured how much.
_LEAST_PADDING = 0.15


def token_places(mask, capacity: int | None = None):
    """Returns the places of a batch's tokens, counted from the first of its first row, int [T].

    The first place of every row counts as a token even if it is padding, because the pooler reads
    it.

    Args:
        mask: int or bool [..., S], which is true for tokens.
        capacity: T, at least the number of tokens; the first places of padding fill it up. Without
            it, T depends on the values of the mask, and neither XLA nor Keras' JAX backend can
            compile this.
    """
    mask = ops.reshape(first_places_kept(mask), (-1,))
    if capacity is None:
        return ops.nonzero(mask)[0]
    size = ops.shape(mask)[0]
    places = ops.arange(size, dtype="int32")
    return ops.sort(ops.where(mask, places, places + size))[:capacity] % size


def rows_and_length(x) -> tuple:
    """Returns the shape [B, S] of rows for `reshape`: constants, if the number of rows is one."""
    return (x.shape[0], -1) if x.shape[0] else ops.shape(x)[:2]


def first_places_kept(mask):
    """Returns a mask [..., S] as bool, in which the first place of every row is true."""
    mask = ops.cast(mask, "bool")
    return ops.concatenate([ops.ones_like(mask[..., :1]), mask[..., 1:]], axis=-1)


class _Rows:
    """Rows [B, S] whose T tokens are at `places`; `numbers` [B * S] has a token for each place."""

    def __init__(self, mask, places, numbers):
        self.mask, self.places, self.numbers = mask, places, ops.reshape(numbers, (-1,))

    def spread(self, tokens):
        """Puts tokens in their places: [T, ...] -> [B, S, ...]. Padding repeats tokens."""
        places = ops.take(tokens, self.numbers, axis=0)
        return ops.reshape(places, (*rows_and_length(self.mask), *tokens.shape[1:]))

    def with_zeros(self, x):
        """Sets padding to 0: [B, S, H] -> [B, S, H]."""
        return x * ops.cast(self.mask, x.dtype)[:, :, None]


class Tokens:
    """Where the T tokens of a batch [B, S] are.

    Args:
        mask: int or bool [B, S], which is true for tokens.
        places: what `token_places` returns, with or without a capacity; by default, without.

    Attributes:
        columns: the place of each token in its row, int [T].
    """

    def __init__(self, mask, places=None):
        mask = first_places_kept(mask)
        places = token_places(mask) if places is None else places
        self.columns = places % ops.shape(mask)[1]
        self._batch = _Rows(mask, places, _token_numbers(mask))
        self._groups = [self._batch]

    def numbers(self, places):
        """Returns the numbers of the tokens at some places of the batch, int [M] -> [M]."""
        return ops.take(self._batch.numbers, places)

    def pack(self, x):
        """Takes the tokens out of a batch: [B, S, ...] -> [T, ...]."""
        if len(x.shape) == 2:
            return _tokens_of([x], [self._batch])  # ids, which have no gradient
        return _pack([x], [self._batch])

    def spread(self, x):
        """Puts tokens in their places, and zeros in those of padding: [T, H] -> [B, S, H]."""
        (rows,) = _spread(x, [self._batch], zeros=True)
        return rows

    def masks(self, mask) -> list:
        """Returns the parts of an attention mask, [B, 1, 1 or S, S], that `map_rows` needs."""
        return [mask]

    def map_rows(self, function: Callable, x, masks: list):
        """Applies a function of whole rows to tokens: [T, H] -> [T, H'].

        Args:
            function: maps rows [B, S, H], their mask and the number of their group, an int, to
                [B, S, H']. There may be several groups of rows of one batch.
            masks: what the method `masks` returned.
        """
        # Padding repeats tokens, which takes less time than zeros and is finite if the tokens are.
        rows = _spread(x, self._groups, zeros=False)
        results = [function(x, masks[number], number) for number, x in enumerate(rows)]
        return _pack(results, self._groups)


class SortedTokens(Tokens):
    """Tokens in the order of the lengths of their rows.

    `map_rows` divides the rows into groups and pads each only to its longest row.

    Args:
        mask: as in `Tokens`, with a static number of rows.
        groups: the number of groups, at most that of the rows.
    """

    def __init__(self, mask, groups: int):
        all_rows = mask = first_places_kept(mask)
        batch, length = ops.shape(mask)
        lengths = ops.max(ops.where(mask, ops.arange(1, length + 1), 1), axis=1)
        rows = ops.argsort(lengths)
        mask, lengths = ops.take(mask, rows, axis=0), ops.take(lengths, rows)
        places, numbers = token_places(mask), ops.reshape(_token_numbers(mask), (batch, length))
        self.columns = places % length
        first_places = ops.cast(rows * length, places.dtype)
        self._batch = _Rows(
            all_rows,
            ops.take(first_places, places // length) + self.columns,
            ops.take(numbers, ops.argsort(rows), axis=0),
        )
        ends = [batch * group // groups for group in range(groups + 1)]
        self._parts, self._groups = [], []
        for start, end in itertools.pairwise(ends):
            longest = lengths[end - 1]
            # The slice alone would not have a static number of rows.
            part = ops.reshape(mask[start:end, :longest], (end - start, -1))
            self._parts.append((rows[start:end], longest))
            self._groups.append(_Rows(part, token_places(part), numbers[start:end, :longest]))

    def masks(self, mask) -> list:
        return [ops.take(mask, rows, axis=0)[:, :, :size, :size] for rows, size in self._parts]


def _token_numbers(mask):
    """Returns the number of each place's token, or for padding of the one before, int [B * S]."""
    return ops.cumsum(ops.cast(ops.reshape(mask, (-1,)), "int32")) - 1


def _spread(x, groups: list[_Rows], *, zeros: bool) -> list:
    """Puts tokens [T, H] in their places, in each group [B, S, H]; padding has zeros or tokens."""

    def masked(x):
        return [rows.with_zeros(y) for rows, y in zip(groups, x, strict=True)] if zeros else x

    @ops.custom_gradient
    def spread(x):
        def gradient(*upstream):
            return _tokens_of(masked(upstream), groups)

        results = masked([rows.spread(x) for rows in groups])
        # Several results would come back differently in Keras' JAX backend.
        return results if len(groups) > 1 else results[0], gradient

    results = spread(x)
    return results if len(groups) > 1 else [results]


def _pack(x: list, groups: list[_Rows]):
    """Takes the tokens out of groups of rows, each [B, S, ...]: [T, ...]."""

    @ops.custom_gradient
    def pack(*x):
        def gradient(upstream):
            return tuple(rows.with_zeros(rows.spread(upstream)) for rows in groups)

        return _tokens_of(x, groups), gradient

    return pack(*x)


def _tokens_of(x: Iterable, groups: list[_Rows]):
    tokens = []
    for batch, rows in zip(x, groups, strict=True):
        flat = ops.reshape(batch, (-1, *batch.shape[2:]))
        tokens.append(ops.take(flat, rows.places, axis=0))
    return ops.concatenate(tokens, axis=0) if len(tokens) > 1 else tokens[0]


def places_of(positions, length: int):
    """Turns positions in rows, int [B, P], into places of the batch [B, length], int [B * P]."""
    row_starts = ops.arange(ops.shape(positions)[0], dtype=positions.dtype)[:, None] * length
    return ops.reshape(positions + row_starts, (-1,))


def rows_at(x, numbers):
    """Takes rows of x by their numbers, int [M]: [T, H] or [B, S, H] -> [M, H].

    Without numbers, returns x.
    """
    return x if numbers is None else ops.take(ops.reshape(x, (-1, x.shape[-1])), numbers, axis=0)


def pack(x, tokens: Tokens | None):
    """Returns `tokens.pack(x)`, or x where all places are computed."""
    return tokens.pack(x) if tokens else x


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

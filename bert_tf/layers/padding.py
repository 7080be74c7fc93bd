"""The tokens of a batch without its padding.

Only attention relates tokens to each other. Everything else in an encoder treats each token alone,
and so can leave out the padding: its result is the same, with less work.

Source: ByteTransformer (arXiv:2210.03052), section III.D, "zero padding algorithm".
"""

import itertools
from collections.abc import Callable

from keras import ops


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


def first_places_kept(mask):
    """Returns a mask [..., S] as bool, in which the first place of every row is true."""
    mask = ops.cast(mask, "bool")
    return ops.concatenate([ops.ones_like(mask[..., :1]), mask[..., 1:]], axis=-1)


class Tokens:
    """Where the T tokens of a batch [B, S] are.

    Args:
        mask: int or bool [B, S], which is true for tokens.
        places: what `token_places` returns, with or without a capacity; by default, without.
        numbers: for each place, the number in `places` of its token, or of one to repeat if it is
            padding, int32 [B * S]; by default, of the token before it.

    Attributes:
        columns: the place of each token in its row, int [T].
    """

    def __init__(self, mask, places=None, numbers=None):
        mask = first_places_kept(mask)
        self._shape = ops.shape(mask)
        self._mask = ops.reshape(mask, (-1,))
        self._places = token_places(mask) if places is None else places
        if numbers is None:
            numbers = ops.cumsum(ops.cast(self._mask, "int32")) - 1
        self._numbers = numbers
        self.columns = self._places % self._shape[1]

    def pack(self, x):
        """Takes the tokens out of a batch: [B, S, ...] -> [T, ...]."""

        @ops.custom_gradient
        def pack(places):
            def gradient(upstream):
                return self._with_zeros(ops.take(upstream, self._numbers, axis=0))

            return ops.take(places, self._places, axis=0), gradient

        return pack(ops.reshape(x, (-1, *x.shape[2:])))

    def spread(self, x, *, zeros: bool = True):
        """Puts tokens in their places: [T, H] -> [B, S, H].

        Without `zeros`, padding repeats tokens, which takes less time.
        """

        @ops.custom_gradient
        def spread(tokens):
            def gradient(upstream):
                # The places may include padding.
                masked = self._with_zeros(upstream) if zeros else upstream
                return ops.take(masked, self._places, axis=0)

            places = ops.take(tokens, self._numbers, axis=0)
            return self._with_zeros(places) if zeros else places, gradient

        return ops.reshape(spread(x), (*self._shape, x.shape[-1]))

    def map_rows(self, function: Callable, x, mask):
        """Applies a function of whole rows to tokens: [T, H] -> [T, H'].

        Args:
            function: maps rows [B, S, H], their mask and the number of their group, an int, to
                [B, S, H']. There may be several groups of rows of one batch.
            mask: [B, 1, 1 or S, S].
        """
        # What padding repeats is finite if the tokens are.
        return self.pack(function(self.spread(x, zeros=False), mask, 0))

    def _with_zeros(self, places):
        return places * ops.cast(self._mask, places.dtype)[:, None]


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
        tokens = Tokens(mask)
        first_places = ops.cast(rows * length, tokens.columns.dtype)
        places = ops.take(first_places, tokens._places // length) + tokens.columns
        numbers = ops.reshape(tokens._numbers, (batch, length))
        numbers = ops.reshape(ops.take(numbers, ops.argsort(rows), axis=0), (-1,))
        super().__init__(all_rows, places, numbers)
        ends = [batch * group // groups for group in range(groups + 1)]
        self._groups = []
        for start, end in itertools.pairwise(ends):
            longest = lengths[end - 1]
            self._groups.append((rows[start:end], longest, Tokens(mask[start:end, :longest])))

    def map_rows(self, function: Callable, x, mask):
        parts = _split(x, [ops.shape(tokens.columns)[0] for _, _, tokens in self._groups])
        results = []
        for number, (rows, longest, tokens) in enumerate(self._groups):
            padded = tokens.spread(parts[number], zeros=False)
            own_mask = ops.take(mask, rows, axis=0)[:, :, :longest, :longest]
            results.append(tokens.pack(function(padded, own_mask, number)))
        return ops.concatenate(results, axis=0)


def _split(x, sizes: list) -> list:
    """Splits x along its first axis. Unlike that of slices, the gradient is one concatenation."""

    @ops.custom_gradient
    def split(x):
        parts, start = [], 0
        for size in sizes:
            parts.append(x[start : start + size])
            start += size

        def gradient(*upstream):
            return ops.concatenate(upstream, axis=0)

        return parts, gradient

    return split(x)


def pack(x, tokens: Tokens | None):
    """Returns `tokens.pack(x)`, or x where all places are computed."""
    return tokens.pack(x) if tokens else x


def spread(x, tokens: Tokens | None):
    """Returns `tokens.spread(x)`, or x where all places are computed."""
    return tokens.spread(x) if tokens else x


def map_rows(function: Callable, x, mask, tokens: Tokens | None):
    """Returns `tokens.map_rows(function, x, mask)`, or `function(x, mask, 0)` for all places."""
    return tokens.map_rows(function, x, mask) if tokens else function(x, mask, 0)

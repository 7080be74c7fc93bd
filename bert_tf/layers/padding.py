"""The tokens of a batch without its padding.

Only attention relates tokens to each other. Everything else in an encoder treats each token alone,
and so can leave out the padding: its result is the same, with less work.

Source: ByteTransformer (arXiv:2210.03052), section III.D, "zero padding algorithm".
"""

from keras import ops


def token_places(mask, capacity: int | None = None):
    """Returns the places of a batch's tokens, counted from the first of its first row, int32 [T].

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
        places: the result of `token_places`.

    Attributes:
        columns: the place of each token in its row, int32 [T].
    """

    def __init__(self, mask, places):
        mask = first_places_kept(mask)
        self._shape = ops.shape(mask)
        self._mask = ops.reshape(mask, (-1,))
        self._places = places
        self._tokens = ops.cumsum(ops.cast(self._mask, "int32")) - 1
        self.columns = self._places % self._shape[1]

    def pack(self, x):
        """Takes the tokens out of a batch: [B, S, ...] -> [T, ...]."""

        @ops.custom_gradient
        def pack(places):
            def gradient(upstream):
                return self._with_zeros(ops.take(upstream, self._tokens, axis=0))

            return ops.take(places, self._places, axis=0), gradient

        return pack(ops.reshape(x, (-1, *x.shape[2:])))

    def spread(self, x, *, zeros: bool = True):
        """Puts tokens in their places: [T, H] -> [B, S, H].

        Without `zeros`, a place of padding repeats the token before it, which takes less time.
        """

        @ops.custom_gradient
        def spread(tokens):
            def gradient(upstream):
                # The places may include padding.
                masked = self._with_zeros(upstream) if zeros else upstream
                return ops.take(masked, self._places, axis=0)

            places = ops.take(tokens, self._tokens, axis=0)
            return self._with_zeros(places) if zeros else places, gradient

        return ops.reshape(spread(x), (*self._shape, x.shape[-1]))

    def _with_zeros(self, places):
        return places * ops.cast(self._mask, places.dtype)[:, None]


def pack(x, tokens: Tokens | None):
    """Returns `tokens.pack(x)`, or x where all places are computed."""
    return tokens.pack(x) if tokens else x


def spread(x, tokens: Tokens | None, *, zeros: bool = True):
    """Returns `tokens.spread(x)`, or x where all places are computed."""
    return tokens.spread(x, zeros=zeros) if tokens else x

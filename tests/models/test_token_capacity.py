"""How many tokens a step computes where XLA compiles it."""

import numpy as np
import pytest

from bert_tf.models.token_capacity import TokenCapacity


@pytest.mark.parametrize(("rows", "mean"), [(8, 60), (32, 13), (256, 200)])
def test_batches_hardly_ever_exceed_it(rows, mean):
    """Oracle: 20,000 random batches of texts whose lengths are skewed, as those of reviews are."""
    random = np.random.default_rng(0)
    lengths = np.minimum(random.gamma(2.0, mean / 2, 5000).astype(int) + 1, 512)
    found = TokenCapacity.for_rows(lengths, rows, 512).tokens
    totals = random.choice(lengths, (20_000, rows)).sum(axis=1)
    assert found % 128 == 0 and np.mean(totals > found) < 2e-3
    assert found < 2 * totals.mean() + 128


@pytest.mark.parametrize(("length", "skips"), [(128, False), (110, False), (100, True)])
def test_little_padding_is_computed(length, skips):
    """Oracle: by hand, 85% of 128 is 108.8."""
    assert bool(TokenCapacity.for_rows(np.full(9, length), 32, 128)) == skips


def test_it_applies_to_batches_with_no_more_tokens():
    """Oracle: counting; the first place of a row without tokens counts."""
    batch = {"input_mask": np.array([[1, 1, 1], [0, 1, 0], [0, 0, 0]])}
    for tokens, applies in ((5, False), (6, True)):
        assert bool(TokenCapacity(tokens).applies(batch)) == applies
    places = TokenCapacity(7).shorten(batch)["token_places"]
    np.testing.assert_array_equal(places, [0, 1, 2, 3, 4, 6, 5])

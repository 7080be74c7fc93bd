"""Windows over long texts."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning.features import make_windows


@pytest.mark.parametrize("size", [1, 3, 4, 7])
def test_every_token_is_predicted_once_with_the_most_context(size):
    """Oracle: the windows of each text and the contexts of its tokens, counted one by one."""
    lengths = [0, 1, size, size + 1, 2 * size, 29]
    splits = np.append(0, np.cumsum(lengths))
    windows = make_windows(tf.constant(splits), size)
    rows = list(zip(*(values.to_list() for values in windows), strict=True))
    central = [p for positions, are in rows for p, is_ in zip(positions, are, strict=True) if is_]
    assert central == list(range(splits[-1]))
    for begin, end in zip(splits, splits[1:], strict=False):
        own = [row for row in rows if row[0] and begin <= row[0][0] < end]
        assert all(row[0] == list(range(row[0][0], row[0][-1] + 1)) for row in own)
        assert {len(row[0]) for row in own} <= {min(size, end - begin)}
        for token in range(begin, end):
            contexts = {True: [], False: []}
            for positions, are in own:
                if token in positions:
                    place = positions.index(token)
                    contexts[are[place]].append(min(place, len(positions) - 1 - place))
            assert contexts[True] >= [max(contexts[False], default=0)]

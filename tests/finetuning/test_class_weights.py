"""The weights of classes in the loss."""

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from bert_tf.finetuning.class_weights import class_weights, describe_weights

LABELS = ("ham", "spam", "a=b")
TARGETS = np.array([0] * 17 + [1] * 2 + [2] * 5)


def test_balanced_weights():
    """Oracle: scikit-learn's. A class without examples has no effect on the others."""
    expected = compute_class_weight("balanced", classes=np.arange(3), y=TARGETS)
    weights = class_weights("balanced", LABELS, TARGETS)
    assert weights == pytest.approx(expected)
    assert class_weights("balanced", (*LABELS, "none"), TARGETS) == (*weights, 0.0)
    assert np.mean(np.array(weights)[TARGETS]) == pytest.approx(1.0)


def test_stated_weights():
    """Oracle: by hand."""
    assert class_weights("spam=4,a=b=0.5", LABELS, TARGETS) == (1.0, 4.0, 0.5)
    line = "Class weights: ham 1 (17 examples), spam 4 (2 examples), a=b 0.5 (5 examples)."
    assert describe_weights((1.0, 4.0, 0.5), LABELS, TARGETS) == line
    # The name of a class may hold a comma.
    assert class_weights("x, y=2,z=3,a,b=4", ("x, y", "z", "a,b"), TARGETS) == (2.0, 3.0, 4.0)
    # A shell may pass it decomposed.
    assert class_weights("cafe\u0301=2", ("caf\u00e9", "z"), TARGETS) == (2.0, 1.0)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ("equal", "'equal' is neither `balanced` nor label=weight, with a weight above 0"),
        ("eggs=2", "'eggs=2' is neither .* one of the labels ham, spam, a=b$"),
        ("span=2", "one of the labels ham, spam, a=b; similar names are spam$"),
        ("spam=0", "'spam=0' is neither"),
        ("spam=nan", "'spam=nan' is neither"),
        ("spam=inf", "'spam=inf' is neither"),
        ("spam=2,ham=1,spam=3", "--class_weights=spam=2,ham=1,spam=3 names a class twice"),
        ("spam=much", "'spam=much' is neither"),
    ],
)
def test_wrong_weights_are_one_clear_line(value, match):
    with pytest.raises(ValueError, match=match):
        class_weights(value, LABELS, TARGETS)

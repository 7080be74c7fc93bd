"""The losses of distillation against their papers' formulas, restated in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.compression import losses

RANDOM = np.random.default_rng(0)
MASK = np.array([[1] * 5, [1] * 3 + [0] * 2], np.int32)


def values(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def softmax(x):
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def soft_labels(t, s, temperature, row):
    p, q = (softmax(x[row] / temperature) for x in (t, s))
    return temperature**2 * np.sum(p * np.log(p / q))


def squared_error(t, s, row):
    return np.sum((t[row] - s[row]) ** 2)


def first_token_cosine(t, s, row):
    a, b = t[row, 0], s[row, 0]
    return 1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b)


LOGITS, STATES = (2, 3), (2, 5, 8)
# The NumPy of test_distillation.py and test_general.py has the other losses.
CASES = {
    "soft_labels": (losses.soft_labels, soft_labels, LOGITS, {"temperature": 2.5}),
    "soft_labels of numbers": (losses.soft_labels, squared_error, (2,), {}),
    "squared_error": (losses.squared_error, squared_error, LOGITS, {}),
    "squared_error of numbers": (losses.squared_error, squared_error, (2,), {}),
    "first_token_cosine": (losses.first_token_cosine, first_token_cosine, STATES, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_loss_is_its_papers(name):
    """Oracles: the formula in NumPy, for each example without its padding; 0 for equal outputs."""
    loss, formula, shape, arguments = CASES[name]
    teacher, student = values(*shape), values(*shape)
    expected = [formula(teacher, student, row=row, **arguments) for row in (0, 1)]
    found = loss(teacher, student, MASK, **arguments)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    np.testing.assert_allclose(loss(teacher, teacher, MASK, **arguments), [0, 0], atol=1e-6)


def test_soft_labels_have_the_gradient_of_the_cross_entropy():
    """Oracle: T (q - p), the gradient of -T^2 sum p log q."""
    teacher, student = values(2, 3), tf.Variable(values(2, 3))
    with tf.GradientTape() as tape:
        loss = losses.soft_labels(teacher, student, temperature=4.0)
    expected = 4.0 * (softmax(student.numpy() / 4) - softmax(teacher / 4))
    np.testing.assert_allclose(tape.gradient(loss, student), expected, atol=1e-6)

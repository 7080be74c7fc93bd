"""The losses of distillation against their papers' formulas, restated in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.compression import losses

RANDOM = np.random.default_rng(0)
LENGTHS = (5, 3)
MASK = np.array([[1] * 5, [1] * 3 + [0] * 2], np.int32)


def values(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def softmax(x):
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def divergence(p, q):
    return np.sum(p * np.log(p / q))


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def soft_labels(t, s, temperature, row):
    return temperature**2 * divergence(softmax(t[row] / temperature), softmax(s[row] / temperature))


def squared_error(t, s, row):
    return np.sum((t[row] - s[row]) ** 2)


def token_cosine(t, s, row):
    return np.mean([1 - cosine(t[row, i], s[row, i]) for i in range(LENGTHS[row])])


def first_token_cosine(t, s, row):
    return 1 - cosine(t[row, 0], s[row, 0])


def patience(t, s, row):
    t, s = (x[row, 0] / np.linalg.norm(x[row, 0]) for x in (t, s))
    return np.sum((t - s) ** 2) / len(t)


def hidden_error(t, s, row):
    return np.mean((t[row, : LENGTHS[row]] - s[row, : LENGTHS[row]]) ** 2)


def attention_error(t, s, row):
    n = LENGTHS[row]
    return np.mean([np.mean((t[row, head] - s[row, head])[:n, :n] ** 2) for head in range(4)])


def attention_divergence(t, s, row):
    n = LENGTHS[row]
    p, q = (softmax(x[row, :, :n, :n]) for x in (t, s))
    return np.mean([divergence(p[head, i], q[head, i]) for head in range(4) for i in range(n)])


LOGITS, STATES, SCORES = (2, 3), (2, 5, 8), (2, 4, 5, 5)
CASES = {
    "soft_labels": (losses.soft_labels, soft_labels, LOGITS, {"temperature": 2.5}),
    "soft_labels of numbers": (losses.soft_labels, squared_error, (2,), {}),
    "squared_error": (losses.squared_error, squared_error, LOGITS, {}),
    "squared_error of numbers": (losses.squared_error, squared_error, (2,), {}),
    "token_cosine": (losses.token_cosine, token_cosine, STATES, {}),
    "first_token_cosine": (losses.first_token_cosine, first_token_cosine, STATES, {}),
    "patience": (losses.patience, patience, STATES, {}),
    "hidden_error": (losses.hidden_error, hidden_error, STATES, {}),
    "attention_error": (losses.attention_error, attention_error, SCORES, {}),
    "attention_divergence": (losses.attention_divergence, attention_divergence, SCORES, {}),
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

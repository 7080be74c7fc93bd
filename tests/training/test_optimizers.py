"""The optimizer and the schedule against the formulas of the paper and the original, in NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.training.optimizers import AdamW
from bert_tf.training.schedules import linear_warmup_and_decay


def test_a_few_steps_worked_in_numpy():
    """Oracle: the update of google-research/bert optimization.py, one variable at a time."""
    generator = np.random.default_rng(0)
    names = ["layer/kernel", "layer/qkv_bias", "norm/gamma", "norm/beta", "bias_table"]
    decayed = [True, False, False, False, True]
    expected = [generator.normal(size=(3, 2)) for _ in names]
    variables = [keras.Variable(value.astype(np.float32)) for value in expected]
    for variable, name in zip(variables, names, strict=True):
        variable._path = name
    optimizer = AdamW(variables, weight_decay=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-6)
    moments = [(0.0, 0.0)] * len(names)
    for rate in (0.1, 0.05, 0.2):
        gradients = [generator.normal(size=(3, 2)) for _ in names]
        optimizer.apply([tf.constant(g, tf.float32) for g in gradients], tf.constant(rate))
        for index, gradient in enumerate(gradients):
            m, v = moments[index]
            m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
            update = m / (np.sqrt(v) + 1e-6)
            if decayed[index]:
                update += 0.01 * expected[index]
            expected[index] = expected[index] - rate * update
            moments[index] = m, v
    for variable, value in zip(variables, expected, strict=True):
        # 1 - 0.999 in float32 is off by 5e-5 of itself.
        np.testing.assert_allclose(variable.numpy(), value, rtol=1e-4, err_msg=variable.path)


@pytest.mark.parametrize(
    ("step", "rate"), [(0, 0.0), (1, 0.02), (9, 0.18), (10, 0.18), (50, 0.1), (99, 0.002), (100, 0)]
)
def test_linear_warmup_and_decay_at_worked_steps(step, rate):
    """Oracle: rate 0.2, 100 steps, 10 of warm-up, by the original's formula, by hand."""
    schedule = linear_warmup_and_decay(0.2, num_train_steps=100, num_warmup_steps=10)
    assert float(schedule(tf.constant(step))) == pytest.approx(rate, abs=1e-7)


def test_without_warmup_the_rate_starts_at_its_highest():
    assert float(linear_warmup_and_decay(0.2, 100, 0)(tf.constant(0))) == pytest.approx(0.2)

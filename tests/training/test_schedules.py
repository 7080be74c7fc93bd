"""The schedules, compared with values worked by hand and with those of Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.choices import SCHEDULES
from bert_tf.training.schedules import linear_warmup_and_decay, make_schedule


@pytest.mark.parametrize(
    ("step", "rate"), [(0, 0.0), (1, 0.02), (9, 0.18), (10, 0.18), (50, 0.1), (99, 0.002), (100, 0)]
)
def test_linear_warmup_and_decay_at_worked_steps(step, rate):
    """Oracle: the original's formula by hand; rate 0.2, 100 steps, 10 of them warm-up."""
    for schedule in (
        linear_warmup_and_decay(0.2, num_train_steps=100, num_warmup_steps=10),
        make_schedule("linear", 0.2, 100, 10),
    ):
        assert float(schedule(tf.constant(step))) == pytest.approx(rate, abs=1e-7)


@pytest.mark.parametrize(
    ("name", "rates"),
    [
        # (1 + cos(pi (step - 10) / 90)) / 2.
        ("cosine", {9: 0.18, 10: 0.2, 40: 0.15, 55: 0.1, 70: 0.05, 100: 0.0, 120: 0.0}),
        ("constant", {9: 0.18, 10: 0.2, 55: 0.2, 100: 0.2, 120: 0.2}),
    ],
)
def test_other_schedules_at_worked_steps(name, rates):
    """Oracle: values by hand; rate 0.2, 100 steps, 10 of them warm-up."""
    schedule = make_schedule(name, 0.2, 100, 10)
    for step, rate in rates.items():
        assert float(schedule(tf.constant(step))) == pytest.approx(rate, abs=1e-7), step


def assert_coincide(ours, theirs, steps: int = 130) -> None:
    found = [float(ours(tf.constant(step))) for step in range(steps)]
    np.testing.assert_allclose(found, [float(theirs(step)) for step in range(steps)], atol=1e-7)


def test_schedules_that_keras_has_too():
    """Oracle: Keras' PolynomialDecay without warm-up, and its CosineDecay with it."""
    schedules = keras.optimizers.schedules
    assert_coincide(make_schedule("linear", 0.2, 100, 0), schedules.PolynomialDecay(0.2, 100, 0.0))
    theirs = schedules.CosineDecay(0.0, 90, warmup_target=0.2, warmup_steps=10)
    assert_coincide(make_schedule("cosine", 0.2, 100, 10), theirs)


@pytest.mark.parametrize("name", SCHEDULES)
def test_without_warmup_the_rate_starts_at_its_highest(name):
    """Oracle: the rate given, also where the warm-up lasts until the end."""
    assert float(make_schedule(name, 0.2, 100, 0)(tf.constant(0))) == pytest.approx(0.2)
    assert float(make_schedule(name, 0.2, 8, 8)(tf.constant(4))) == pytest.approx(0.1)
    assert np.isfinite(make_schedule(name, 0.2, 8, 8)(tf.constant(8)))


@pytest.mark.parametrize("name", SCHEDULES)
def test_compiled_rates_of_int64_steps_are_the_same(name):
    """Oracle: the schedule without XLA."""
    schedule = make_schedule(name, 1e-4, 1_000_000, 10_000)
    compiled = tf.function(schedule, jit_compile=True)
    for step in (0, 9_999, 10_000, 500_000, 999_999):
        step = tf.constant(step, tf.int64)
        np.testing.assert_allclose(compiled(step), schedule(step), rtol=1e-5, atol=1e-10)

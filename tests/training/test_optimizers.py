"""Optimizers, schedules and loss scaling, compared with formulas, Keras and worked examples."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import two_replicas

from bert_tf.training.optimizers import OPTIMIZERS, AdamW, DynamicLossScale, Lamb, make_schedule

pytestmark = pytest.mark.usefixtures("optimized_graphs")

NAMES = ("layer/kernel", "layer/qkv_bias", "norm/gamma", "norm/beta", "bias_table")
DECAYED = (True, False, False, False, True)
RATES = (0.1, 0.05, 0.2)
# Large, so that a wrong place for it is seen.
EPSILON = 1e-2


def arrays(seed: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.normal(size=(3, 2)) for _ in NAMES]


def make_variables(values=None) -> list[keras.Variable]:
    variables = [keras.Variable(value.astype(np.float32)) for value in values or arrays(0)]
    for variable, name in zip(variables, itertools.cycle(NAMES), strict=False):
        variable._path = name
    return variables


def take_steps(optimizer: AdamW, steps: int = 3) -> None:
    for seed, rate in enumerate(RATES[:steps], start=1):
        gradients = [tf.constant(gradient, tf.float32) for gradient in arrays(seed)]
        optimizer.apply(gradients, tf.constant(rate))


def assert_values(variables, expected, rtol=1e-5) -> None:
    for variable, value in zip(variables, expected, strict=True):
        np.testing.assert_allclose(
            variable.numpy(), value, rtol=rtol, atol=5e-6, err_msg=variable.path
        )


def worked_in_numpy(
    name: str, bias_correction: bool, weight_decay: float, factors=(1, 1, 1, 1, 1)
) -> list[np.ndarray]:
    """Returns the variables after the steps of `take_steps`, by the papers' formulas in float64."""
    variables, moments = arrays(0), [(0.0, 0.0)] * len(NAMES)
    for t, rate in enumerate(RATES, start=1):
        for index, gradient in enumerate(arrays(t)):
            w, (m, v) = variables[index], moments[index]
            m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
            moments[index] = m, v
            if bias_correction:
                m, v = m / (1 - 0.9**t), v / (1 - 0.999**t)
            update, ratio = m / (np.sqrt(v) + EPSILON), 1.0
            if DECAYED[index]:
                update = update + weight_decay * w
                if name == "lamb":
                    ratio = np.linalg.norm(w) / np.linalg.norm(update)
            variables[index] = w - factors[index] * rate * ratio * update
    return variables


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("bias_correction", [False, True, None])
@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_a_few_steps_worked_in_numpy(name, bias_correction, weight_decay):
    """Oracle: arXiv:1711.05101 and arXiv:1904.00962, both algorithm 2, in float64.

    Without bias correction they are google-research/bert optimization.py and google-research/
    albert lamb_optimizer.py. By default, AdamW has none and LAMB has.
    """
    variables, settings = make_variables(), dict(weight_decay=weight_decay, epsilon=EPSILON)
    if bias_correction is not None:
        settings["bias_correction"] = bias_correction
    take_steps(OPTIMIZERS[name](variables, **settings))
    bias_correction = name == "lamb" if bias_correction is None else bias_correction
    # AdamW computes 1 - 0.999 in float32, with a relative error of 5e-5.
    assert_values(variables, worked_in_numpy(name, bias_correction, weight_decay), rtol=1e-4)


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_a_rate_of_its_own_for_every_variable(name):
    """Oracles: the formula in NumPy; with factors of 1, the optimizer without any."""
    factors, settings = (0.5, 1.0, 0.0, 2.0, 0.25), dict(weight_decay=0.3, epsilon=EPSILON)
    variables = make_variables()
    rates = [(f"^{path}$", factor) for path, factor in zip(NAMES, factors, strict=True)]
    take_steps(OPTIMIZERS[name](variables, bias_correction=True, rates=rates, **settings))
    assert_values(variables, worked_in_numpy(name, True, 0.3, factors), rtol=1e-4)
    ones, none = make_variables(), make_variables()
    take_steps(OPTIMIZERS[name](ones, rates=[("layer", 1.0)], **settings))
    take_steps(OPTIMIZERS[name](none, **settings))
    for one, other in zip(ones, none, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_lamb_does_not_scale_the_rate_where_a_norm_is_0():
    """Oracle: worked by hand; the first corrected update is 1 for any gradient above 0."""
    variables = make_variables([np.zeros([2]), np.ones([2])])
    variables[1]._path = "other/kernel"
    optimizer = Lamb(variables, weight_decay=0.0, epsilon=0.1)
    optimizer.apply([tf.constant([1.0, -1.0]), tf.zeros([2])], tf.constant(0.22))
    assert_values(variables, [np.array([-0.2, 0.2]), np.ones([2])])


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_two_replicas_give_the_result_of_one(name):
    """Oracle: the formula in NumPy; after every step comes one that changes nothing, not finite."""
    strategy = two_replicas()
    with strategy.scope():
        variables = make_variables()
        optimizer = OPTIMIZERS[name](
            variables, weight_decay=0.3, epsilon=EPSILON, bias_correction=True
        )

    def step(gradients, rate):
        replica = tf.distribute.get_replica_context()
        part = tf.cast(replica.replica_id_in_sync_group, tf.float32) * 0.5 + 0.25
        gradients = replica.all_reduce("SUM", [part * gradient for gradient in gradients])
        optimizer.apply(gradients, rate, 1.0 + 0.0 * gradients[0][0, 0])  # NaN for infinity

    run = tf.function(lambda gradients, rate: strategy.run(step, (gradients, rate)))
    for seed, rate in enumerate(RATES, start=1):
        gradients = [tf.constant(gradient, tf.float32) for gradient in arrays(seed)]
        run(gradients, tf.constant(rate))
        run([gradient * np.inf for gradient in gradients], tf.constant(rate))
    expected = worked_in_numpy(name, True, 0.3)
    for device in range(2):
        for variable, value in zip(variables, expected, strict=True):
            copy = strategy.experimental_local_results(variable.value)[device]
            np.testing.assert_allclose(copy.numpy(), value, rtol=1e-4, atol=5e-6)
    assert optimizer.slots["update_count"].numpy() == 3


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_a_compiled_step_that_is_not_finite_changes_nothing(name):
    """Oracle: the values and slots before the step."""
    variables = make_variables()
    optimizer = OPTIMIZERS[name](variables, bias_correction=True)
    take_steps(optimizer)
    state = [*(variable.value for variable in variables), *optimizer.slots.values()]
    before = [variable.numpy() for variable in state]
    apply = tf.function(optimizer.apply, jit_compile=True)
    gradients = [tf.fill([3, 2], np.float32(np.inf)) for _ in NAMES]
    apply(gradients, tf.constant(0.1), tf.constant(np.nan))
    for variable, value in zip(state, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    apply([tf.ones([3, 2]) for _ in NAMES], tf.constant(0.1), tf.constant(1.0))
    assert optimizer.slots["update_count"].numpy() == 4


def test_the_slots_are_the_whole_state():
    """Oracle: the steps of an optimizer that was kept, bit for bit."""
    for name, optimizer_class in OPTIMIZERS.items():
        whole, parts = make_variables(), make_variables()
        optimizer = optimizer_class(whole, bias_correction=True)
        take_steps(optimizer)
        take_steps(optimizer)
        first = optimizer_class(parts, bias_correction=True)
        take_steps(first)
        second = optimizer_class(parts, bias_correction=True)
        assert list(second.slots)[:2] == ["layer/kernel/adam_m", "layer/kernel/adam_v"]
        for key, slot in second.slots.items():
            slot.assign(first.slots[key])
        take_steps(second)
        for ours, theirs in zip(parts, whole, strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), err_msg=name)


def test_the_schedule_at_worked_steps():
    """Oracle: the original's formula by hand; rate 0.2, 100 steps, 10 for warm-up."""
    schedule = make_schedule(0.2, 100, 10)
    rates = {0: 0.0, 1: 0.02, 9: 0.18, 10: 0.18, 50: 0.1, 99: 0.002, 100: 0.0, 120: 0.0}
    for step, rate in rates.items():
        assert float(schedule(tf.constant(step))) == pytest.approx(rate, abs=1e-7), step


def test_without_warmup_the_rate_starts_at_its_highest():
    """Oracle: the rate given, also where the warm-up lasts until the end."""
    assert float(make_schedule(0.2, 100, 0)(tf.constant(0))) == pytest.approx(0.2)
    assert float(make_schedule(0.2, 8, 8)(tf.constant(4))) == pytest.approx(0.1)
    assert float(make_schedule(0.2, 8, 8)(tf.constant(8))) == 0.0


def states(loss_scale: DynamicLossScale) -> tuple[float, int]:
    return loss_scale.scale.numpy(), loss_scale.state["good_steps"].numpy()


def test_the_scale_halves_at_once_and_doubles_after_2000_good_steps():
    """Oracle: section 3.2 of the paper, worked by hand."""
    loss_scale = DynamicLossScale()
    assert states(loss_scale) == (32768.0, 0)
    update = tf.function(loss_scale.update)
    good, bad = tf.constant(True), tf.constant(False)
    update(good)
    assert states(loss_scale) == (32768.0, 1)
    update(bad)
    assert states(loss_scale) == (16384.0, 0)
    loss_scale.state["good_steps"].assign(1998)
    update(good)
    assert states(loss_scale) == (16384.0, 1999)
    update(good)
    assert states(loss_scale) == (32768.0, 0)
    loss_scale.scale.assign(1.5)
    update(bad)
    update(bad)
    assert states(loss_scale) == (1.0, 0)


def test_replicas_agree_though_only_one_overflows():
    """Oracle: worked by hand; the second replica's gradient overflows float16 in step 2."""
    strategy = two_replicas()
    with strategy.scope():
        loss_scale = DynamicLossScale()

    def replica_step(factor):
        replica = tf.distribute.get_replica_context()
        factor *= tf.cast(replica.replica_id_in_sync_group, tf.float32)
        gradient = tf.cast(tf.cast(factor * loss_scale.scale, tf.float16), tf.float32)
        gradient = replica.all_reduce("SUM", gradient) / loss_scale.scale
        replica.merge_call(update, args=(tf.math.is_finite(gradient),))
        return gradient

    def update(strategy, finite):
        loss_scale.update(strategy.experimental_local_results(finite)[0])

    @tf.function
    def step(factor):
        return strategy.run(replica_step, (factor,))

    for factor, expected, state in (
        (1.0, 1.0, (32768.0, 1)),
        (3.0, np.inf, (16384.0, 0)),
        (3.0, 3.0, (16384.0, 1)),
    ):
        gradients = strategy.experimental_local_results(step(tf.constant(factor)))
        assert [gradient.numpy() for gradient in gradients] == [expected] * 2
        for device in range(2):
            copies = [
                strategy.experimental_local_results(variable)[device].numpy()
                for variable in loss_scale.state.values()
            ]
            assert tuple(copies) == state

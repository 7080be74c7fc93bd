"""Loss scaling, compared with worked examples, on one device and on two replicas."""

import numpy as np
import tensorflow as tf
from support import two_replicas

from bert_tf.training.loss_scale import DynamicLossScale


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
        gradient = tf.cast(tf.cast(loss_scale.scale_loss(factor), tf.float16), tf.float32)
        (gradient,) = loss_scale.unscale(replica.all_reduce("SUM", [gradient]))
        loss_scale.update(tf.math.is_finite(gradient))
        return gradient

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

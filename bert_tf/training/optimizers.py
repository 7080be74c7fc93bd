"""AdamW as in the original BERT, LAMB for large batches, learning rates, and loss scaling."""

import math
import re
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from bert_tf.base.tensorflow_ops import for_gpu

# A rule for learning rates: the first pattern found in the name of a weight states the factor, else
# it is 1.
Factors = Sequence[tuple[str, float]]
Schedule = Callable[[tf.Tensor], tf.Tensor]

_NO_DECAY = re.compile(r"(^|/|_)bias$|/gamma$|/beta$")
_INITIAL_SCALE = 2.0**15
_GROWTH_STEPS = 2000


def factor_of(path: str, factors: Factors) -> float:
    """Returns the factor of the weight with this path."""
    return next((factor for pattern, factor in factors if re.search(pattern, path)), 1.0)


class AdamW:
    """Adam with decoupled weight decay and, as in the original BERT, without bias correction.

        m <- beta_1 m + (1 - beta_1) g
        v <- beta_2 v + (1 - beta_2) g^2
        w <- w - learning_rate (m / (sqrt(v) + epsilon) + weight_decay w)

    With `bias_correction`, after t updates, m / (1 - beta_1^t) and v / (1 - beta_2^t) replace m and
    v in the last line.

    It is not a `keras.optimizers.Optimizer`, because those clip each replica's gradient before the
    all-reduce; the original clips the sum.

    Args:
        variables: the trainable variables; create the optimizer in their strategy's scope.
        weight_decay: biases and the parameters of layer normalization do not decay.
        bias_correction: whether to correct the bias of the moments toward 0; by default the
            attribute of the class.
        rates: the rule for the factors on the learning rate.

    Attributes:
        adapts: whether updates are scaled to the norm of their variable, if that decays.
        rates: the factor on the learning rate of each variable.
        slots: the variables that a checkpoint must hold, by name: `<path>/adam_m`,
            `<path>/adam_v` and, with `bias_correction`, the number of updates, `update_count`.

    Source: Decoupled Weight Decay Regularization (arXiv:1711.05101) algorithm 2; google-research/
    bert optimization.py `AdamWeightDecayOptimizer`.
    """

    beta_1, beta_2 = 0.9, 0.999
    adapts = bias_correction = False

    def __init__(
        self,
        variables: Sequence[keras.Variable],
        weight_decay: float = 0.01,
        epsilon: float = 1e-6,
        bias_correction: bool | None = None,
        rates: Factors = (),
    ):
        self.weight_decay, self.epsilon = weight_decay, epsilon
        if bias_correction is not None:
            self.bias_correction = bias_correction
        self._targets = [variable.value for variable in variables]
        self.rates = [factor_of(variable.path, rates) for variable in variables]
        self._decays = [not _NO_DECAY.search(variable.path) for variable in variables]
        self._moments = [
            [tf.Variable(tf.zeros(variable.shape), trainable=False) for _ in range(2)]
            for variable in variables
        ]
        self.slots = {}
        for variable, (m, v) in zip(variables, self._moments, strict=True):
            self.slots |= {f"{variable.path}/adam_m": m, f"{variable.path}/adam_v": v}
        if self.bias_correction:
            self.slots["update_count"] = tf.Variable(0, dtype=tf.int64, trainable=False)

    def apply(
        self,
        gradients: Sequence[tf.Tensor],
        learning_rate: tf.Tensor,
        scale: tf.Tensor | float = 1.0,
    ) -> None:
        """Updates the variables; must be called in a replica context.

        Args:
            gradients: dense and already summed over the replicas, in the order of the variables.
            learning_rate: scalar.
            scale: scalar factor that clips the gradients. If it is NaN or infinite, no weight
                changes.
        """
        args = list(gradients), learning_rate, scale, for_gpu()
        tf.distribute.get_replica_context().merge_call(self._update_all, args=args)

    def _update_all(self, strategy, gradients, learning_rate, scale, together: bool) -> None:
        weights = self._moment_weights(strategy.experimental_local_results(scale)[0])
        updates = []
        for target, moments, gradient, factor, decay in zip(
            self._targets, self._moments, gradients, self.rates, self._decays, strict=True
        ):
            rate = learning_rate if factor == 1.0 else learning_rate * factor
            rule = self.beta_1, self.beta_2, self.epsilon, decay * self.weight_decay
            inputs = gradient, scale, rate, weights, (*rule, self.adapts and decay)
            updates.append(((target, *moments), inputs))
        # On a GPU, one program for all variables saves launches. Elsewhere, variables of one shape
        # share a program, which takes less time to compile.
        for part in [updates] if together else [[update] for update in updates]:
            strategy.extended.update(part[0][0][0], _update, args=(part,))

    def _moment_weights(self, scale) -> tuple:
        """Returns the sums of the weights in m and v: 1 - beta^t, or 1 without bias correction."""
        if not self.bias_correction:
            return 1.0, 1.0
        count = self.slots["update_count"]
        count.assign_add(tf.cast(tf.math.is_finite(scale), count.dtype))
        count = tf.cast(count.read_value(), tf.float32)
        # In float32, 1 - 0.999 would have a relative error of 5e-5.
        return tuple(-tf.math.expm1(count * math.log(b)) for b in (self.beta_1, self.beta_2))


def _update(first: tf.Variable, updates: list[tuple]) -> None:
    # Handles, because a compiled function would treat the moments of all devices as constants.
    _compiled_update([([x.handle for x in variables], inputs) for variables, inputs in updates])


# Compiled on every device: separate operations would read and write the weights about twice as
# often. At module level, so that optimizers share the compiled function.
@tf.function(jit_compile=True, autograph=False)
def _compiled_update(updates) -> None:
    for handles, (gradient, scale, learning_rate, weights, rule) in updates:
        before = variable, m, v = [
            tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32) for handle in handles
        ]
        beta_1, beta_2, epsilon, weight_decay, adapts = rule
        gradient *= scale
        m = beta_1 * m + (1.0 - beta_1) * gradient
        v = beta_2 * v + (1.0 - beta_2) * tf.square(gradient)
        update = m / weights[0] / (tf.sqrt(v / weights[1]) + epsilon)
        if weight_decay:
            update += weight_decay * variable
        if adapts:
            norm, update_norm = tf.linalg.global_norm([variable]), tf.linalg.global_norm([update])
            ratio = tf.math.divide_no_nan(norm, update_norm)
            learning_rate *= tf.where(ratio > 0.0, ratio, 1.0)
        after = variable - learning_rate * update, m, v
        # Selected here, because a condition around the update would wait for the device.
        finite = tf.math.is_finite(scale)
        for handle, old, new in zip(handles, before, after, strict=True):
            tf.raw_ops.AssignVariableOp(resource=handle, value=tf.where(finite, new, old))


class Lamb(AdamW):
    """Adam with each variable's update scaled to `learning_rate` times the variable's norm.

        u <- m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon) + weight_decay w
        w <- w - learning_rate |w| / |u| u

    with m and v as in `AdamW`. The trust ratio |w| / |u| is 1 where |w| or |u| is 0, and for
    excluded variables, which do not decay either. Query, key and value share one ratio, because
    they share a variable in `SelfAttention`.

    Args: see `AdamW`. google-research/albert has no bias correction.

    Source: Large Batch Optimization for Deep Learning (arXiv:1904.00962) algorithm 2;
    google-research/albert lamb_optimizer.py `LAMBOptimizer`.
    """

    adapts = bias_correction = True


OPTIMIZERS = {"adamw": AdamW, "lamb": Lamb}


def make_schedule(learning_rate: float, num_train_steps: int, num_warmup_steps: int) -> Schedule:
    """Returns a linear warm-up to `learning_rate` followed by a linear decay to 0 at the end.

    During the warm-up, the rate is `learning_rate * step / num_warmup_steps`, where the first step
    is number 0. After the warm-up, it is `learning_rate * (1 - step / num_train_steps)`: it drops
    slightly where the two meet, as in the original.

    Source: google-research/bert optimization.py `create_optimizer`.
    """

    def schedule(step: tf.Tensor) -> tf.Tensor:
        step = tf.cast(step, tf.float32)
        decayed = learning_rate * (1.0 - tf.minimum(step / num_train_steps, 1.0))
        if not num_warmup_steps:
            return decayed
        return tf.where(step < num_warmup_steps, learning_rate * step / num_warmup_steps, decayed)

    return schedule


class DynamicLossScale:
    """A factor on the loss that keeps small gradients from vanishing in float16.

    Multiply the float32 loss by `scale`, and divide the gradients, summed over the replicas, by it.
    The factor doubles after 2,000 consecutive steps with finite gradients. It halves, but not
    below 1, after a step whose gradients are not finite; such a step must be skipped. Create the
    object in the strategy's scope.

    A checkpoint must hold the variables in `state`.

    Source: Mixed Precision Training (arXiv:1710.03740) section 3.2, with the numbers of
    `keras.optimizers.LossScaleOptimizer`.
    """

    def __init__(self):
        self.scale = tf.Variable(_INITIAL_SCALE, trainable=False, dtype=tf.float32)
        self._good_steps = tf.Variable(0, trainable=False, dtype=tf.int64)
        self.state = {"scale": self.scale, "good_steps": self._good_steps}

    def update(self, finite: tf.Tensor) -> None:
        """Counts a step and adjusts the scale; `finite`, bool [], is that of its gradients.

        Call it once for all replicas, as in `merge_call`.
        """
        count = tf.where(finite, self._good_steps + 1, 0)
        grows = count == _GROWTH_STEPS
        grown = tf.where(grows, 2.0 * self.scale, self.scale)
        self.scale.assign(tf.where(finite, grown, tf.maximum(0.5 * self.scale, 1.0)))
        self._good_steps.assign(tf.where(grows, tf.zeros_like(count), count))

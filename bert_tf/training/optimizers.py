"""AdamW as in the original BERT, and LAMB for large batches."""

import math
import re
from collections.abc import Sequence

import keras
import tensorflow as tf


class Optimizer:
    """Base class of `AdamW` and `Lamb`: Adam's moments and the update of the variables.

    It is not a `keras.optimizers.Optimizer`, because those clip each replica's gradient before the
    all-reduce; the original clips the sum.

    Args:
        variables: the trainable variables; create the optimizer in their strategy's scope.
        weight_decay: weight decay of variables whose path does not match `exclude`.
        exclude: regular expression; the default matches biases and the two parameters of layer
            normalization.
        bias_correction: whether to correct the bias of the moments toward 0.
        rate_factors: a factor on the learning rate of each variable; None for 1.

    Attributes:
        adapts: whether updates are scaled to the norm of their variable.
        slots: the variables that a checkpoint must hold, by name: `<path>/adam_m`,
            `<path>/adam_v` and, with `bias_correction`, the number of updates, `update_count`.
    """

    adapts = False

    def __init__(
        self,
        variables: Sequence[keras.Variable],
        weight_decay: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        exclude: str = r"(^|/|_)bias$|/gamma$|/beta$",
        bias_correction: bool = False,
        rate_factors: Sequence[float] | None = None,
    ):
        self.weight_decay = weight_decay
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self.bias_correction = bias_correction
        self._targets = [variable.value for variable in variables]
        self._rate_factors = rate_factors or [1.0] * len(variables)
        self._excluded = [bool(re.search(exclude, variable.path)) for variable in variables]
        self._moments = [
            [tf.Variable(tf.zeros(variable.shape), trainable=False) for _ in range(2)]
            for variable in variables
        ]
        self.slots = {}
        for variable, (m, v) in zip(variables, self._moments, strict=True):
            self.slots |= {f"{variable.path}/adam_m": m, f"{variable.path}/adam_v": v}
        if bias_correction:
            self.slots["update_count"] = tf.Variable(0, dtype=tf.int64, trainable=False)

    def apply(
        self,
        gradients: Sequence[tf.Tensor],
        learning_rate: tf.Tensor,
        scale: tf.Tensor | float = 1.0,
        finite: tf.Tensor | None = None,
    ) -> None:
        """Updates the variables; must be called in a replica context.

        Args:
            gradients: dense and already summed over the replicas, in the order of the variables.
            learning_rate: scalar.
            scale: scalar factor on the gradients, which clips them.
            finite: boolean scalar of `DynamicLossScale.unscale`; nothing changes if it is false.
        """
        tf.distribute.get_replica_context().merge_call(
            self._update_unless_skipped, args=(list(gradients), learning_rate, scale, finite)
        )

    def _update_unless_skipped(self, strategy, gradients, learning_rate, scale, finite) -> None:
        if finite is None:
            self._update_all(strategy, gradients, learning_rate, scale)
            return
        # Not around `apply`, because merge_call does not work inside a condition.
        tf.cond(
            strategy.experimental_local_results(finite)[0],
            lambda: self._update_all(strategy, gradients, learning_rate, scale),
            lambda: None,
        )

    def _update_all(self, strategy, gradients, learning_rate, scale) -> None:
        weights = self._moment_weights()
        for target, moments, gradient, factor, excluded in zip(
            self._targets, self._moments, gradients, self._rate_factors, self._excluded, strict=True
        ):
            rate = learning_rate if factor == 1.0 else learning_rate * factor
            strategy.extended.update(
                target, self._update, args=(*moments, gradient, scale, rate, weights, excluded)
            )

    def _moment_weights(self) -> tuple:
        """Returns the sums of the weights in m and v: 1 - beta^t, or 1 without bias correction."""
        if not self.bias_correction:
            return 1.0, 1.0
        count = self.slots["update_count"]
        count.assign_add(1)
        count = tf.cast(count.read_value(), tf.float32)
        # In float32, 1 - 0.999 would have a relative error of 5e-5.
        return tuple(-tf.math.expm1(count * math.log(b)) for b in (self.beta_1, self.beta_2))

    def _update(
        self, variable, m, v, gradient, scale, learning_rate, weights, excluded: bool
    ) -> None:
        # Handles, because a compiled function would treat the moments of all devices as constants.
        handles = variable.handle, m.handle, v.handle
        decay = 0.0 if excluded else self.weight_decay
        rule = self.beta_1, self.beta_2, self.epsilon, decay, self.adapts and not excluded
        _compiled_update(handles, gradient, scale, learning_rate, weights, rule)


# Compiled on every device: separate operations would read and write the weights about twice as
# often. At module level, so that optimizers share the compiled function.
@tf.function(jit_compile=True, autograph=False)
def _compiled_update(handles, gradient, scale, learning_rate, weights, rule: tuple) -> None:
    variable, m, v = (
        tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32) for handle in handles
    )
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
    for handle, value in zip(handles, (variable - learning_rate * update, m, v), strict=True):
        tf.raw_ops.AssignVariableOp(resource=handle, value=value)


class AdamW(Optimizer):
    """Adam with decoupled weight decay and, as in the original BERT, without bias correction.

        m <- beta_1 m + (1 - beta_1) g
        v <- beta_2 v + (1 - beta_2) g^2
        w <- w - learning_rate (m / (sqrt(v) + epsilon) + weight_decay w)

    With `bias_correction`, after t updates, m / (1 - beta_1^t) and v / (1 - beta_2^t) replace m and
    v in the last line.

    Args: see `Optimizer`.

    Source: Decoupled Weight Decay Regularization (arXiv:1711.05101) algorithm 2; google-research/
    bert optimization.py `AdamWeightDecayOptimizer`.
    """


class Lamb(Optimizer):
    """Adam with each variable's update scaled to `learning_rate` times the variable's norm.

        u <- m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon) + weight_decay w
        w <- w - learning_rate |w| / |u| u

    with m and v as in `AdamW`. The trust ratio |w| / |u| is 1 where |w| or |u| is 0, and for
    excluded variables, which do not decay either. Query, key and value share one ratio, because
    they share a variable in `SelfAttention`.

    Args: see `Optimizer`. google-research/albert has no bias correction.

    Source: Large Batch Optimization for Deep Learning (arXiv:1904.00962) algorithm 2;
    google-research/albert lamb_optimizer.py `LAMBOptimizer`.
    """

    adapts = True

    def __init__(
        self, variables: Sequence[keras.Variable], *, bias_correction: bool = True, **kwargs
    ):
        super().__init__(variables, bias_correction=bias_correction, **kwargs)


OPTIMIZERS = {"adamw": AdamW, "lamb": Lamb}

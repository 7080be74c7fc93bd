"""Dropout whose seed is an argument."""

import keras

from bert_tf.layers import fused
from bert_tf.layers.seeds import next_seed


@keras.saving.register_keras_serializable(package="bert_tf")
class Dropout(keras.layers.Layer):
    """Sets elements to 0 in training, each with probability `rate`, and scales the others up.

    The seed decides which: the same seed drops the same elements, whatever ran before. A resumed
    run therefore draws the masks that it would have drawn without the interruption, and a layer
    that is recomputed in the backward pass drops the same elements again.

    Args:
        rate: the probability, at least 0 and below 1.
        recompute: whether the backward pass draws the mask again instead of keeping it.

    Call: `x` of any shape, `seeds` a `DropoutSeeds` -> the shape of x. Outside of training, or if
    the rate is 0, it returns x and needs no seeds.

    Raises:
        ValueError: in training, without seeds.

    Source: Dropout (Srivastava et al., 2014).
    """

    def __init__(self, rate: float, recompute: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate
        self.recompute = recompute
        self.built = True

    def call(self, x, seeds=None, training=None):
        seed = next_seed(seeds)
        if not training or not self.rate:
            return x
        return fused.dropout(x, self.rate, seed, self.recompute)

    def get_config(self):
        return super().get_config() | {"rate": self.rate, "recompute": self.recompute}

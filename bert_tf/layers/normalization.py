"""Layer normalization."""

import keras
from keras import ops

from bert_tf.layers import fused


@keras.saving.register_keras_serializable(package="bert_tf")
class LayerNormalization(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` of the last axis, with the same weights and values.

    Both the normalization and its gradient are computed in float32.

    Source: Layer Normalization (arXiv:1607.06450).
    """

    def call(self, x):
        output = fused.layer_norm(x, self.gamma, self.beta, self.epsilon)
        return ops.cast(output, self.compute_dtype)

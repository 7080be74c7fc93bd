"""The base class of layers."""

import contextlib
from collections.abc import Callable, Iterator

import keras

from bert_tf.layers import fused
from bert_tf.layers.initializers import truncated_normal


class Layer(keras.layers.Layer):
    """A layer that Keras saves as the arguments of its constructor, which are plain values.

    Attributes:
        initializer_range: the standard deviation of the truncated normal initializer.
        reads: maps the name and the input of a dense layer to what it reads; see `dense_inputs`.
    """

    initializer_range = 0.02
    reads: Callable | None = None

    def __new__(cls, *args, **kwargs):
        # Keras saves the dtype, which may be an object, itself.
        kwargs.pop("dtype", None)
        return super().__new__(cls, *args, **kwargs)

    def add_table(self, name: str, rows: int, width: int):
        """Adds a table of embeddings [rows, width], truncated normal."""
        return self.add_weight(
            name=name,
            shape=(rows, width),
            initializer=truncated_normal(self.initializer_range),
            # Rows are cast after the lookup: casting the whole table would cost more than the
            # lookup, and make its gradient dense and less precise.
            autocast=False,
        )

    def add_dense(self, name: str, width: int, outputs: int) -> None:
        """Adds `<name>_kernel` [width, outputs], truncated normal, and `<name>_bias`, zeros."""
        normal, shape = truncated_normal(self.initializer_range), (width, outputs)
        kernel = self.add_weight(name=f"{name}_kernel", shape=shape, initializer=normal)
        bias = self.add_weight(name=f"{name}_bias", shape=(outputs,), initializer="zeros")
        setattr(self, f"{name}_kernel", kernel)
        setattr(self, f"{name}_bias", bias)

    def dense(self, name: str, x):
        """Computes a dense layer: [..., width] -> [..., outputs]."""
        if self.reads:
            x = self.reads(name, x)
        return fused.dense(x, *self._dense_weights(name))

    def feed_forward(self, activation: str, x):
        """Computes the dense layers "intermediate" and "output", with an activation between."""
        if self.reads:
            hidden = fused.activation(activation)(self.dense("intermediate", x))
            return self.dense("output", hidden)
        weights = *self._dense_weights("intermediate"), *self._dense_weights("output")
        # Weights in bfloat16 mean that the model is for fast inference.
        return fused.feed_forward(activation, x, *weights, wide=self.variable_dtype != "bfloat16")

    def _dense_weights(self, name: str):
        return getattr(self, f"{name}_kernel"), getattr(self, f"{name}_bias")


@contextlib.contextmanager
def dense_inputs(layer: keras.layers.Layer, function: Callable) -> Iterator[None]:
    """Replaces what the dense layers in a layer or model read by `function(name, input)`."""
    layers = [found for found in layer._flatten_layers() if isinstance(found, Layer)]
    for found in layers:
        found.reads = function
    try:
        yield
    finally:
        for found in layers:
            found.reads = None

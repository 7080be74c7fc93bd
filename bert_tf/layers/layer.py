"""The base classes of layers, and of all that is made for a configuration."""

import contextlib
from collections.abc import Callable, Iterator
from typing import ClassVar

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.layers import fused
from bert_tf.layers.initial_weights import truncated_normal


class Configured:
    """A layer or model that Keras saves, and loads, with the configuration that it was made for.

    Attributes:
        arguments: those of the constructor besides config, name and dtype; they are attributes.
    """

    arguments: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if Configured not in cls.__bases__:  # Those are base classes themselves.
            keras.saving.register_keras_serializable(package="bert_tf")(cls)

    def get_config(self):
        """Returns the arguments of the constructor as plain values."""
        return {
            "config": self.config.to_dict(),
            **{name: getattr(self, name) for name in self.arguments},
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            # Also of the layers inside, which may be frozen one by one.
            "trainable": [layer.trainable for layer in self._flatten_layers()],
        }

    @classmethod
    def from_config(cls, config):
        """Creates a layer or model from the result of `get_config`."""
        config = config | {"config": BertConfig.from_dict(config["config"])}
        trainable = config.pop("trainable", ())
        made = cls(**config)
        for layer, value in zip(made._flatten_layers(), trainable, strict=False):
            layer.trainable = value
        return made


class Layer(Configured, keras.layers.Layer):
    """The base class of layers.

    Attributes:
        reads: maps this layer, and the name and the input of one of its dense layers, to what that
            reads; see `dense_inputs`.
    """

    reads: Callable | None = None

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config

    def add_table(self, name: str, rows: int, width: int):
        """Adds a table of embeddings [rows, width], truncated normal."""
        return self.add_weight(
            name=name,
            shape=(rows, width),
            initializer=truncated_normal(self.config.initializer_range),
            # Rows are cast after the lookup: casting the whole table would cost more than the
            # lookup, and make its gradient dense and less precise.
            autocast=False,
        )

    def add_dense(self, name: str, width: int, outputs: int) -> None:
        """Adds `<name>_kernel` [width, outputs], truncated normal, and `<name>_bias`, zeros."""
        normal = truncated_normal(self.config.initializer_range)
        kernel = self.add_weight(name=f"{name}_kernel", shape=(width, outputs), initializer=normal)
        bias = self.add_weight(name=f"{name}_bias", shape=(outputs,), initializer="zeros")
        setattr(self, f"{name}_kernel", kernel)
        setattr(self, f"{name}_bias", bias)

    def dense(self, name: str, x):
        """Computes a dense layer: [..., width] -> [..., outputs]."""
        if self.reads:
            x = self.reads(self, name, x)
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


@keras.saving.register_keras_serializable(package="bert_tf")
class LayerNormalization(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` of the last axis, with the same weights and values.

    Both the normalization and its gradient are computed in float32.

    Source: Layer Normalization (arXiv:1607.06450).
    """

    def call(self, x):
        output = fused.layer_norm(x, self.gamma, self.beta, self.epsilon)
        return ops.cast(output, self.compute_dtype)


@contextlib.contextmanager
def dense_inputs(layer: keras.layers.Layer, function: Callable) -> Iterator[None]:
    """Replaces what the dense layers in a layer or model read.

    `function` gets the layer that a dense layer belongs to, its name, such as "intermediate", and
    its input, and returns what it reads instead.
    """
    layers = [found for found in layer._flatten_layers() if isinstance(found, Layer)]
    for found in layers:
        found.reads = function
    try:
        yield
    finally:
        for found in layers:
            found.reads = None

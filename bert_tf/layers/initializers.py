"""What layers share: how weights start, and the activations of `bert_config.json`."""

from collections.abc import Callable

import keras


def truncated_normal(stddev: float) -> keras.initializers.Initializer:
    """Normal values cut at two standard deviations (google-research/bert `create_initializer`)."""
    return keras.initializers.TruncatedNormal(stddev=stddev)


def add_dense(layer: keras.layers.Layer, name: str, shape: tuple[int, int], stddev: float):
    """Adds `<name>_kernel` [in, out], truncated normal, and `<name>_bias` [out], 0, to a layer."""
    kernel = layer.add_weight(
        name=f"{name}_kernel", shape=shape, initializer=truncated_normal(stddev)
    )
    return kernel, layer.add_weight(name=f"{name}_bias", shape=shape[1:], initializer="zeros")


def activation(name: str) -> Callable:
    """The function of a `hidden_act`: "gelu" is exact (erf), "gelu_new" the tanh approximation."""
    if name in ("gelu", "gelu_new"):
        return lambda x: keras.activations.gelu(x, approximate=name == "gelu_new")
    return keras.activations.get(name)

"""Initializers of weights."""

import keras


def truncated_normal(stddev: float) -> keras.initializers.Initializer:
    """Returns a normal initializer truncated at two standard deviations.

    Source: google-research/bert modeling.py `create_initializer`.
    """
    return keras.initializers.TruncatedNormal(stddev=stddev)


def add_dense(layer: keras.layers.Layer, name: str, shape: tuple[int, int], stddev: float):
    """Adds the weights of a dense layer to `layer`.

    Returns:
        `<name>_kernel` [in, out], truncated normal, and `<name>_bias` [out], zeros.
    """
    kernel = layer.add_weight(
        name=f"{name}_kernel", shape=shape, initializer=truncated_normal(stddev)
    )
    return kernel, layer.add_weight(name=f"{name}_bias", shape=shape[1:], initializer="zeros")

"""Initializers of weights."""

import keras


def truncated_normal(stddev: float) -> keras.initializers.Initializer:
    """Returns a normal initializer truncated at two standard deviations.

    Source: google-research/bert modeling.py `create_initializer`.
    """
    return keras.initializers.TruncatedNormal(stddev=stddev)

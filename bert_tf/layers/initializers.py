"""How weights start."""

import keras


def truncated_normal(stddev: float) -> keras.initializers.Initializer:
    """Normal values cut at two standard deviations (google-research/bert `create_initializer`)."""
    return keras.initializers.TruncatedNormal(stddev=stddev)

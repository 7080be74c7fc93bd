"""TensorFlow without the notes it writes at its start."""

import os


def import_tensorflow() -> None:
    """Imports TensorFlow and finds its devices without what they print about themselves.

    Some of it is written before any log level applies, so standard error goes nowhere meanwhile.
    """
    saved = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        import tensorflow as tf

        tf.config.list_physical_devices()
    finally:
        os.dup2(saved, 2)
        os.close(saved)

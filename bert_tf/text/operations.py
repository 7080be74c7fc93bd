"""The operations of tensorflow-text, or one line that says how to install them."""

import tensorflow as tf

try:
    import tensorflow_text as tf_text  # noqa: F401
except ImportError:
    _version = ".".join(tf.__version__.split(".")[:2])
    # Its dependency is another build of TensorFlow than that for TPUs.
    raise ValueError(
        "text needs tensorflow-text, which also works beside tensorflow-tpu: pip install "
        f"--no-deps 'tensorflow-text=={_version}.*'"
    ) from None

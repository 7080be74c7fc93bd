"""Fixtures shared by all tests."""

import os
import pathlib

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

# Two devices, so that a test can share a batch between replicas.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)


@pytest.fixture(autouse=True)
def float32():
    """A precision that one test has set is none of the next one's business."""
    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """Real corpora, vocabularies and weights; a test that needs them is skipped without."""
    path = pathlib.Path(__file__).parents[2] / "shared" / "data"
    if not path.is_dir():
        pytest.skip("needs ../shared/data beside the checkout")
    return path

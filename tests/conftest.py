"""Fixtures shared by all tests."""

import os
import pathlib

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """The folder of real corpora, vocabularies and weights; a test that needs it is skipped without."""
    path = pathlib.Path(__file__).parents[2] / "shared" / "data"
    if not path.is_dir():
        pytest.skip("needs ../shared/data beside the checkout")
    return path

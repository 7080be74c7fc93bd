"""Fixtures shared by the tests of the formats."""

import pathlib
import tarfile

import pytest


@pytest.fixture(scope="session")
def garden(tmp_path_factory):
    """The folder of what make_model_garden_golden.py made."""
    folder = tmp_path_factory.mktemp("model_garden")
    with tarfile.open(pathlib.Path(__file__).with_name("model_garden.tar.xz")) as archive:
        # Python before 3.11.4 has no such filters, and does not look for them.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return folder

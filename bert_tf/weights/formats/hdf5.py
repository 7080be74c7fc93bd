"""Tensors in HDF5 files, as Keras writes them."""

import contextlib
import functools
from collections.abc import Iterable, Iterator

import h5py
import ml_dtypes
import numpy as np
import tensorflow as tf

from bert_tf.training.checkpoints import Tensor
from tfrecords.files import named_errors


def tensors(path: str) -> dict[str, Tensor]:
    """Returns the tensors of a file, by their paths in it.

    Links to other files are not followed.
    """
    found: dict[str, Tensor] = {}

    def add(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        # Before memory is taken for it.
        if item.shape is None:
            raise ValueError(f"{path}: {item.name} holds no values")
        if item.external or item.is_virtual:
            raise ValueError(f"{path}: {item.name} is kept in another file, which is not read")
        # Keras writes no compressed tensors.
        if item.nbytes > min(item.id.get_storage_size(), size):
            raise ValueError(f"{path}: {item.name} declares more values than the file holds")
        found[name] = Tensor(item.shape, functools.partial(_read, path, name))

    with _opened(path) as file:
        size = tf.io.gfile.stat(path).length
        file.visititems(add)
    return found


def write(path: str, arrays: Iterable[tuple[str, np.ndarray]]) -> None:
    """Writes arrays by their paths in the file."""
    with h5py.File(path, "w") as file:
        for name, array in arrays:
            file[name] = array


def _read(path: str, name: str) -> np.ndarray:
    with _opened(path) as file:
        array = file[name][()]
        if file[name].attrs.get("dtype") == "bfloat16":
            array = array.view(ml_dtypes.bfloat16)
        return array


@contextlib.contextmanager
def _opened(path: str) -> Iterator[h5py.File]:
    """Opens a file; turns the various errors for damaged files into one OSError."""
    with named_errors(f"cannot read {path}"), tf.io.gfile.GFile(path, "rb") as source:
        try:
            with h5py.File(source, "r") as file:
                yield file
        except (OSError, KeyError, RuntimeError, TypeError) as error:
            raise OSError(f"{path} is damaged or incomplete: download or copy it again") from error

"""Tensors in model.safetensors, in one file or in shards, and in the HDF5 files of Keras."""

import contextlib
import functools
import os
import re
import tempfile
from collections.abc import Iterable, Iterator

import h5py
import ml_dtypes
import numpy as np
import tensorflow as tf

from bert_tf.base.files import read_file, read_json, reading, whole
from bert_tf.base.process import needed
from bert_tf.training.checkpoints import Tensor

FILE = "model.safetensors"
INDEX = f"{FILE}.index.json"
# Integers are those of buffers, such as `position_ids`.
_TYPES = dict(F64="float64", F32="float32", F16="float16", BF16="bfloat16", I64="int64")


def open_tensors(folder: str) -> tuple[dict[str, Tensor], set[str]]:
    """Returns the tensors of a folder by their names, and the types of the numbers on disk."""
    if tf.io.gfile.exists(os.path.join(folder, FILE)):
        return _open(os.path.join(folder, FILE))
    index = os.path.join(folder, INDEX)
    shards = read_json(index, {"weight_map": dict[str, str]})["weight_map"].values()
    for name in shards:
        # A name with a folder could lead to any file of the machine.
        if not re.fullmatch(r"[^/\\:]+\.safetensors", name):
            raise ValueError(f"{index} names {name!r}, which is not a .safetensors file beside it")
    tensors, types = {}, set()
    for shard in sorted(set(shards)):
        found, shard_types = _open(os.path.join(folder, shard))
        tensors |= found
        types |= shard_types
    return tensors, types


def _open(path: str) -> tuple[dict[str, Tensor], set[str]]:
    """Returns the tensors of a file, and the types of their numbers."""
    with needed("safetensors", f"{path} needs"):
        from safetensors import safe_open
    if not tf.io.gfile.exists(path):
        raise FileNotFoundError(f"{path} is missing: download or copy it again")
    read_file(path, 64)  # says why it cannot be read
    with _reading(path), _local_copy(path) as local:
        file = safe_open(local, framework="np")
        slices = {name: file.get_slice(name) for name in file.keys()}
    types = {name: piece.get_dtype() for name, piece in slices.items()}
    if wrong := sorted(name for name in types if types[name] not in _TYPES):
        raise ValueError(
            f"{path}: {wrong[0]} has type {types[wrong[0]]}: use the model before it was quantized"
        )

    def read(name: str) -> np.ndarray:
        with _reading(path):
            return file.get_tensor(name)

    tensors = {
        name: Tensor(tuple(piece.get_shape()), functools.partial(read, name))
        for name, piece in slices.items()
    }
    return tensors, {_TYPES[kind] for kind in types.values()}


@contextlib.contextmanager
def _reading(path: str) -> Iterator[None]:
    """Turns errors of damaged files into OSErrors."""
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, tf.errors.OpError, OSError) as error:
        reason = str(error).removeprefix("Error while deserializing header: ")
        raise OSError(
            f"{path} is damaged or incomplete ({reason}): download or copy it again"
        ) from None


@contextlib.contextmanager
def _local_copy(path: str) -> Iterator[str]:
    """Yields a local file with the content of `path`; it need exist only while it is opened."""
    if "://" not in path:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, FILE)
        tf.io.gfile.copy(path, copy)
        yield copy


def hdf5_tensors(path: str) -> dict[str, Tensor]:
    """Returns the tensors of an HDF5 file, by their paths; follows no links to other files."""
    found: dict[str, Tensor] = {}

    def add(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        # Before memory is taken for it. Keras writes no compressed tensors.
        inside = item.shape is not None and not item.external and not item.is_virtual
        if not inside or item.nbytes > min(item.id.get_storage_size(), size):
            raise ValueError(f"{path}: the values of {item.name} are not all in this file")
        found[name] = Tensor(item.shape, functools.partial(_read_hdf5, path, name))

    with _opened_hdf5(path) as file:
        size = tf.io.gfile.stat(path).length
        file.visititems(add)
    return found


def write_hdf5(path: str, arrays: Iterable[tuple[str, np.ndarray]]) -> None:
    """Writes arrays by their paths in an HDF5 file."""
    with h5py.File(path, "w") as file:
        for name, array in arrays:
            file[name] = array


def _read_hdf5(path: str, name: str) -> np.ndarray:
    with _opened_hdf5(path) as file:
        array = file[name][()]
        if file[name].attrs.get("dtype") == "bfloat16":
            array = array.view(ml_dtypes.bfloat16)
        return array


@contextlib.contextmanager
def _opened_hdf5(path: str) -> Iterator[h5py.File]:
    """Opens a file; turns the various errors for damaged files into one OSError."""
    read_file(path, 64)
    with reading(path) as source, whole(path, OSError, KeyError, RuntimeError, TypeError):
        with h5py.File(source, "r") as file:
            yield file

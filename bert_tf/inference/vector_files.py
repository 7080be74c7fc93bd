"""Writes vectors: JSON lines as in the original, NumPy arrays, TFRecords, or for TensorBoard."""

import contextlib
import json
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import IO

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

from bert_tf.inference.vectors import LineVectors
from tfrecords.files import read_file
from tfrecords.vocabulary import Vocabulary
from tfrecords.writer import atomic_write, whole_file

Layers = Sequence[int | str]
Write = Callable[[int, LineVectors], None]
_COPY_BYTES = 2**20


@contextlib.contextmanager
def json_lines(path: str, layers: Layers, vocab: Vocabulary, dtype: np.dtype) -> Iterator[Write]:
    """Writes google-research/bert's format, with `start` and `limit` of every token added."""

    with whole_file(path) as temporary, tf.io.gfile.GFile(temporary, "w") as file:

        def write(index: int, vectors: LineVectors) -> None:
            features = []
            for number, rows in enumerate(np.round(vectors.values.astype(np.float64), 6).tolist()):
                pairs = zip(layers, rows, strict=True)
                feature = {
                    "token": _name(vectors, number, vocab),
                    "start": int(vectors.starts[number]),
                    "limit": int(vectors.limits[number]),
                    "layers": [{"index": layer, "values": row} for layer, row in pairs],
                }
                features.append(feature)
            file.write(json.dumps({"linex_index": index, "features": features}) + "\n")

        yield write


@contextlib.contextmanager
def records(path: str, layers: Layers, vocab: Vocabulary, dtype: np.dtype) -> Iterator[Write]:
    """Writes a record per line; tf.io.parse_tensor reads its `values`. See `read_records`."""

    def serialize(index: int, vectors: LineVectors) -> bytes:
        columns = {"line_index": [index]} | _columns(vectors)
        feature = {
            name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
            for name, values in columns.items()
        }
        values = tf.io.serialize_tensor(vectors.values.astype(dtype)).numpy()
        for name, data in (("values", values), ("text", vectors.text)):
            feature[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[data]))
        example = tf.train.Example(features=tf.train.Features(feature=feature))
        return example.SerializeToString(deterministic=True)

    with whole_file(path) as temporary, tf.io.TFRecordWriter(temporary) as writer:
        yield lambda index, vectors: writer.write(serialize(index, vectors))


def read_records(path: str, dtype: np.dtype) -> Iterator[tuple[int, LineVectors]]:
    """Yields the index and the vectors of each line in a file of `records`."""
    for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
        feature = tf.train.Example.FromString(record).features.feature
        index, starts, limits, ids = (
            np.array(feature[name].int64_list.value, np.int32) if name in feature else None
            for name in ("line_index", "starts", "limits", "ids")
        )
        values, text = (feature[name].bytes_list.value[0] for name in ("values", "text"))
        values = tf.io.parse_tensor(values, dtype).numpy()
        yield int(index[0]), LineVectors(text, values, starts, limits, ids)


@contextlib.contextmanager
def npz(path: str, layers: Layers, vocab: Vocabulary, dtype: np.dtype) -> Iterator[Write]:
    """Writes arrays for np.load: all lines one after another, and `row_splits` between them."""
    with whole_file(path) as temporary, contextlib.ExitStack() as after:
        folder = f"{temporary}.arrays"
        tf.io.gfile.makedirs(folder)
        after.callback(tf.io.gfile.rmtree, folder)
        arrays: dict[str, _GrowingArray] = {}

        def append(name: str, rows: np.ndarray) -> None:
            if name not in arrays:
                arrays[name] = _GrowingArray(f"{folder}/{name}", rows.dtype, rows.shape[1:])
            arrays[name].append(rows)

        def write(index: int, vectors: LineVectors) -> None:
            append("values", vectors.values.astype(dtype))
            for name, rows in _columns(vectors).items():
                append(name, rows)
            append("row_splits", np.array([arrays["starts"].length]))

        append("layers", np.array([str(layer) for layer in layers]))
        append("row_splits", np.zeros(1, np.int64))
        yield write
        with tf.io.gfile.GFile(temporary, "wb") as file:
            with zipfile.ZipFile(_Stream(file), "w") as archive:
                for name, array in arrays.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        array.copy_to(member)


def _columns(vectors: LineVectors) -> dict[str, np.ndarray]:
    columns = {"starts": vectors.starts, "limits": vectors.limits}
    return columns if vectors.ids is None else columns | {"ids": vectors.ids}


class _Stream:
    """A file for zipfile, which writes from start to end if there is no `seek`.

    Cloud storage cannot seek, and `GFile.seek` raises an error that zipfile does not expect.
    """

    def __init__(self, file: tf.io.gfile.GFile):
        self._file, self.flush = file, file.flush

    def write(self, data: bytes) -> int:
        self._file.write(data)
        return len(data)


class _GrowingArray:
    """An array on disk, because the header of a .npy file states the final length."""

    def __init__(self, path: str, dtype: np.dtype, row_shape: tuple[int, ...]):
        self.length = 0
        self._path, self._dtype, self._row_shape = path, dtype, row_shape
        self._file = tf.io.gfile.GFile(path, "wb")

    def append(self, rows: np.ndarray) -> None:
        self._file.write(rows.tobytes())
        self.length += len(rows)

    def copy_to(self, target: IO[bytes]) -> None:
        """Writes a .npy file."""
        self._file.close()
        header = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self.length, *self._row_shape),
        }
        np.lib.format.write_array_header_1_0(target, header)
        with tf.io.gfile.GFile(self._path, "rb") as source:
            while block := source.read(_COPY_BYTES):
                target.write(block)


@contextlib.contextmanager
def projector(path: str, layers: Layers, vocab: Vocabulary, dtype: np.dtype) -> Iterator[Write]:
    """Writes the vectors of one layer, and beside them what TensorBoard's projector needs."""
    labels_path = f"{path.removesuffix('.tsv')}.metadata.tsv"
    with (
        whole_file(path) as temporary,
        whole_file(labels_path) as temporary_labels,
        tf.io.gfile.GFile(temporary, "w") as file,
        tf.io.gfile.GFile(temporary_labels, "w") as labels,
    ):
        labels.write("text\tline\tcontext\n")

        def write(index: int, vectors: LineVectors) -> None:
            # Tabs and line breaks would begin another cell or row.
            context = " ".join(vectors.text.decode("utf-8", "replace").split())
            for number, row in enumerate(vectors.values[:, 0]):
                file.write("\t".join(f"{value:.6g}" for value in row) + "\n")
                name = " ".join(_name(vectors, number, vocab).split())
                labels.write(f"{name}\t{index + 1}\t{context}\n")

        yield write
    add_to_projector(path, labels_path)


def _name(vectors: LineVectors, index: int, vocab: Vocabulary) -> str:
    """Returns the token, word or line that a vector stands for."""
    if vectors.ids is not None:
        return vocab.tokens[vectors.ids[index]]
    text = vectors.text[vectors.starts[index] : vectors.limits[index]]
    return text.decode("utf-8", "replace")


# By the ending of the file's name.
FORMATS = {".jsonl": json_lines, ".npz": npz, ".tfrecord": records, ".tsv": projector}


def add_to_projector(vectors: str, labels: str) -> None:
    """Adds files with vectors and their labels to the projector_config.pbtxt of their folder."""
    # Imported late, because it takes a second.
    from tensorboard.plugins.projector import ProjectorConfig
    from tensorboard.plugins.projector.metadata import PROJECTOR_FILENAME

    folder, name = os.path.split(vectors)
    path = os.path.join(folder, PROJECTOR_FILENAME)
    config = ProjectorConfig()
    if tf.io.gfile.exists(path):
        try:
            text_format.Parse(read_file(path), config)
        except text_format.ParseError as error:
            raise ValueError(f"{path} is damaged ({error}): remove it") from None
    others = [embedding for embedding in config.embeddings if embedding.tensor_path != name]
    del config.embeddings[:]
    config.embeddings.extend(others)
    config.embeddings.add(
        tensor_name=name.removesuffix(".tsv"),
        tensor_path=name,
        metadata_path=os.path.basename(labels),
    )
    atomic_write(path, text_format.MessageToString(config))

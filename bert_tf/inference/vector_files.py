"""Writes vectors: JSON lines as in the original, NumPy, Parquet, TFRecords, or for TensorBoard."""

import collections
import itertools
import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

from bert_tf.base.files import output_stream, read_file
from bert_tf.base.output_files import atomic_write
from bert_tf.inference.texts import in_groups
from bert_tf.inference.vectors import LineVectors
from bert_tf.tables.parquet import import_pyarrow, write_tables
from tfrecords.features import serialize_example
from tfrecords.vocabulary import Vocabulary

_GROUP_ROWS = 4096
# The index and the vectors of each line.
Lines = Iterable[tuple[int, LineVectors]]


def write_json_lines(
    path: str, lines: Lines, layers: Sequence[int | str], vocab: Vocabulary
) -> None:
    """Writes google-research/bert's format, with `start` and `limit` of every token added."""
    with tf.io.gfile.GFile(path, "w") as file:
        for index, vectors in lines:
            values = np.round(vectors.values.astype(np.float64), 6).tolist()
            features = [
                {
                    "token": _name(vectors, number, vocab),
                    "start": int(vectors.starts[number]),
                    "limit": int(vectors.limits[number]),
                    "layers": [{"index": layers[i], "values": row} for i, row in enumerate(rows)],
                }
                for number, rows in enumerate(values)
            ]
            file.write(json.dumps({"linex_index": index, "features": features}) + "\n")


def record_of(index: int, vectors: LineVectors, dtype: np.dtype) -> bytes:
    """Returns a line as a record; tf.io.parse_tensor reads its `values`. See `read_records`."""
    columns = {name: values.tolist() for name, values in _columns(vectors).items()}
    values = tf.io.serialize_tensor(vectors.values.astype(dtype)).numpy()
    others = {"line_index": [index], "values": [values], "text": [vectors.text]}
    return serialize_example(columns | others)


def read_records(path: str, dtype: np.dtype) -> Iterator[tuple[int, LineVectors]]:
    """Yields the index and the vectors of each line in a file of records of `record_of`."""
    for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
        feature = tf.train.Example.FromString(record).features.feature
        index, starts, limits, ids = (
            np.array(feature[name].int64_list.value, np.int32) if name in feature else None
            for name in ("line_index", "starts", "limits", "ids")
        )
        values, text = (feature[name].bytes_list.value[0] for name in ("values", "text"))
        values = tf.io.parse_tensor(values, dtype).numpy()
        yield int(index[0]), LineVectors(text, values, starts, limits, ids)


def write_npz(
    path: str, lines: Lines, layers: Sequence[int | str], dtype: np.dtype, num_vectors: int
) -> None:
    """Writes arrays for np.load: all lines one after another, and `row_splits` between them."""
    lines = iter(lines)
    first = next(lines)
    splits = np.zeros(1, np.int64)
    # An archive takes one array after another. These are small beside the values.
    columns = collections.defaultdict(bytearray, row_splits=bytearray(splits))
    with (
        tf.io.gfile.GFile(path, "wb") as file,
        zipfile.ZipFile(output_stream(file), "w") as archive,
    ):
        with _member(archive, "values", dtype, (num_vectors, *first[1].values.shape[1:])) as member:
            for _, vectors in itertools.chain([first], lines):
                member.write(vectors.values.astype(dtype).tobytes())
                splits += len(vectors.starts)
                for name, column in (_columns(vectors) | {"row_splits": splits}).items():
                    columns[name] += column.tobytes()
        arrays = {
            name: np.frombuffer(column, np.int64 if name == "row_splits" else np.int32)
            for name, column in columns.items()
        }
        for name, array in (arrays | {"layers": np.array([*map(str, layers)])}).items():
            with _member(archive, name, array.dtype, array.shape) as member:
                member.write(array.tobytes())


def _member(
    archive: zipfile.ZipFile, name: str, dtype: np.dtype, shape: tuple[int, ...]
) -> IO[bytes]:
    """Returns a file for the values of an array in an archive."""
    member = archive.open(f"{name}.npy", "w", force_zip64=True)
    descr = np.lib.format.dtype_to_descr(dtype)
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(member, header)
    return member


def _columns(vectors: LineVectors) -> dict[str, np.ndarray]:
    columns = {"starts": vectors.starts, "limits": vectors.limits}
    return columns if vectors.ids is None else columns | {"ids": vectors.ids}


def write_parquet(
    path: str, lines: Lines, layers: Sequence[int | str], vocab: Vocabulary, dtype: np.dtype
) -> None:
    """Writes a row per vector: its line, what it stands for, and its numbers in each layer."""
    pyarrow = import_pyarrow()

    def table(group: Lines) -> pyarrow.Table:
        values = np.concatenate([vectors.values for _, vectors in group]).astype(dtype)
        texts = [_name(x, i, vocab) for _, x in group for i in range(len(x.starts))]
        columns = {
            "line": np.repeat([n for n, _ in group], [len(x.starts) for _, x in group]),
            "text": pyarrow.array(texts, pyarrow.string()),
            "start": np.concatenate([vectors.starts for _, vectors in group]),
            "limit": np.concatenate([vectors.limits for _, vectors in group]),
        }
        for number, layer in enumerate(layers):
            numbers = pyarrow.array(values[:, number].ravel())
            width = values.shape[-1]
            columns[f"layer_{layer}"] = pyarrow.FixedSizeListArray.from_arrays(numbers, width)
        return pyarrow.table(columns)

    groups = in_groups(lines, lambda line: len(line[1].starts), _GROUP_ROWS)
    write_tables(path, map(table, groups))


def write_projector(path: str, lines: Lines) -> None:
    """Writes the vectors of one layer for TensorBoard's projector."""
    with tf.io.gfile.GFile(path, "w") as file:
        file.write("")  # It would not exist without vectors.
        for _, vectors in lines:
            for row in vectors.values[:, 0]:
                file.write("\t".join(f"{value:.6g}" for value in row) + "\n")


def write_labels(path: str, lines: Lines, vocab: Vocabulary) -> None:
    """Writes the labels of vectors for TensorBoard's projector."""
    with tf.io.gfile.GFile(path, "w") as file:
        file.write("text\tline\tcontext\n")
        for index, vectors in lines:
            # Tabs and line breaks would begin another cell or row.
            context = " ".join(vectors.text.decode("utf-8", "replace").split())
            for number in range(len(vectors.starts)):
                name = " ".join(_name(vectors, number, vocab).split())
                file.write(f"{name}\t{index + 1}\t{context}\n")


def _name(vectors: LineVectors, index: int, vocab: Vocabulary) -> str:
    """Returns the token, word or line that a vector stands for."""
    if vectors.ids is not None:
        return vocab.tokens[vectors.ids[index]]
    text = vectors.text[vectors.starts[index] : vectors.limits[index]]
    return text.decode("utf-8", "replace")


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
            # No ValueError, after which `BulkJob` would drop all that it computed.
            line = f"{path} is not a projector configuration ({error}): move it away"
            raise FileExistsError(line) from None
    others = [embedding for embedding in config.embeddings if embedding.tensor_path != name]
    del config.embeddings[:]
    config.embeddings.extend(others)
    config.embeddings.add(
        tensor_name=name.removesuffix(".tsv"),
        tensor_path=name,
        metadata_path=os.path.basename(labels),
    )
    atomic_write(path, text_format.MessageToString(config))

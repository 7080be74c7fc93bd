"""The GLUE tasks (arXiv:1804.07461) from their official files."""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.examples import TextExamples, TfdsSource
from bert_tf.finetuning.tasks.classification import ClassificationTask


@dataclass(frozen=True)
class TsvFiles:
    """The layout of a task's `<split>.tsv` files.

    Attributes:
        folder: name of the task's folder in the official archive.
        text_a, text_b, label: names of the columns.
        labels: the classes as written in the file, in the order of `ClassificationTask.labels`.
    """

    folder: str
    text_a: str
    labels: tuple[str, ...]
    text_b: str | None = None
    label: str = "label"

    def read(self, data_dir: str, split: str) -> TextExamples:
        """Reads the examples of a split.

        Args:
            data_dir: the folder of the files, or its parent.

        Raises:
            FileNotFoundError: the file is in neither folder.
            ValueError: a column is missing or a label unknown; the message names file and line.
        """
        path = _find(data_dir, self.folder, f"{split}.tsv")
        columns = (
            [self.text_a, self.text_b, self.label] if self.text_b else [self.text_a, self.label]
        )
        rows = _read_columns(path, columns)
        indices = {label.encode(): index for index, label in enumerate(self.labels)}
        labels = []
        for line, row in rows:
            if row[-1] not in indices:
                found = row[-1].decode(errors="replace")
                raise ValueError(
                    f"{path}, line {line}: label {found!r} is not one of {', '.join(self.labels)}"
                )
            labels.append(indices[row[-1]])
        texts_b = [row[1] for _, row in rows] if self.text_b else None
        targets = {"labels": np.array(labels, np.int32)}
        return TextExamples([row[0] for _, row in rows], texts_b, targets)


def _find(data_dir: str, folder: str, name: str) -> str:
    for path in (f"{data_dir}/{name}", f"{data_dir}/{folder}/{name}"):
        if tf.io.gfile.exists(path):
            return path
    raise FileNotFoundError(
        f"{data_dir} contains neither {name} nor {folder}/{name}: name their folder as --data_dir"
    )


def _read_columns(path: str, columns: list[str]) -> list[tuple[int, list[bytes]]]:
    """Reads columns of a TSV file with a header and without quoting, with their line numbers."""
    with tf.io.gfile.GFile(path, "rb") as file:
        # The csv module and splitlines also split at a lone carriage return, which is text here.
        lines = file.read().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    header = [name.decode(errors="replace") for name in lines[0].rstrip(b"\r").split(b"\t")]
    for column in columns:
        if column not in header:
            raise ValueError(f"{path}: the first line has no column {column!r}, only {header}")
    places = [header.index(column) for column in columns]
    rows = []
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        fields = line.rstrip(b"\r").split(b"\t")
        if len(fields) <= max(places):
            raise ValueError(
                f"{path}, line {number}: {len(fields)} columns, but the first line has "
                f"{len(header)}"
            )
        rows.append((number, [fields[place] for place in places]))
    return rows


TASKS = (
    ClassificationTask(
        name="sst2",
        labels=("negative", "positive"),
        read_files=TsvFiles("SST-2", text_a="sentence", labels=("0", "1")).read,
        tfds=TfdsSource("glue/sst2", text_a="sentence"),
    ),
)

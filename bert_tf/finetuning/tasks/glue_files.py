"""Reads the official files of the GLUE tasks: TSV without quoting."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.examples import TextExamples
from bert_tf.finetuning.tables import as_number, read_file
from tfrecords.progress import counted, say

_LABELLED = ("train", "dev", "dev_mismatched")


@dataclass(frozen=True, kw_only=True)
class GlueFiles:
    """The layout of the files of a task.

    Attributes:
        folder: name of the task's folder in the official archive.
        text_a, text_b, label: names of the columns.
        labels: the classes as written in the files, in the order of `ClassificationTask.labels`;
            () if the labels are numbers.
        limits: the least and the greatest of such numbers, by the definition of the task.
        index: name of the column that numbers the examples, in files that have it.
        names: the possible names of a split's file, where it is not `<split>.tsv`; with "/" for
            a file in a folder beside `folder`.
        headers: the columns of files without a header, by split.
        skips_short_lines: whether labelled files have lines without some of the columns, which
            are skipped and counted.
    """

    folder: str
    text_a: str
    text_b: str | None = None
    label: str = "label"
    labels: tuple[str, ...] = ()
    limits: tuple[float, float] = (-np.inf, np.inf)
    index: str = "index"
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    headers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    skips_short_lines: bool = False

    def read(self, data_dir: str, split: str) -> TextExamples:
        """Reads the examples of a split.

        Args:
            data_dir: the folder of the files, or its parent.
        """
        path = self.find(data_dir, split)
        names = [name for name in (self.text_a, self.text_b) if name]
        labelled = split in _LABELLED
        table = _Table(path, self.headers.get(split))
        columns = [*names, self.label] if labelled else names
        rows, notes = table.rows(columns, self.index, self.skips_short_lines and labelled)
        ids, id_notes = table.ids(self.index, rows)
        places = [table.header.index(name) for name in names]
        texts = [[fields[place] for _, fields in rows] for place in places]
        targets = self._targets(table, rows) if labelled else {}
        return TextExamples(
            texts[0], texts[1] if self.text_b else None, targets, ids, (*notes, *id_notes)
        )

    def find(self, data_dir: str, split: str) -> str:
        """Returns the path of a split's file."""
        names = self.names.get(split, (f"{split}.tsv",))
        candidates = [*names, *(f"{self.folder}/{name}" for name in names if "/" not in name)]
        for candidate in candidates:
            if tf.io.gfile.exists(f"{data_dir}/{candidate}"):
                return f"{data_dir}/{candidate}"
        advice = "name their folder as --data_dir"
        if split == "ax":
            advice = "save the diagnostic test set, a file of its own at gluebenchmark.com, there"
        raise FileNotFoundError(f"{data_dir} contains neither {' nor '.join(candidates)}: {advice}")

    def _targets(self, table: "_Table", rows: "_Rows") -> dict[str, np.ndarray]:
        place = table.header.index(self.label)
        targets = []
        for line, fields in rows:
            try:
                targets.append(self.target(fields[place].decode(errors="replace")))
            except ValueError as error:
                raise ValueError(f"{table.path}, line {line}: {self.label} {error}") from None
        if self.labels:
            return {"labels": np.array(targets, np.int32)}
        self._warn_about_range(table.path, rows, targets)
        return {"values": np.array(targets, np.float32)}

    def _warn_about_range(self, path: str, rows: "_Rows", values: list[float]) -> None:
        low, high = self.limits
        lines = [line for (line, _), x in zip(rows, values, strict=True) if not low <= x <= high]
        if lines:
            say(
                f"WARNING: {path}: {len(lines):,} of {len(values):,} values of {self.label} are "
                f"not from {low} to {high}, the first in line {lines[0]}. They stay as they are."
            )

    def submitted(self, outputs: Mapping[str, np.ndarray]) -> list[str]:
        """Returns predictions as the server expects them, like the labels in the files."""
        if self.labels:
            return [self.labels[label] for label in outputs["logits"].argmax(axis=-1)]
        return [f"{value:.3f}" for value in np.clip(outputs["values"], *self.limits)]

    def target(self, label: str) -> int | float:
        """Returns the index of a class, or the number, that is written in the files as `label`."""
        if not self.labels:
            if not np.isfinite(number := as_number(label)):
                raise ValueError(f"{label!r} is not a number")
            return number
        if label not in self.labels:
            raise ValueError(f"{label!r} is not one of {', '.join(self.labels)}")
        return self.labels.index(label)


# Line numbers, and the fields of each line.
_Rows = list[tuple[int, list[bytes]]]


class _Table:
    """The lines of a TSV file that are not blank.

    Args:
        header: the names of the columns, if the first line does not state them.
    """

    def __init__(self, path: str, header: tuple[str, ...] | None):
        # The csv module and splitlines also split at a lone carriage return, which is text.
        lines = read_file(path).split(b"\n")
        fields = [line.rstrip(b"\r").split(b"\t") for line in lines]
        self.path, self._first = path, 1 if header else 2
        self.header = list(header or (name.decode(errors="replace") for name in fields[0]))
        self._fields = fields[self._first - 1 :]

    def rows(self, columns: list[str], index: str, skips_short: bool) -> tuple[_Rows, list[str]]:
        """Returns the lines that have all of the columns, and notes on the others."""
        for column in columns:
            if column not in self.header:
                raise ValueError(
                    f"{self.path}: the first line has no column {column!r}, only {self.header}"
                )
        # The index is read, too, where there is one.
        columns = [*columns, *[index] * (index in self.header)]
        needed = max(map(self.header.index, columns))
        rows, short, long = [], 0, []
        for line, fields in enumerate(self._fields, self._first):
            if not b"".join(fields).strip():
                continue
            long += [line] * (len(fields) > len(self.header))
            if len(fields) > needed:
                rows.append((line, fields))
            elif skips_short:
                short += 1
            else:
                raise ValueError(
                    f"{self.path}, line {line}: {counted(len(fields), 'column')}, but there must "
                    f"be {len(self.header)}"
                )
        notes = [f"skipped lines that lack columns: {short:,}"] if short else []
        if long:
            notes.append(
                f"lines with too many columns, whose extra columns are ignored: {len(long):,}, the "
                f"first is line {long[0]:,}"
            )
        return rows, notes

    def ids(self, column: str, rows: _Rows) -> tuple[list[str] | None, list[str]]:
        """Returns the values of the column that numbers the examples, if any, and notes on it."""
        if column not in self.header:
            return None, []
        place = self.header.index(column)
        ids = [fields[place].decode(errors="replace") for _, fields in rows]
        repeated = len(ids) - len(set(ids))
        return ids, [f"{repeated:,} with a repeated {column}"] if repeated else []

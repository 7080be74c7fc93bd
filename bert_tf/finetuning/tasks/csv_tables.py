"""The user's own tables: one class, several, or a number for each text or pair of texts."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.config import Head
from bert_tf.finetuning import labels
from bert_tf.finetuning.columns import Columns, open_table
from bert_tf.finetuning.examples import TextExamples
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.tables import Table, fold
from bert_tf.finetuning.task import TRAIN, DataFiles, Task
from bert_tf.finetuning.tasks.classification import ClassificationTask
from bert_tf.finetuning.tasks.multi_label import MultiLabelTask
from bert_tf.finetuning.tasks.regression import RegressionTask, number_head
from bert_tf.finetuning.tasks.tagged_files import make_tagging
from tfrecords.progress import counted

NAME = "csv"
_FLAGS = (
    *("train_file", "dev_file", "test_file", "text_column", "text_b_column"),
    *("label_column", "label_type", "label_separator"),
)
_TEST = "test"


def make_task(name: str, options: FineTuningOptions, head: Head | None) -> Task:
    """Creates the task of the user's files.

    Args:
        head: the head of the trained model; without one, the training file names the classes.

    Raises:
        ValueError: flags contradict each other, or the training file is malformed.
        OSError: the training file cannot be read.
    """
    if options.label_type == "tags":
        return make_tagging(name, options, head)
    reader = _Reader(options)
    head = head or reader.head(options.train_file)
    shared = dict(
        name=name,
        pairs=bool(options.text_b_column),
        has_dev=bool(options.dev_file or not options.train_file),
        # Reading shows whether it has targets; without them, it is predicted all the same.
        test_has_targets=bool(options.test_file),
        flags=_FLAGS,
        columns=reader.guessed,
        read_own=functools.partial(reader.read, head.labels),
    )
    if options.label_type == "number":
        return RegressionTask(head=number_head(head), **shared)
    if not head.labels:
        raise ValueError("the checkpoint does not name its classes: fine-tune it with --do_train")
    if options.label_type == "classes":
        return MultiLabelTask(labels=head.labels, separator=reader.separator, **shared)
    return ClassificationTask(labels=head.labels, **shared)


class _Reader:
    """Reads the user's tables.

    Attributes:
        separator: goes between the classes in a cell.
        guessed: the flags that name the columns which the training file's contents showed.
    """

    def __init__(self, options: FineTuningOptions):
        if options.label_separator and options.label_type != "classes":
            raise ValueError("--label_separator is only for --label_type=classes: omit it")
        self._type, self.separator = options.label_type, options.label_separator or ","
        flags = options.text_column, options.text_b_column, options.label_column
        self._wanted = Columns.of(*flags, options.label_type)
        self._stated_separator = options.label_separator
        # Tables with their columns and parsed labels.
        self._tables: dict[str, tuple[Table, Columns, Any]] = {}
        self.guessed: Mapping[str, str] = {}

    def head(self, train_file: str | None) -> Head:
        """Returns a head with the classes of the training file, or the scale of its numbers.

        Classes are sorted, or the names of their columns.
        """
        table, columns = self._open(train_file, TRAIN)
        rows = self._parse(table, columns)
        self._tables[train_file] = table, columns, rows
        if len(columns.labels) > 1:
            return Head("classifier", self._wanted.labels)
        (column,) = columns.labels
        if not self._wanted.labels and fold(column) != "label":
            self._wanted = columns
            self.guessed = {"text_column": columns.text, "label_column": column}
        if self._type == "number":
            mean, deviation = labels.measure_numbers(table.path, column, rows)
            return Head("classifier", mean=mean, deviation=deviation)
        if self._type == "classes":
            labels.check_separator(table, column, self._stated_separator)
        found = {name for names in rows for name in names}
        if len(found) < 2:
            raise ValueError(
                f"{table.path} has {counted(len(found), 'label')} in {column!r}"
                f"{f', {min(found)!r}' if found else ''}: a classifier needs two or more"
            )
        if self._type == "classes" and labels.are_flags(found):
            raise ValueError(
                f"{table.path}: {column!r} holds {' and '.join(sorted(found))} instead of class "
                "names: use --label_type=class, or list the columns of all classes in "
                "--label_column"
            )
        labels.warn_about_names(table.path, found)
        return Head("classifier", labels.sorted_classes(found))

    def read(self, names: tuple[str, ...], files: DataFiles, split: str) -> TextExamples:
        """Reads the examples of a split.

        Args:
            names: the classes of the model.
        """
        path = getattr(files, f"{split}_file")
        table, columns, rows = self._tables.pop(path, None) or (*self._open(path, split), None)
        ids, notes = labels.read_ids(table, columns.id)
        targets = {}
        if split != _TEST or labels.has_labels(table, columns.labels):
            targets = self._targets(
                names, table, self._parse(table, columns) if rows is None else rows
            )
        else:
            notes = (*notes, f"no labels in {' or '.join(map(repr, columns.labels))}")
        texts_b = table.texts(columns.text_b) if columns.text_b else None
        return TextExamples(table.texts(columns.text), texts_b, targets, ids, notes)

    def _open(self, path: str | None, split: str) -> tuple[Table, Columns]:
        if not path:
            raise ValueError(f"--task={NAME} needs --{split}_file")
        return open_table(path, self._wanted, labelled=split != _TEST)

    def _parse(self, table: Table, columns: Columns) -> list[tuple[str, ...]] | np.ndarray:
        """Returns the classes of each row, or the numbers [N]."""
        if len(columns.labels) > 1:
            return labels.read_flags(table, columns.labels, self._wanted.labels)
        (column,) = columns.labels
        if self._type == "number":
            return labels.read_numbers(table, column)
        if self._type == "classes":
            return labels.read_several(table, column, self.separator)
        return labels.read_single(table, column)

    def _targets(
        self, names: tuple[str, ...], table: Table, rows: list[tuple[str, ...]] | np.ndarray
    ) -> dict[str, np.ndarray]:
        if self._type == "number":
            return {"values": rows.astype(np.float32)}
        indices = labels.class_indices(table, rows, names)
        if self._type == "classes":
            return {"labels": labels.class_matrix(indices, len(names))}
        return {"labels": np.array([index for (index,) in indices], np.int32)}

"""The user's own tables: classes, several at once, or a number for a text or a pair; or tags."""

import dataclasses
import functools
import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bert_tf.config import Head
from bert_tf.finetuning.examples import TextExamples
from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.finetuning.task import TRAIN, DataFiles, Task
from bert_tf.finetuning.tasks import own_labels
from bert_tf.finetuning.tasks.classification import ClassificationTask
from bert_tf.finetuning.tasks.multi_label import MultiLabelTask
from bert_tf.finetuning.tasks.own_tags import OwnTaggingTask
from bert_tf.finetuning.tasks.regression import RegressionTask, number_head
from bert_tf.finetuning.user_tables import Table, read_table
from tfrecords.progress import counted

NAME = "csv"
_FLAGS = (
    *("train_file", "dev_file", "test_file", "text_column", "text_b_column"),
    *("label_column", "label_type", "label_separator"),
)
_TEST = "test"
_SEPARATOR = ","
Targets = dict[str, np.ndarray]


def make_task(options: FineTuningOptions, head: Head | None) -> Task:
    """Creates the task of the user's files.

    Args:
        head: the head of the trained model; without one, the training file names the classes.

    Raises:
        ValueError: flags contradict each other, or the training file is malformed.
        OSError: the training file cannot be read.
    """
    if options.label_type == "tags":
        return OwnTaggingTask(options, head)
    layout = _Layout.of(options)
    shared = dict(
        name=NAME,
        pairs=bool(options.text_b_column),
        has_dev=bool(options.dev_file or not options.train_file),
        # Reading shows whether it has targets; without them, it is predicted all the same.
        test_has_targets=bool(options.test_file),
        flags=_FLAGS,
    )
    if options.label_type == "number":
        head = number_head(head or layout.numbers(options.train_file))
        read = functools.partial(layout.read, layout.values)
        return RegressionTask(head=head, read_own=read, **shared)
    labels = (
        head.labels if head else layout.classes(options.train_file, options.label_type == "classes")
    )
    if not labels:
        raise ValueError("the checkpoint does not name its classes: fine-tune it with --do_train")
    if options.label_type == "classes":
        read = functools.partial(layout.read, functools.partial(layout.matrix, labels))
        separator = options.label_separator or _SEPARATOR
        return MultiLabelTask(labels=labels, separator=separator, read_own=read, **shared)
    read = functools.partial(layout.read, functools.partial(layout.indices, labels))
    return ClassificationTask(labels=labels, read_own=read, **shared)


@dataclass(frozen=True)
class _Layout:
    """Which columns hold what.

    Attributes:
        text: the column of the text; None to find it by its name.
        text_b: the column of the second text; None for single texts.
        labels: the columns to predict.
        parse: reads those: the classes of each row, or numbers [N].
        tables: tables that were already read, by path.
    """

    text: str | None
    text_b: str | None
    labels: tuple[str, ...]
    parse: Callable[[Table], list[tuple[str, ...]] | np.ndarray]
    tables: dict[str, Table] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, options: FineTuningOptions) -> "_Layout":
        column, several = options.label_column or "label", options.label_type == "classes"
        if options.label_separator and not several:
            raise ValueError("--label_separator is only for --label_type=classes: omit it")
        labels = tuple(name.strip() for name in column.split(",")) if several else (column,)
        if len(set(labels)) < len(labels):
            raise ValueError(f"--label_column={column} names a column twice")
        if len(labels) > 1:
            parse = functools.partial(own_labels.read_flags, columns=labels)
        elif several:
            separator = options.label_separator or _SEPARATOR
            parse = functools.partial(own_labels.read_several, column=column, separator=separator)
        elif options.label_type == "number":
            parse = functools.partial(own_labels.read_numbers, column=column)
        else:
            parse = functools.partial(own_labels.read_single, column=column)
        return cls(options.text_column, options.text_b_column, labels, parse)

    def classes(self, train_file: str | None, several: bool) -> tuple[str, ...]:
        """Returns the classes of the training file: sorted, or the names of their columns.

        Args:
            several: whether a row may have several.
        """
        if len(self.labels) > 1:
            return self.labels
        table = self.tables[train_file] = _open(train_file, TRAIN)
        found = {name for names in self.parse(table) for name in names}
        if len(found) < 2:
            raise ValueError(
                f"{table.path} has {counted(len(found), 'label')} in {self.labels[0]!r}"
                f"{f', {min(found)!r}' if found else ''}: a classifier needs two or more"
            )
        if several and own_labels.are_flags(found):
            raise ValueError(
                f"{table.path}: {self.labels[0]!r} holds {' and '.join(sorted(found))}, no names "
                "of classes: use --label_type=class, or give --label_column the columns of all "
                "classes"
            )
        return own_labels.sorted_classes(found)

    def numbers(self, train_file: str | None) -> Head:
        """Returns a head with the mean and standard deviation of the training file's numbers."""
        table = self.tables[train_file] = _open(train_file, TRAIN)
        (column,) = self.labels
        mean, deviation = own_labels.measure_numbers(table.path, column, self.parse(table))
        return Head("classifier", mean=mean, deviation=deviation)

    def indices(self, labels: tuple[str, ...], table: Table) -> Targets:
        """Returns the class of each row as its index in `labels`."""
        rows = own_labels.class_indices(table, self.parse(table), labels)
        return {"labels": np.array([index for (index,) in rows], np.int32)}

    def matrix(self, labels: tuple[str, ...], table: Table) -> Targets:
        """Returns which of `labels` each row has."""
        rows = own_labels.class_indices(table, self.parse(table), labels)
        return {"labels": own_labels.class_matrix(rows, len(labels))}

    def values(self, table: Table) -> Targets:
        """Returns the number of each row."""
        return {"values": self.parse(table).astype(np.float32)}

    def read(
        self, targets: Callable[[Table], Targets], files: DataFiles, split: str
    ) -> TextExamples:
        """Reads the examples of a split.

        Args:
            targets: reads the targets of a table.

        Raises:
            ValueError, OSError: the file is missing or malformed; the message names the line.
        """
        path = getattr(files, f"{split}_file")
        table = self.tables.pop(path, None) or _open(path, split)
        ids, notes = own_labels.read_ids(table)
        text, labelled = self.text or self._text_column(table), self._has_labels(table, split)
        if not labelled:
            notes = (*notes, f"no labels in {' or '.join(map(repr, self.labels))}")
        return TextExamples(
            _texts(table, text),
            _texts(table, self.text_b) if self.text_b else None,
            targets(table) if labelled else {},
            ids,
            notes,
        )

    def _text_column(self, table: Table) -> str:
        taken = (*self.labels, self.text_b, own_labels.ID, "")
        names = [name for name in table.columns if name not in taken]
        if "text" in names or len(names) == 1:
            return "text" if "text" in names else names[0]
        raise ValueError(
            f"{table.path}: which column holds the text? Give --text_column, one of {table.names()}"
        )

    def _has_labels(self, table: Table, split: str) -> bool:
        """Returns whether a split has labels; only "test" may have none."""
        if split != _TEST:
            return True
        cells = [value for name in self.labels for value in table.columns.get(name, [])]
        # An empty list says that a row has no class.
        return not all(value != [] and own_labels.is_empty(value) for value in cells)


def _open(path: str | None, split: str) -> Table:
    if not path:
        raise ValueError(f"--task={NAME} needs --{split}_file")
    return read_table(path)


def _texts(table: Table, name: str) -> list[bytes]:
    texts = ["" if value is None else value for value in table.column(name)]
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"{table.at(row)}: {name!r} is {json.dumps(text)[:50]}, not a string")
    # Lone surrogates stand for bytes that are not UTF-8; the report counts such texts.
    return [text.encode(errors="surrogatepass") for text in texts]

"""The user's own tables: classes or a number for each text or pair of texts, or only pairs."""

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from bert_tf.base.choices import VECTOR_TYPES
from bert_tf.base.files import check_single
from bert_tf.base.progress import say
from bert_tf.config import EMBEDDING, Head
from bert_tf.finetuning import labels
from bert_tf.finetuning.examples import TextExamples
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.task import TRAIN, DataFiles, Task
from bert_tf.finetuning.tasks import embedding
from bert_tf.finetuning.tasks.classification import ClassificationTask, MultiLabelTask
from bert_tf.finetuning.tasks.tagged_files import check_rows_are_texts, make_tagging
from bert_tf.finetuning.tasks.text_task import RegressionTask, number_head
from bert_tf.tables.columns import Columns, find_columns
from bert_tf.tables.rows import table_kind, tsv_is_quoted
from bert_tf.tables.table import Table, as_number, fold, read_table

CSV = "csv"
# Usual names of columns with second texts.
_SECOND = {"text_b", "text_pair", "text2", "sentence2", "hypothesis"}
# Usual names of columns that say how well two texts match.
_SCORES = {"label", "score", "similarity", "relevance", "is_duplicate"}


def make_csv_task(name: str, options: FineTuningOptions, head: Head | None) -> Task:
    """Creates the task of the user's files.

    The head is that of the trained model; without one, the training file names the classes. Raises
    a ValueError if flags contradict each other or the training file is malformed, and an OSError if
    it cannot be read.
    """
    if options.label_type == "tags":
        return make_tagging(name, options, head)
    kind = options.label_type
    if kind == "similarity" and not options.text_b_column:
        raise ValueError("--label_type=similarity needs --text_b_column, the second texts")
    if kind == "pairs" and options.label_column:
        raise ValueError(
            "--label_type=pairs treats every row as a right pair: omit --label_column and remove "
            "the wrong pairs, or give --label_type=similarity"
        )
    reader = TableReader(options)
    head = head or reader.learn(DataFiles.of(options))
    shared = dict(
        name=name,
        pairs=bool(options.text_b_column),
        columns=reader.guessed,
        read_own=functools.partial(reader.read, head.labels),
    )
    if kind in VECTOR_TYPES:
        # A model of another kind is refused when its head is compared with this one.
        head = embedding.with_settings(head, options)
        shared["head"] = head
    if kind == "similarity":
        return embedding.SimilarityTask(**shared)
    if kind == "pairs":
        # A text finds itself at once.
        metric = "mrr@10" if options.text_b_column else "loss"
        return embedding.RankingTask(**shared, temperature=options.temperature, metric=metric)
    if kind == "number":
        return RegressionTask(head=number_head(head), **shared)
    if not head.labels:
        raise ValueError("the checkpoint does not name its classes: fine-tune it with --do_train")
    shared |= dict(labels=head.labels, json_labels=head.json_labels)
    if kind == "classes":
        several = dict(separator=reader.separator, listed_labels=head.listed_labels)
        return MultiLabelTask(**several, **shared)
    return ClassificationTask(**shared)


_NUMBERS = ("number", "similarity")
# The classes of each row, or the numbers [N].
_Rows = list[tuple[str, ...]] | np.ndarray


class TableReader:
    """Reads tables; `guessed` are flags for columns that the training file's contents showed."""

    def __init__(self, options: FineTuningOptions):
        self._type, self._stated_separator = options.label_type, options.label_separator
        self._quotes = options.tsv_quotes
        self.separator = options.label_separator or ","
        flags = options.text_column, options.text_b_column, options.label_column
        self._wanted = Columns.of(*flags, options.label_type)
        if options.label_type == "pairs":
            self._wanted = replace(self._wanted, negative=options.negative_column)
        # The training table, until it is read.
        self._opened: dict[str, tuple[Table, Columns, _Rows]] = {}
        self.guessed: dict[str, Any] = {}

    def learn(self, files: DataFiles) -> Head:
        """Returns a head with the sorted classes of the training file, or with its scale."""
        if files.train_file and self._quotes is None and table_kind(files.train_file) == "tsv":
            check_single(files.train_file)
            self._quotes = self.guessed["tsv_quotes"] = tsv_is_quoted(files.train_file)
        if self._type == "pairs":
            return Head(EMBEDDING)
        if not files.train_file:
            raise files.missing(CSV, TRAIN)
        table, columns, rows = opened = self._open(files.train_file, TRAIN)
        self._opened[files.train_file] = opened
        if len(columns.labels) > 1:
            return Head("classifier", self._wanted.labels)
        (column,) = columns.labels
        if not self._wanted.labels and fold(column) != "label":
            self._wanted = columns
            self.guessed |= {"text_column": columns.text, "label_column": column}
        if self._type == "similarity":
            low, high = labels.cosine_range(table.path, column, rows)
            return Head(EMBEDDING, mean=low, deviation=high - low)
        if self._type == "number":
            mean, deviation = labels.measure_numbers(table.path, column, rows)
            return Head("classifier", mean=mean, deviation=deviation)
        if self._type == "classes":
            labels.check_class_separator(table, column, self._stated_separator)
        forms = labels.forms_of(table, column)
        return Head("classifier", labels.find_classes(table, column, rows, self._type), **forms)

    def read(self, names: tuple[str, ...], files: DataFiles, split: str) -> TextExamples:
        """Reads the examples of a split; `names` are the classes of the model."""
        if not (path := getattr(files, f"{split}_file")):
            raise files.missing(CSV, split)
        table, columns, rows = self._opened.pop(path, None) or self._open(path, split)
        ids, notes = table.ids(columns.id)
        texts, texts_b = (x and table.texts(x) for x in (columns.text, columns.text_b))
        negatives = columns.negative and table.texts(columns.negative, needed=False)
        targets = {}
        if self._type == "pairs":
            for row, pair in enumerate(zip(texts, texts_b or (), strict=False)):
                if not all(map(bytes.strip, pair)):
                    raise ValueError(f"{table.at(row)} lacks a text of the pair: remove it")
        elif rows is None:
            notes = (*notes, f"no labels in {' or '.join(map(repr, columns.labels))}")
        elif self._type in _NUMBERS:
            targets = {"values": rows.astype(np.float32)}
        else:
            several = self._type == "classes"
            targets = {"labels": labels.class_targets(table, rows, names, several)}
        return TextExamples(texts, texts_b, targets, ids, notes, negatives)

    def _open(self, path: str, split: str) -> tuple[Table, Columns, _Rows | None]:
        """Returns a table, its columns and its labels; None if a test file has none."""
        tests, pairs, table = split == "test", self._type == "pairs", read_table(path, self._quotes)
        if labelled := not (tests or pairs):
            check_rows_are_texts(table, self._wanted.labels or ("label",))
        columns = find_columns(table, self._wanted, labelled)
        if pairs or split == TRAIN:
            _say_unread(table, columns, pairs)
        if pairs or (tests and not labels.has_labels(table, columns.labels)):
            return table, columns, None
        if len(columns.labels) > 1:
            return table, columns, labels.read_flags(table, columns.labels, self._wanted.labels)
        (column,) = columns.labels
        if self._type in _NUMBERS:
            return table, columns, labels.read_numbers(table, column)
        if self._type == "classes":
            return table, columns, labels.read_several(table, column, self._stated_separator)
        return table, columns, labels.read_single(table, column)


def _say_unread(table: Table, read: Columns, pairs: bool) -> None:
    """Names unread columns that seem to hold second texts or, with `pairs`, scores of pairs."""
    known = {read.text, read.text_b, read.negative, read.id, *(() if pairs else read.labels)}
    flag = "negative_column" if read.text_b else "text_b_column"
    for name in [name for name in table.columns if name not in known]:
        cells = [x for x in table.columns[name] if x not in (None, "")]
        words = sum(isinstance(x, str) and len(x.split()) > 1 for x in cells)
        is_text = 2 * words > len(cells) or fold(name) in _SECOND
        if is_text and (not read.text_b or (pairs and not read.negative)):
            say(f"{table.path}: {name!r} is not read; if it holds texts, give --{flag}={name}.")
        values = {str(x) for x in cells} if pairs and read.text_b else ()
        if len(values) > 1 and (fold(name) in _SCORES or {*map(as_number, values)} == {0, 1}):
            say(
                f"WARNING: {table.path}: --label_type=pairs ignores {name!r} and treats every row "
                "as a right pair: remove the wrong pairs, or give --label_type=similarity."
            )

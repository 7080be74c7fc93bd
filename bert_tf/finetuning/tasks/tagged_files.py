"""Files of tagged sentences: CoNLL-2003 (Tjong Kim Sang and De Meulder 2003), and the user's own.

They are CoNLL files, or tables with a list of words and a list of tags in each row.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bert_tf.config import Head
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.labels import check_label, check_no_spans, forms_of, has_labels
from bert_tf.finetuning.tagging.conll import CONLL_FORM, DOCUMENT, read_conll, read_tfds
from bert_tf.finetuning.tagging.tagged_text import Sentence, TaggedText, label_names
from bert_tf.finetuning.tagging.tags import entity_types
from bert_tf.finetuning.task import TRAIN, DataFiles
from bert_tf.finetuning.tasks.tagging import TaggingTask
from bert_tf.tables.columns import Columns, find_columns
from bert_tf.tables.rows import table_kind
from bert_tf.tables.table import Table, fold, read_table

_NER = "ner"
# What the columns of words and their tags are called if each row holds one word.
_WORDS, _TAGS = {"word", "token"}, {"tag", "ner", "ner tag", "ner_tag", "pos", "upos"}
# The files of CoNLL-2003 in --data_dir.
_NAMES = {
    TRAIN: ("train.txt", "eng.train"),
    "dev": ("valid.txt", "dev.txt", "eng.testa"),
    "test": ("test.txt", "eng.testb"),
}


def make_tagging(name: str, options: FineTuningOptions, head: Head | None) -> TaggingTask:
    """Creates the task "ner" or "csv" with the tags of the trained model or the training file."""
    files, reader = DataFiles.of(options), _Reader(name, options)
    if not head:
        text = reader.learn(files)
        head = Head("tagger", label_names(text), json_labels=text.json_tags)
    return TaggingTask(
        name=name,
        labels=head.labels,
        json_labels=head.json_labels,
        read=reader.read,
        columns=reader.columns,
        has_dev=bool(reader.find(files, "dev") or not reader.find(files, TRAIN)),
        document_context=options.document_context,
        feature_based=options.feature_based,
    )


class _Reader:
    """Reads the splits of a task; `columns` are the values of the two flags, if known."""

    def __init__(self, name: str, options: FineTuningOptions):
        self._name, self._context = name, options.document_context
        flags = ("text_column", "label_column")
        self.columns = {flag: value for flag in flags if (value := getattr(options, flag))}
        self._training: TaggedText | None = None

    def learn(self, files: DataFiles) -> TaggedText:
        """Reads the training file, whose contents may also show the columns."""
        self._training = self.read(files, TRAIN, learn=True)
        self.columns = {**self.columns, **self._training.columns}
        return self._training

    def read(self, files: DataFiles, split: str, learn: bool = False) -> TaggedText:
        """Reads a split."""
        if split == TRAIN and self._training:
            return self._training
        path, is_ner = self.find(files, split), self._name == _NER
        if not path and is_ner and files.are_official:
            text = read_tfds(split)
        elif not path:
            raise files.missing(self._name, split, *(_NAMES[split] if is_ner else ()))
        elif not is_ner or table_kind(path) in ("json", "jsonl", "memory"):
            return _read_lists(path, self.columns, labelled=split != "test")
        else:
            text = read_conll(path, *map(self._number, ("text_column", "label_column")), learn)
        if text.marks_documents or not self._context:
            return text
        note = f"each sentence read alone ({DOCUMENT} lines are missing)"
        return dataclasses.replace(text, notes=(*text.notes, note))

    def find(self, files: DataFiles, split: str) -> str | None:
        """Returns the file of a split; None if there is none."""
        names = _NAMES[split] if self._name == _NER and files.data_dir else ()
        paths = [f"{files.data_dir}/{name}" for name in names]
        return getattr(files, f"{split}_file") or next(filter(tf.io.gfile.exists, paths), None)

    def _number(self, flag: str) -> int:
        number = self.columns.get(flag, "")
        if number and not (number.isdecimal() and int(number)):
            raise ValueError(f"--{flag}={number}: --task=ner takes a column's number, from 1")
        return int(number or 0)


def _read_lists(path: str, columns: dict[str, str], labelled: bool) -> TaggedText:
    """Reads a table with a list of words and a list of tags in each row, which is a sentence."""
    labels = tuple(filter(None, [columns.get("label_column")]))
    wanted = Columns(columns.get("text_column"), labels=labels)
    table = read_table(path)
    if labelled:
        check_rows_are_texts(table, labels or ("tags",))
    found = find_columns(table, wanted, labelled, ("tokens", "tags"))
    (column,), notes = found.labels, table.ids(found.id)[1]
    tags = column if has_labels(table, found.labels) else None
    if tags is None:
        notes = (*notes, f"no tags in {column!r}")
    documents = [[_sentence(table, row, found.text, tags)] for row in range(len(table))]
    usual = not labelled or fold(column) == "tags"
    columns = {} if usual else {"text_column": found.text, "label_column": column}
    json_tags = bool(tags) and forms_of(table, tags)["json_labels"]
    return TaggedText(path, documents, notes=notes, columns=columns, json_tags=json_tags)


def _sentence(table: Table, row: int, words: str, tags: str | None) -> Sentence:
    tokens, found = table.words(row, words, "word"), ()
    if not tokens:
        raise ValueError(f"{table.at(row)}: {words!r} is empty")
    if tags is not None:
        check_label(table, row, table.columns[tags][row])
        found = table.words(row, tags, "tag")
        if len(found) != len(tokens):
            raise ValueError(
                f"{table.at(row)}: {words!r} and {tags!r} differ in length, {len(tokens)} and "
                f"{len(found)}"
            )
    return Sentence(tokens, found, (table.lines[row],) * len(tokens))


def check_rows_are_texts(table: Table, labels: Sequence[str]) -> None:
    """Raises a ValueError if a row is a word with its tag, or a text with spans.

    `labels` are the columns to predict.
    """
    names = {fold(name): name for name in table.columns}
    labels = [names[name] for name in map(fold, labels) if name in names]
    for column in [] if labels else table.columns.values():
        filled = next((row for row, cell in enumerate(column) if cell), 0)
        check_no_spans(table, filled, column[filled])
    columns = [table.columns[name] for name in labels or table.columns]
    words = [table.columns[name] for key, name in names.items() if key in _WORDS]
    named = not labels and names.keys() & _TAGS and any(map(_are_words, words))
    if named or any(
        "O" in column and _are_words(column) and entity_types(column) for column in columns
    ):
        raise ValueError(
            f"{table.path} has a word and its tag in each row: use --task=ner and {CONLL_FORM}"
        )


def _are_words(cells: Sequence[Any]) -> bool:
    return all(isinstance(cell, str) and len(cell.split()) < 2 for cell in cells)

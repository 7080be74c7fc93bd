"""CoNLL-2003: named entities in news (Tjong Kim Sang and De Meulder 2003)."""

import dataclasses
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from bert_tf.config import Head
from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.finetuning.tagging.conll import DOCUMENT, read_conll, read_tfds
from bert_tf.finetuning.tagging.tagged_text import TaggedText, label_names
from bert_tf.finetuning.task import TRAIN, DataFiles
from bert_tf.finetuning.tasks.tagging import TaggingTask

_NAMES = {
    TRAIN: ("train.txt", "eng.train"),
    "dev": ("valid.txt", "dev.txt", "eng.testa"),
    "test": ("test.txt", "eng.testb"),
}


class ConllTask(TaggingTask):
    """Tags the words of CoNLL files; see `TaggingTask`.

    Args:
        files: where the files are.
        texts: splits that were already read, by name.
        columns: the numbers of the columns of the words and the tags, from 1, if they are known, as
            values of --text_column and --label_column.
        arguments: others of `TaggingTask`.
    """

    name = "ner"
    flags = (
        *("data_dir", "train_file", "dev_file", "test_file", "text_column", "label_column"),
        *("document_context", "feature_based"),
    )

    def __init__(
        self,
        labels: tuple[str, ...],
        files: DataFiles,
        texts: Mapping[str, TaggedText] = MappingProxyType({}),
        columns: Mapping[str, str] = MappingProxyType({}),
        **arguments: Any,
    ):
        super().__init__(labels, **arguments)
        self._files, self._texts, self.columns = files, texts, columns

    @property
    def test_has_targets(self) -> bool:
        """Whether there is a test set with tags."""
        if not _find(self._files, "test"):
            return _uses_tfds(self._files)
        return bool(_read(self._files, "test", self.columns).tags)

    def read_texts(
        self, names: Collection[str], files: DataFiles, seed: int
    ) -> dict[str, TaggedText]:
        texts = {name: self._texts.get(name) or _read(files, name, self.columns) for name in names}
        if not self.document_context:
            return texts
        return {name: _note_alone(text) for name, text in texts.items()}


def make_ner(options: FineTuningOptions, head: Head | None) -> ConllTask:
    """Creates the task; its tags are those of the trained model or else of the training file."""
    files = DataFiles.of(options)
    columns = {"text_column": options.text_column, "label_column": options.label_column}
    columns = {flag: number for flag, number in columns.items() if number}
    for flag, number in columns.items():
        if not number.isdecimal() or not int(number):
            raise ValueError(
                f"--{flag}={number}: --task=ner takes the number of a column, counted from 1"
            )
    texts = {} if head else {TRAIN: _read(files, TRAIN, columns, learn=True)}
    return ConllTask(
        head.labels if head else label_names(texts[TRAIN]),
        files,
        texts,
        columns if head else {**columns, **texts[TRAIN].columns},
        document_context=options.document_context,
        feature_based=options.feature_based,
    )


def _read(
    files: DataFiles, split: str, columns: Mapping[str, str], learn: bool = False
) -> TaggedText:
    path = _find(files, split)
    if path:
        given = (int(columns.get(x, 0)) for x in ("text_column", "label_column"))
        return read_conll(path, *given, learn)
    if _uses_tfds(files):
        return read_tfds(split)
    flag = f"--{split}_file"
    if not files.data_dir:
        raise ValueError(f"--task=ner needs {flag}, or --data_dir with {_NAMES[split][0]}")
    raise FileNotFoundError(
        f"{files.data_dir} has none of {', '.join(_NAMES[split])}: give {flag} if it has another "
        "name"
    )


def _note_alone(text: TaggedText) -> TaggedText:
    if text.marks_documents:
        return text
    note = f"each sentence read alone ({DOCUMENT} lines are missing)"
    return dataclasses.replace(text, notes=(*text.notes, note))


def _uses_tfds(files: DataFiles) -> bool:
    return not any(files)


def _find(files: DataFiles, split: str) -> str | None:
    if path := getattr(files, f"{split}_file"):
        return path
    paths = [f"{files.data_dir}/{name}" for name in _NAMES[split]] if files.data_dir else []
    return next(filter(tf.io.gfile.exists, paths), None)

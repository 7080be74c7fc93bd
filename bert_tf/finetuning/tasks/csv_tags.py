"""A tag for every word, from the user's own JSON lines."""

import dataclasses
from collections import Counter
from collections.abc import Collection

import numpy as np

from bert_tf.config import Head
from bert_tf.finetuning.columns import Columns, open_table
from bert_tf.finetuning.examples import choose_held_out
from bert_tf.finetuning.labels import check_label, has_labels, read_ids, read_words
from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.finetuning.tables import Table
from bert_tf.finetuning.tagging.tagged_text import Sentence, TaggedText, label_names
from bert_tf.finetuning.task import TRAIN, DataFiles
from bert_tf.finetuning.tasks.tagging import TaggingTask


class CsvTaggingTask(TaggingTask):
    """Tags the words of JSON lines, `{"tokens": [...], "tags": [...]}`; see `TaggingTask`.

    Args:
        options: the flags of the run.
        head: the head of the trained model; without one, the training file determines the tags.

    Raises:
        ValueError, OSError: the training file is missing or malformed.
    """

    name = "csv"
    flags = ("train_file", "dev_file", "test_file", "text_column", "label_column", "label_type")

    def __init__(self, options: FineTuningOptions, head: Head | None):
        labels = tuple(filter(None, [options.label_column]))
        self._wanted = Columns(options.text_column, labels=labels)
        self.has_dev = bool(options.dev_file or not options.train_file)
        # Reading shows whether it has tags; without them, it is predicted all the same.
        self.test_has_targets = bool(options.test_file)
        self._texts: dict[str, TaggedText] = {}
        if not head:
            self._texts[TRAIN] = self._read(DataFiles.of(options), TRAIN)
        super().__init__(head.labels if head else label_names(self._texts[TRAIN]))

    def read_texts(
        self, names: Collection[str], files: DataFiles, seed: int
    ) -> dict[str, TaggedText]:
        if "dev" not in names or self.has_dev:
            return {name: self._read(files, name) for name in names}
        texts = {name: self._read(files, name) for name in {TRAIN, *names} - {"dev"}}
        texts[TRAIN], texts["dev"] = _hold_out(texts[TRAIN], seed)
        return {name: texts[name] for name in names}

    def _read(self, files: DataFiles, split: str) -> TaggedText:
        if split in self._texts:
            return self._texts[split]
        path = getattr(files, f"{split}_file")
        if not path:
            raise ValueError(f"--task=csv needs --{split}_file")
        table, columns = open_table(path, self._wanted, split != "test", ("tokens", "tags"))
        (tags,) = columns.labels
        words, known = columns.text, has_labels(table, columns.labels)
        rows = range(len(table))
        documents = [[_sentence(table, row, words, tags if known else None)] for row in rows]
        _, notes = read_ids(table, columns.id)
        return TaggedText(path, documents, notes=notes)


def _sentence(table: Table, row: int, words: str, tags: str | None) -> Sentence:
    tokens = read_words(table, row, words, "word")
    if not tokens:
        raise ValueError(f"{table.at(row)}: {words!r} is empty")
    if tags is None:
        return Sentence(tokens, (), (table.lines[row],) * len(tokens))
    check_label(table, row, table.columns[tags][row])
    found = read_words(table, row, tags, "tag")
    if len(found) != len(tokens):
        raise ValueError(
            f"{table.at(row)}: {words!r} and {tags!r} differ in length, {len(tokens)} and "
            f"{len(found)}"
        )
    return Sentence(tokens, found, (table.lines[row],) * len(tokens))


def _hold_out(text: TaggedText, seed: int) -> tuple[TaggedText, TaggedText]:
    """Holds out a random tenth of the sentences; returns the rest and that tenth."""
    tags = [set(sentence.tags) for sentence in text.sentences]
    counts = Counter(tag for found in tags for tag in found)
    only = np.array([any(counts[tag] == 1 for tag in found) for found in tags])
    chosen, notes = choose_held_out(np.zeros(len(tags), np.int32), only, seed)
    parts = (
        [d for d, c in zip(text.documents, chosen, strict=True) if c == held] for held in (0, 1)
    )
    rest, held_out = (dataclasses.replace(text, documents=part) for part in parts)
    # Other notes count all sentences.
    return rest, dataclasses.replace(held_out, notes=notes)

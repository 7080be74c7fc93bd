"""Examples of text tasks, and where they come from."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from bert_tf.corpus.tfds import prepare

HELD_OUT = 0.1


@dataclass(frozen=True)
class TextExamples:
    """Texts, or pairs of texts, and the targets to predict for each.

    Attributes:
        texts_a: UTF-8 bytes.
        texts_b: the second texts of pairs; None for single texts.
        targets: arrays [N, ...] by name; {} if unknown.
        ids: what identifies each example in files of predictions; None for 0, 1, 2, ...
        notes: faults in the data, with their counts, such as "3 lines without a label skipped".
    """

    texts_a: list[bytes]
    texts_b: list[bytes] | None
    targets: Mapping[str, np.ndarray]
    ids: list[str] | None = None
    notes: tuple[str, ...] = ()

    @property
    def index(self) -> Sequence[str | int]:
        """What identifies each example in files of predictions."""
        return range(len(self)) if self.ids is None else self.ids

    @property
    def text_columns(self) -> dict[str, list[str]]:
        """The texts as columns of files of predictions."""
        columns = (
            {"text": self.texts_a}
            if self.texts_b is None
            else {"text_a": self.texts_a, "text_b": self.texts_b}
        )
        return {
            name: [text.decode(errors="replace") for text in texts]
            for name, texts in columns.items()
        }

    def __len__(self) -> int:
        return len(self.texts_a)

    def take(self, indices: np.ndarray) -> "TextExamples":
        """Returns the examples at `indices`, in that order."""
        return TextExamples(
            [self.texts_a[i] for i in indices],
            self.texts_b and [self.texts_b[i] for i in indices],
            {name: values[indices] for name, values in self.targets.items()},
            self.ids and [self.ids[i] for i in indices],
            self.notes,
        )


class TfdsSource(NamedTuple):
    """A dataset of tensorflow-datasets.

    Attributes:
        name: its name.
        text_a, text_b: the names of its fields.
        splits: its names for our splits, where they differ. "NAME:SPLIT" is a split of another
            dataset.
    """

    name: str
    text_a: str
    text_b: str | None = None
    splits: Mapping[str, str] = MappingProxyType({"dev": "validation"})

    def read(self, split: str) -> TextExamples:
        """Reads a split, downloading it if necessary.

        The target is `labels`, int [N], or `values`, float [N]; there is none if all labels are -1.

        Raises:
            OSError: it cannot be downloaded.
        """
        # Slow to import, and not needed for local files.
        import tensorflow_datasets as tfds

        name, _, split = self.splits.get(split, split).rpartition(":")
        builder = tfds.builder(name or self.name)
        prepare(builder)
        rows = list(tfds.as_numpy(builder.as_dataset(split=split)))
        numbered = "idx" in builder.info.features
        if numbered:
            rows.sort(key=lambda row: row["idx"])
        return TextExamples(
            [row[self.text_a] for row in rows],
            [row[self.text_b] for row in rows] if self.text_b else None,
            _targets(np.array([row["label"] for row in rows])),
            [str(row["idx"]) for row in rows] if numbered else None,
        )


def _targets(labels: np.ndarray) -> dict[str, np.ndarray]:
    if np.all(labels == -1):
        return {}
    if np.issubdtype(labels.dtype, np.floating):
        return {"values": labels.astype(np.float32)}
    return {"labels": labels.astype(np.int32)}


def hold_out(examples: TextExamples, seed: int) -> tuple[TextExamples, TextExamples]:
    """Holds out a random tenth (`HELD_OUT`) of the examples; returns the rest and that tenth.

    Where `labels` are classes, int [N], it holds out a tenth of every class, one example at least
    if there are two.

    Raises:
        ValueError: there is no such class.
    """
    random = np.random.default_rng(seed)
    labels = examples.targets["labels"] if "labels" in examples.targets else np.zeros(len(examples))
    groups = labels if labels.ndim == 1 else np.zeros(len(examples))
    held_out = np.zeros(len(examples), bool)
    for group in np.unique(groups):
        indices = np.flatnonzero(groups == group)
        count = min(max(1, round(HELD_OUT * len(indices))), len(indices) - 1)
        held_out[random.choice(indices, count, replace=False)] = True
    if not held_out.any():
        raise ValueError(
            f"cannot hold out a tenth of {len(examples):,} training examples, because no class has "
            "two examples: give --dev_file, or more examples"
        )
    rest, tenth = (examples.take(np.flatnonzero(chosen)) for chosen in (~held_out, held_out))
    # The notes count all examples.
    return rest, dataclasses.replace(tenth, notes=())

"""Examples of text tasks, and where they come from."""

import dataclasses
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.base.progress import counted
from bert_tf.corpus.sources import prepare_dataset

OWN_TABLE = "; for a table of your own, use --task=csv"
# One in ten examples is held out of training.
_PARTS = 10
# All runs hold out the same examples, so that their scores can be compared.
_HOLD_OUT_SEED = 12345
# How many held-out examples make a class large.
_LARGE = 5


@dataclass(frozen=True)
class TextExamples:
    """Texts, or pairs of texts, and the targets to predict for each.

    Attributes:
        texts_a: UTF-8 bytes.
        texts_b: the second texts of pairs; None for single texts.
        targets: arrays [N, ...] by name; {} if unknown.
        ids: what identifies each example in files of predictions; None for 0, 1, 2, ...
        notes: faults in the data, with their counts, such as "3 lines without a label skipped".
        negatives: third texts, each a wrong partner of the first; None if there are none.
    """

    texts_a: list[bytes]
    texts_b: list[bytes] | None
    targets: Mapping[str, np.ndarray]
    ids: list[str] | None = None
    notes: tuple[str, ...] = ()
    negatives: list[bytes] | None = None

    @property
    def keys(self) -> list[tuple[bytes, bytes]]:
        """The texts of each example, which show whether two sets share examples."""
        return [*zip(self.texts_a, self.texts_b or self.texts_a, strict=True)]

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
        if self.negatives:
            columns["negative"] = self.negatives
        return {
            name: [text.decode(errors="replace") for text in texts]
            for name, texts in columns.items()
        }

    def __len__(self) -> int:
        return len(self.texts_a)

    def take(self, indices: np.ndarray) -> "TextExamples":
        """Returns the examples at `indices`, in that order."""
        lists = {name: getattr(self, name) for name in ("texts_a", "texts_b", "ids", "negatives")}
        taken = {name: values and [values[i] for i in indices] for name, values in lists.items()}
        targets = {name: values[indices] for name, values in self.targets.items()}
        return dataclasses.replace(self, targets=targets, **taken)


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
        name, _, split = self.splits.get(split, split).rpartition(":")
        rows, features = tfds_rows(name or self.name, split)
        numbered = "idx" in features
        if numbered:
            rows.sort(key=lambda row: row["idx"])
        return TextExamples(
            [row[self.text_a] for row in rows],
            [row[self.text_b] for row in rows] if self.text_b else None,
            _targets(np.array([row["label"] for row in rows])),
            [str(row["idx"]) for row in rows] if numbered else None,
        )


def find_file(data_dir: str, *names: str, advice: str = "name their folder as --data_dir") -> str:
    """Returns the path of the first of these files that exists in a folder."""
    for name in names:
        if tf.io.gfile.exists(f"{data_dir}/{name}"):
            return f"{data_dir}/{name}"
    raise FileNotFoundError(f"{data_dir} contains neither {' nor '.join(names)}: {advice}")


def tfds_rows(name: str, split: str) -> tuple[list[dict[str, Any]], Mapping[str, Any]]:
    """Returns rows and features of a dataset of tensorflow-datasets; downloads it if necessary."""
    # Slow to import, and not needed for local files.
    import tensorflow_datasets as tfds

    builder = tfds.builder(name)
    prepare_dataset(builder)
    return list(tfds.as_numpy(builder.as_dataset(split=split))), builder.info.features


def _targets(labels: np.ndarray) -> dict[str, np.ndarray]:
    if np.all(labels == -1):
        return {}
    if np.issubdtype(labels.dtype, np.floating):
        return {"values": labels.astype(np.float32)}
    return {"labels": labels.astype(np.int32)}


def draw_examples(examples: Sized, count: int, seed: int) -> TextExamples:
    """Returns `count` random examples, in their order; the seed decides which.

    Raises a ValueError if there are fewer, or if the task does not read texts.
    """
    if not isinstance(examples, TextExamples):
        raise ValueError("--num_train_examples does not suit this --task: omit it")
    if count > len(examples):
        raise ValueError(
            f"there are {counted(len(examples), 'training example')}, fewer than {count:,}: draw "
            "fewer"
        )
    random = np.random.default_rng(seed)
    return examples.take(np.sort(random.choice(len(examples), count, replace=False)))


def hold_out(examples: TextExamples) -> tuple[TextExamples, TextExamples]:
    """Holds out a random tenth of the examples, by class; returns the rest and that tenth."""
    labels, groups = examples.targets.get("labels"), np.zeros(len(examples), np.int32)
    only = np.zeros(len(examples), bool)
    if labels is not None and labels.ndim == 1:
        groups = labels
        only = np.bincount(labels)[labels] == 1
    elif labels is not None:
        only = labels[:, labels.sum(axis=0) == 1].any(axis=1)
    held_out, notes = choose_held_out(groups, only)
    rest, tenth = (examples.take(np.flatnonzero(chosen)) for chosen in (~held_out, held_out))
    return rest, dataclasses.replace(tenth, notes=notes)


def choose_held_out(groups: np.ndarray, only: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Chooses a tenth of the examples at random, and at least one.

    That is about a tenth of every group, int [N], with at least one example of each as long as the
    total stays at a tenth. An example that is the `only` one of a class, bool [N], stays in
    training. Returns whether each example was chosen, bool [N], and notes on their number.
    """
    random = np.random.default_rng(_HOLD_OUT_SEED)
    found, sizes = np.unique(groups[~only], return_counts=True)
    chosen = np.zeros(len(groups), bool)
    counts = _counts_to_hold_out(sizes, max(1, round(len(groups) / _PARTS)))
    for group, count in zip(found, counts, strict=True):
        indices = np.flatnonzero((groups == group) & ~only)
        chosen[random.choice(indices, count, replace=False)] = True
    total, singles = int(chosen.sum()), int(only.sum())
    if not total:
        reason = ", because each is the only one of its class" if singles else ""
        raise ValueError(
            f"cannot hold out any of {counted(len(groups), 'training example')}{reason}: give "
            "--dev_file, or more examples"
        )
    notes = (f"held out of {len(groups):,} ({total / len(groups):.1%})",)
    if singles:
        notes += (f"{singles:,} kept in training as the only example of a class",)
    return chosen, notes


def _counts_to_hold_out(sizes: np.ndarray, total: int) -> np.ndarray:
    """Returns how many examples of each group to hold out, at most `total` in all, int [G]."""
    # Each group keeps at least one. Groups whose share is none come first in what rounding leaves.
    # Chance decides between groups of equal size.
    ties = np.random.default_rng([_HOLD_OUT_SEED, 1]).random(len(sizes))
    shares = sizes / _PARTS
    counts = shares.astype(int)
    lacking = ((counts == 0) & (sizes > 1)).sum() - (total - counts.sum())
    largest = np.lexsort([ties, -counts])[: max(0, lacking)]
    counts[largest] -= counts[largest] >= _LARGE
    order = np.lexsort([ties, counts - shares, counts > 0])
    order = order[counts[order] < sizes[order] - 1]
    counts[order[: total - counts.sum()]] += 1
    return counts

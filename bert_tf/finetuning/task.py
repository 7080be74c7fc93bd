"""What a fine-tuning task is, and how its examples are read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

HELD_OUT = 0.1


class Examples(NamedTuple):
    """Parallel sequences: texts as bytes of UTF-8, and the index of each one's label."""

    texts_a: list[bytes]
    texts_b: list[bytes] | None
    labels: np.ndarray  # int32

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: np.ndarray) -> "Examples":
        """The examples at `indices`, in their order."""
        texts_b = self.texts_b and [self.texts_b[i] for i in indices]
        return Examples([self.texts_a[i] for i in indices], texts_b, self.labels[indices])


class TfdsSource(NamedTuple):
    """A dataset of tensorflow-datasets: its name, its fields, its names for our splits."""

    name: str
    text_a: str
    text_b: str | None = None
    dev_split: str = "validation"


@dataclass(frozen=True)
class Task:
    """A classification of texts, or of pairs of texts.

    Args:
        name: what `--task` calls it.
        labels: the classes' names, in the order of their numbers and of the model's outputs.
        read_files: gives the `Examples` of a split of the official files in a folder.
        tfds: where to read from when there is no folder.
        has_dev, has_test: whether there is a "dev" split, and a "test" split with labels. Where
            there is no "dev", the share `HELD_OUT` of "train" is held out for it.
    """

    name: str
    labels: tuple[str, ...]
    read_files: Callable[[str, str], Examples]
    tfds: TfdsSource
    has_dev: bool = True
    has_test: bool = False

    @property
    def pairs(self) -> bool:
        """Whether an example is two texts."""
        return self.tfds.text_b is not None


def load_splits(task: Task, data_dir: str | None, seed: int) -> dict[str, Examples]:
    """The examples of "train", "dev" and, where it has labels, "test".

    Args:
        data_dir: folder of the official files, or None for tensorflow-datasets.
        seed: decides what is held out where the task has no "dev".

    Raises:
        ValueError, OSError: files are missing or malformed; the message names them.
    """

    def read(split: str) -> Examples:
        examples = task.read_files(data_dir, split) if data_dir else _read_tfds(task.tfds, split)
        if not len(examples):
            raise ValueError(f"{data_dir or task.tfds.name}: no examples in {split} of {task.name}")
        return examples

    splits = {"train": read("train")}
    if task.has_dev:
        splits["dev"] = read("dev")
    else:
        splits["train"], splits["dev"] = hold_out(splits["train"], seed)
    if task.has_test:
        splits["test"] = read("test")
    return splits


def hold_out(examples: Examples, seed: int) -> tuple[Examples, Examples]:
    """Divides into the rest and the share `HELD_OUT`, which has every label's share of examples."""
    random = np.random.default_rng(seed)
    held_out = np.zeros(len(examples), bool)
    for label in np.unique(examples.labels):
        indices = np.flatnonzero(examples.labels == label)
        count = max(1, round(HELD_OUT * len(indices)))
        held_out[random.choice(indices, count, replace=False)] = True
    return examples.take(np.flatnonzero(~held_out)), examples.take(np.flatnonzero(held_out))


def _read_tfds(source: TfdsSource, split: str) -> Examples:
    # Slow to import, and not needed for local files.
    import tensorflow_datasets as tfds

    split = source.dev_split if split == "dev" else split
    rows = list(tfds.as_numpy(tfds.load(source.name, split=split)))
    return Examples(
        [row[source.text_a] for row in rows],
        [row[source.text_b] for row in rows] if source.text_b else None,
        np.array([row["label"] for row in rows], np.int32),
    )

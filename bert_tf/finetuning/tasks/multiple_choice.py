"""Multiple choice: which of several texts continues a text."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from bert_tf.base.progress import counted
from bert_tf.config import Head
from bert_tf.finetuning.examples import OWN_TABLE, TextExamples, find_file
from bert_tf.finetuning.labels import class_targets, has_labels, read_single
from bert_tf.finetuning.metrics import mean_cross_entropy
from bert_tf.finetuning.objectives import ClassificationObjective
from bert_tf.finetuning.predictions import class_columns, draw_confusion, write_table
from bert_tf.finetuning.serving import ChoiceModule
from bert_tf.finetuning.task import Outputs, Task
from bert_tf.finetuning.tasks.text_task import constant_predictions
from bert_tf.finetuning.tokenizing import Features, encode_rows, note_constant
from bert_tf.models.task_model import BertTaskModel
from bert_tf.tables.table import read_table
from bert_tf.text.tokenizer import WordPieceTokenizer


@dataclass(frozen=True)
class ChoiceExamples:
    """Texts, UTF-8 bytes [N], and the choices of each, [N][K].

    The targets are `labels`, the number of the right choice, int [N]; {} if unknown. The notes are
    faults in the data, with their counts.
    """

    texts: list[bytes]
    choices: list[list[bytes]]
    targets: Mapping[str, np.ndarray]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def keys(self) -> list[tuple[bytes, ...]]:
        """Each text with its choices."""
        return [(text, *row) for text, row in zip(self.texts, self.choices, strict=True)]

    def take(self, indices: np.ndarray) -> "ChoiceExamples":
        """Returns the examples at `indices`, in that order."""
        lists = {x: [getattr(self, x)[i] for i in indices] for x in ("texts", "choices")}
        targets = {name: values[indices] for name, values in self.targets.items()}
        return dataclasses.replace(self, **lists, targets=targets)

    def flatten(self) -> TextExamples:
        """Returns a pair for each choice: the text and the choice, N * K in all."""
        pairs = [
            (text, choice)
            for text, choices in zip(self.texts, self.choices, strict=True)
            for choice in choices
        ]
        texts, choices = map(list, zip(*pairs, strict=True))
        return TextExamples(texts, choices, {}, notes=self.notes)


@dataclass(frozen=True, kw_only=True)
class MultipleChoiceTask(Task):
    """Chooses one of K texts that may continue a text.

    Every choice is a row of its own, [CLS] text [SEP] choice [SEP]; the softmax is over the K rows.

    Attributes:
        labels: the names of the choices.
        name, read_file, read_files: see `Task`.

    Source: BERT (arXiv:1810.04805) section 4.4.
    """

    name: str
    labels: tuple[str, ...]
    read_file: Callable[[str, str], ChoiceExamples]
    read_files: Callable[[str, str], ChoiceExamples]

    metric = "accuracy"
    metrics = ("accuracy", "loss")
    objective = ClassificationObjective()

    @property
    def head(self) -> Head:
        return Head("multiple_choice", self.labels)

    def featurize(
        self, examples: ChoiceExamples, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> Features:
        """Tokenizes all choices; ids and types are [N, K, (length)]."""
        rows, count = examples.flatten(), len(self.labels)
        features = encode_rows(rows, count, "choices", examples, tokenizer, max_seq_length)
        if "labels" not in examples.targets:
            return features
        labels = examples.targets["labels"]
        constant = note_constant(labels, lambda label: f'"{self.labels[label]}"')
        return dataclasses.replace(features, notes=(*features.notes, *constant))

    def score(self, outputs: Outputs, features: Features) -> dict[str, float]:
        """Returns the mean cross-entropy, `loss`, and the `accuracy`."""
        logits, labels = outputs["logits"].astype(np.float64), features.targets["labels"]
        return {
            "loss": mean_cross_entropy(labels, logits),
            "accuracy": float(np.mean(labels == logits.argmax(axis=-1))),
        }

    def problem(self, outputs: Outputs, features: Features) -> str | None:
        """Reports that (nearly) all predictions are the choice in one position."""
        return constant_predictions(outputs["logits"], features.targets["labels"], self.labels)

    def write_predictions(
        self, folder: str, split: str, outputs: Outputs, features: Features
    ) -> list[str]:
        """Writes the predictions of a split.

        `predictions_<split>.tsv` has the columns index, label, prediction and probabilities;
        `confusion_<split>.png` is for a split with labels.
        """
        logits = outputs["logits"].astype(np.float64)
        labels, classes = features.targets.get("labels"), range(len(self.labels))
        columns = class_columns(logits, labels, classes, self.labels)
        columns = {"index": range(len(logits)), **columns}
        files = [write_table(folder, f"predictions_{split}.tsv", columns)]
        if labels is not None:
            files.append(f"confusion_{split}.png")
            draw_confusion(labels, logits.argmax(axis=-1), self.labels, f"{folder}/{files[-1]}")
        return files

    def serving(
        self, model: BertTaskModel, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> ChoiceModule:
        """Builds a module that returns `probabilities`, float32 [B, K], and `index`, int32 [B]."""
        return ChoiceModule(model, tokenizer, max_seq_length)

    def example_call(self) -> str:
        return (
            '(["a text"], [["a choice", "another"]])  '
            "# a dict: the probabilities of the choices, and the index of the most probable"
        )


ENDINGS = ("ending0", "ending1", "ending2", "ending3")


def read_swag(data_dir: str, split: str) -> ChoiceExamples:
    """Reads `train.csv`, `val.csv` or `test.csv` in a folder or in `data` there."""
    name = f"{'val' if split == 'dev' else split}.csv"
    return read_swag_file(find_file(data_dir, name, f"data/{name}"), split)


def read_swag_file(path: str, split: str) -> ChoiceExamples:
    """Reads `sent1`, and `sent2` with each ending, as in the paper; test sets may lack labels."""
    table = read_table(path)
    table.column("sent1", OWN_TABLE)
    texts, beginnings = map(table.texts, ("sent1", "sent2"))
    endings = [*zip(*map(table.texts, ENDINGS), strict=True)]
    choices = [
        [(beginning + b" " + ending).strip() for ending in row]
        for beginning, row in zip(beginnings, endings, strict=True)
    ]
    targets = {}
    if split != "test" or has_labels(table, ["label"]):
        rows, numbers = read_single(table, "label"), [*map(str, range(len(ENDINGS)))]
        targets = {"labels": class_targets(table, rows, numbers, several=False)}
    # The choices start with the beginnings, so the counts of empty texts miss empty endings.
    empty = sum(not ending.strip() for row in endings for ending in row)
    notes = (counted(empty, "empty ending"),) if empty else ()
    return ChoiceExamples(texts, choices, targets, notes)


TASKS = (
    MultipleChoiceTask(name="swag", labels=ENDINGS, read_file=read_swag_file, read_files=read_swag),
)

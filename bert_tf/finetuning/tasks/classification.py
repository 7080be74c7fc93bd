"""Classification of texts or pairs of texts: one class, or any number; weights of classes."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from scipy.special import softmax

from bert_tf.base.files import shortened, similar
from bert_tf.base.progress import counted
from bert_tf.config import Head
from bert_tf.finetuning.metrics import OF_A_CLASS, of_classes, precision_recall_f1
from bert_tf.finetuning.objectives import ClassificationObjective, MultiLabelObjective
from bert_tf.finetuning.predictions import class_columns, draw_confusion, write_rows
from bert_tf.finetuning.serving import Tensors
from bert_tf.finetuning.task import Outputs
from bert_tf.finetuning.tasks.text_task import (
    CLASSES_SHOWN,
    TextTask,
    constant_answer,
    constant_predictions,
)
from bert_tf.finetuning.tokenizing import Features, note_constant
from bert_tf.tables.table import as_json, as_number, class_name, is_plain, join_classes

# If one class has at least this share, accuracy says little.
_MOSTLY = 0.9


@dataclass(frozen=True, kw_only=True)
class ClassificationTask(TextTask):
    """Assigns one of several classes to a text or a pair of texts.

    Attributes:
        labels: the names of the classes, in the order of the model's outputs.
        json_labels: see `Head`.
    """

    labels: tuple[str, ...]
    json_labels: bool = False
    metric: str = "accuracy"

    objective = ClassificationObjective()

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(self._perfect_scores(np.arange(len(self.labels))))

    def _perfect_scores(self, labels: np.ndarray) -> dict[str, float]:
        return of_classes(labels, np.eye(len(self.labels))[labels], self.labels)

    @property
    def head(self) -> Head:
        return Head("classifier", self.labels, json_labels=self.json_labels)

    def note_targets(self, targets: Mapping[str, np.ndarray]) -> tuple[str, ...]:
        if constant := note_constant(targets["labels"], lambda label: f'"{self.labels[label]}"'):
            return constant
        counts = np.bincount(targets["labels"], minlength=len(self.labels))
        if len(counts) > CLASSES_SHOWN:
            missing = np.sum(counts == 0)
            return (f"none of {missing:,} of the {len(counts):,} classes",) if missing else ()
        return tuple(f'{n:,} "{name}"' for n, name in zip(counts, self.labels, strict=True))

    def score(self, outputs: Outputs, features: Features) -> dict[str, float]:
        """See `metrics.of_classes`."""
        logits = outputs["logits"].astype(np.float64)
        return of_classes(features.targets["labels"], logits, self.labels)

    def check_metric(self, features: Features) -> str | None:
        labels = features.targets["labels"]
        if self.metric not in self._perfect_scores(labels):
            raise self.undefined_metric()
        counts = np.bincount(labels)
        share, name = counts.max() / len(labels), self.labels[counts.argmax()]
        if self.metric != "accuracy" or not _MOSTLY <= share < 1:
            return None
        return (
            f'{share:.1%} of {self.dev_set} are "{name}", so predicting "{name}" for every example '
            "would reach this accuracy. --metric=macro_f1 weighs all classes equally when it "
            "chooses the best epoch."
        )

    def problem(self, outputs: Outputs, features: Features) -> str | None:
        """Reports (nearly) constant predictions, unless most labels are that class."""
        return constant_predictions(outputs["logits"], features.targets["labels"], self.labels)

    def prediction_columns(self, outputs: Outputs, features: Features) -> dict[str, Sequence]:
        """Returns the columns label, prediction and the probability of each class."""
        logits = outputs["logits"].astype(np.float64)
        return class_columns(logits, features.targets.get("labels"), self.labels, self.labels)

    def write_predictions(
        self, folder: str, split: str, outputs: Outputs, features: Features
    ) -> list[str]:
        """Writes the predictions of a split, and `confusion_<split>.png` if it has labels.

        For the splits of the test set, `<split>_results.tsv` has only the probabilities, without a
        header, as in google-research/bert.
        """
        files = super().write_predictions(folder, split, outputs, features)
        logits = outputs["logits"].astype(np.float64)
        if split in self.test_splits:
            files.append(write_rows(folder, f"{split}_results.tsv", softmax(logits, axis=-1)))
        if "labels" in features.targets:
            files.append(f"confusion_{split}.png")
            labels, predictions = features.targets["labels"], logits.argmax(axis=-1)
            draw_confusion(labels, predictions, self.labels, f"{folder}/{files[-1]}")
        return files

    def serve(self, predicted: tf.Tensor) -> Tensors:
        """Returns `probabilities`, float32 [B, C], and `label`, strings [B].

        The columns of `probabilities` are in the order of the variable `labels`.
        """
        probabilities = tf.nn.softmax(predicted)
        label = tf.gather(tf.constant(self.labels), tf.argmax(probabilities, axis=-1))
        return {"probabilities": probabilities, "label": label}

    @property
    def predicted(self) -> str:
        return f"the probabilities of {', '.join(self.labels)}, and the label"


@dataclass(frozen=True, kw_only=True)
class MultiLabelTask(TextTask):
    """Assigns any number of classes to a text or a pair of texts.

    A class is predicted if its probability is 0.5 or more.

    Attributes:
        labels: the names of the classes, two or more, in the order of the model's outputs.
        separator: goes between the names of predicted classes; see `join_classes`.
        json_labels, listed_labels: see `Head`.
    """

    labels: tuple[str, ...]
    json_labels: bool = False
    listed_labels: bool = False
    separator: str = ","

    metric: str = "micro_f1"

    objective = MultiLabelObjective()

    @property
    def metrics(self) -> tuple[str, ...]:
        perfect = np.eye(len(self.labels))
        return tuple(self._scores(perfect, perfect))

    @property
    def head(self) -> Head:
        forms = dict(json_labels=self.json_labels, listed_labels=self.listed_labels)
        return Head("classifier", self.labels, multi_label=True, **forms)

    def note_targets(self, targets: Mapping[str, np.ndarray]) -> tuple[str, ...]:
        total, counts = len(targets["labels"]), targets["labels"].sum(axis=0, dtype=np.int64)
        if len(counts) > CLASSES_SHOWN:
            found = {"no example": np.sum(counts == 0), "every example": np.sum(counts == total)}
            notes = (f"classes that {word} has: {n:,}" for word, n in found.items() if n)
            return tuple(notes) if total > 1 else ()
        words = {0: "none of them", total: "all of them"} if total > 1 else {}
        pairs = zip(counts, self.labels, strict=True)
        return tuple(f'{words.get(n, f"{n:,}")} "{name}"' for n, name in pairs)

    def score(self, outputs: Outputs, features: Features) -> dict[str, float]:
        """Returns the `loss`, the `subset_accuracy`, and precision, recall and F1.

        The loss is the mean binary cross-entropy, and the subset accuracy is the share of examples
        whose classes are all right. `micro_f1` counts all classes together, `macro_f1` is the mean
        over the classes, and `f1/CLASS` is the F1 of one class.
        """
        return self._scores(features.targets["labels"], outputs["logits"].astype(np.float64))

    def _scores(self, labels: np.ndarray, logits: np.ndarray) -> dict[str, float]:
        # Slow to import.
        from sklearn.metrics import precision_recall_fscore_support

        predicted, losses = logits >= 0, np.logaddexp(0, logits) - labels * logits
        micro = precision_recall_fscore_support(labels, predicted, average="micro", zero_division=0)
        return {
            "loss": float(losses.mean()),
            "subset_accuracy": float(np.all(predicted == labels, axis=1).mean()),
            **{f"micro_{name}": float(x) for name, x in zip(OF_A_CLASS, micro, strict=False)},
            **precision_recall_f1(labels, predicted, self.labels),
        }

    def problem(self, outputs: Outputs, features: Features) -> str | None:
        """Reports (nearly) constant predictions, or none at all, unless most labels are so."""
        predicted, labels = outputs["logits"] >= 0, features.targets["labels"] > 0
        usual = predicted.mean(axis=0) >= 0.5
        if usual.any():
            same = (np.all(x == usual, axis=1) for x in (predicted, labels))
            return constant_answer(self._joined(usual[np.newaxis])[0], *same)
        true = int(np.sum(labels.any(axis=1)))
        if not true or np.any(predicted):
            return None
        return (
            f"the model predicts no class for any of {len(features):,} examples, but should "
            f"for {true:,}: no probability reaches 0.5"
        )

    def prediction_columns(self, outputs: Outputs, features: Features) -> dict[str, Sequence]:
        """Returns the columns labels, prediction and the probability of each class."""
        logits, targets = outputs["logits"].astype(np.float64), features.targets
        columns = {"labels": self._joined(targets["labels"] > 0)} if "labels" in targets else {}
        columns["prediction"] = self._joined(logits >= 0)
        probabilities = np.exp(-np.logaddexp(0, -logits))
        return columns | {f"p({name})": probabilities[:, i] for i, name in enumerate(self.labels)}

    def _joined(self, chosen: np.ndarray) -> list[str]:
        names = np.array(self.labels)
        return [join_classes(names[row].tolist(), self.separator) for row in chosen]

    def serve(self, predicted: tf.Tensor) -> Tensors:
        """Returns `probabilities`, float32 [B, C], and `labels`, strings [B].

        An element of `labels` holds the names of the predicted classes with separators between
        them, or as a JSON list if separators would be ambiguous. The columns of `probabilities` are
        in the order of the variable `labels`.
        """
        plain = np.array([is_plain(name, self.separator) for name in self.labels])
        # With a single class, the model's output has no axis of classes.
        predicted = tf.reshape(predicted, [-1, len(self.labels)])

        def join(names, separator):
            rows = tf.broadcast_to(tf.constant(names), tf.shape(predicted))
            chosen = tf.ragged.boolean_mask(rows, predicted >= 0)
            return tf.strings.reduce_join(chosen, axis=-1, separator=separator)

        labels = join(self.labels, self.separator)
        if not plain.all():
            items = join([*map(as_json, self.labels)], ", ")
            separable = tf.reduce_all(plain | (predicted < 0), axis=-1)
            labels = tf.where(separable, labels, tf.strings.join(["[", items, "]"]))
        return {"probabilities": tf.sigmoid(predicted), "labels": labels}

    @property
    def predicted(self) -> str:
        return f"the probabilities of {', '.join(self.labels)}, and the predicted labels"


BALANCED = "balanced"


def class_weights(value: str, labels: Sequence[str], targets: np.ndarray) -> tuple[float, ...]:
    """Returns the weight of each class, given those of the training examples, int [N].

    "balanced" gives every class the same total weight: examples / (classes * examples of the
    class), counting only classes that occur. The mean weight of an example is then 1. Any other
    value is `label=weight` separated by commas; other classes weigh 1.
    """
    if value != BALANCED:
        # A label may hold commas, a weight none.
        items = re.sub("(=[^,]*),", "\\1\n", value).split("\n")
        stated = dict(_parse(item, labels) for item in items)
        if len(stated) < len(items):
            raise ValueError(f"--class_weights={value} names a class twice")
        return tuple(stated.get(label, 1.0) for label in labels)
    counts = np.bincount(targets, minlength=len(labels))
    present = np.count_nonzero(counts)
    return tuple(len(targets) / (present * count) if count else 0.0 for count in counts.tolist())


def describe_weights(weights: Sequence[float], labels: Sequence[str], targets: np.ndarray) -> str:
    """Returns a line that tells the user the weights and where they apply."""
    counts = np.bincount(targets, minlength=len(labels))
    parts = [
        f"{label} {weight:.4g} ({counted(count, 'example')})"
        for label, weight, count in zip(labels, weights, counts.tolist(), strict=True)
    ]
    return f"Class weights: {', '.join(parts)}."


def _parse(item: str, labels: Sequence[str]) -> tuple[str, float]:
    label, _, number = item.rpartition("=")
    names = {class_name(name): name for name in labels} | {name: name for name in labels}
    label = names.get(label, names.get(class_name(label), label))
    weight = as_number(number)
    if label not in labels or not 0 < weight < math.inf:
        raise ValueError(
            f"--class_weights: {item!r} is neither `{BALANCED}` nor label=weight, with a weight "
            f"above 0 and one of the labels {shortened(labels, 20)}{similar(label, labels)}"
        )
    return label, weight

"""Classification of texts or pairs of texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from scipy.special import softmax

from bert_tf.config import Head
from bert_tf.finetuning.features import Features, note_constant
from bert_tf.finetuning.metrics import of_classes
from bert_tf.finetuning.objectives import ClassificationObjective
from bert_tf.finetuning.predictions import class_columns, draw_confusion, write_rows
from bert_tf.finetuning.serving import Tensors
from bert_tf.finetuning.task import Outputs
from bert_tf.finetuning.tasks.text_task import CLASSES_SHOWN, TextTask, constant_predictions

# If one class has at least this share, accuracy says little.
_MOSTLY = 0.9


@dataclass(frozen=True, kw_only=True)
class ClassificationTask(TextTask):
    """Assigns one of several classes to a text or a pair of texts.

    Attributes:
        labels: the names of the classes, in the order of the model's outputs.
    """

    labels: tuple[str, ...]
    metric: str = "accuracy"

    objective = ClassificationObjective()

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(self._perfect_scores(np.arange(len(self.labels))))

    def _perfect_scores(self, labels: np.ndarray) -> dict[str, float]:
        return of_classes(labels, np.eye(len(self.labels))[labels], self.labels)

    @property
    def head(self) -> Head:
        return Head("classifier", self.labels)

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

"""Classification of texts or pairs of texts."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from scipy.special import softmax

from bert_tf.config import Head
from bert_tf.finetuning.features import Features, note_constant
from bert_tf.finetuning.metrics import of_classes
from bert_tf.finetuning.objectives import ClassificationObjective
from bert_tf.finetuning.predictions import write_rows, write_table
from bert_tf.finetuning.serving import TextModule
from bert_tf.finetuning.tasks.text_task import CLASSES_SHOWN, TextTask, constant_predictions
from bert_tf.models.task_model import BertTaskModel
from bert_tf.plots.confusion import draw_confusion
from bert_tf.text.tokenizer import WordPieceTokenizer

# If one class has at least this share, accuracy says little.
_MOSTLY = 0.9


@dataclass(frozen=True, kw_only=True)
class ClassificationTask(TextTask):
    """Assigns one of several classes to a text or a pair of texts.

    Attributes:
        labels: the names of the classes, in the order of the model's outputs.
        metric: see `Task`.
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

    def score(self, outputs: Mapping[str, np.ndarray], features: Features) -> dict[str, float]:
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

    def problem(self, outputs: Mapping[str, np.ndarray], features: Features) -> str | None:
        """Reports (nearly) constant predictions, unless most labels are that class."""
        return constant_predictions(outputs["logits"], features.targets["labels"], self.labels)

    def write_predictions(
        self, folder: str, split: str, outputs: Mapping[str, np.ndarray], features: Features
    ) -> list[str]:
        """Writes the predictions of a split.

        `predictions_<split>.tsv` has the columns index, label, prediction, the probability of
        each class and the text; `confusion_<split>.png` is for a split with labels. For the
        splits of the test set, `<split>_results.tsv` has only the probabilities, without a
        header, as in google-research/bert.
        """
        logits = outputs["logits"].astype(np.float64)
        predictions, labels = logits.argmax(axis=-1), features.targets.get("labels")
        columns = {"index": features.examples.index}
        if labels is not None:
            columns["label"] = [self.labels[label] for label in labels]
        columns["prediction"] = [self.labels[label] for label in predictions]
        probabilities = softmax(logits, axis=-1)
        columns |= {f"p({name})": probabilities[:, i] for i, name in enumerate(self.labels)}
        columns |= features.examples.text_columns
        files = [write_table(folder, f"predictions_{split}.tsv", columns)]
        if split in self.test_splits:
            files.append(write_rows(folder, f"{split}_results.tsv", probabilities))
        if labels is not None:
            files.append(f"confusion_{split}.png")
            draw_confusion(labels, predictions, self.labels, f"{folder}/{files[-1]}")
        return files

    def serving(
        self, model: BertTaskModel, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> TextModule:
        """Builds a module that returns `probabilities`, float32 [B, C], and `label`, strings [B].

        The columns of `probabilities` are in the order of the variable `labels`.
        """
        names = tf.constant(self.labels)

        def outputs(logits):
            probabilities = tf.nn.softmax(logits)
            label = tf.gather(names, tf.argmax(probabilities, axis=-1))
            return {"probabilities": probabilities, "label": label}

        return TextModule(
            model, tokenizer, max_seq_length, pairs=self.pairs, outputs=outputs, labels=self.labels
        )

    @property
    def predicted(self) -> str:
        return f"the probabilities of {', '.join(self.labels)}, and the label"

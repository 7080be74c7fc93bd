"""Tasks on a text or a pair of texts: what all of them do, and the one that predicts a number."""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig, Head
from bert_tf.finetuning.examples import TextExamples, TfdsSource, hold_out
from bert_tf.finetuning.metrics import correlations
from bert_tf.finetuning.objectives import RegressionObjective
from bert_tf.finetuning.predictions import write_table
from bert_tf.finetuning.serving import Tensors, TextModule
from bert_tf.finetuning.task import DataFiles, Outputs, Task
from bert_tf.finetuning.tokenizing import Features, encode_texts, note_constant
from bert_tf.models.task_model import BertTaskModel
from bert_tf.text.tokenizer import WordPieceTokenizer

# With more classes than this, the output does not count their examples.
CLASSES_SHOWN = 10
# From this share of the examples on, predictions of one class count as constant.
_NEARLY_ALL = 0.99


@dataclass(frozen=True, kw_only=True)
class TextTask(Task):
    """Predicts one thing for a text or a pair of texts; subclasses say what.

    Attributes:
        pairs: whether an example is two texts.
        submissions: the name of a file for a server of predictions, by split.
        submitted: returns the predictions of outputs as that server expects them.
        apart: whether the model reads every text alone; the exported module then compares two.
        name, read_file, ..., columns: see `Task`.
    """

    name: str
    read_file: Callable[[str, str], TextExamples] | None = None
    read_files: Callable[[str, str], TextExamples] | None = None
    read_own: Callable[[DataFiles, str], TextExamples] | None = None
    tfds: TfdsSource | None = None
    pairs: bool = False
    submissions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    submitted: Callable[[Outputs], list[str]] | None = None
    has_dev: bool = True
    dev_splits: tuple[str, ...] = ("dev",)
    test_splits: tuple[str, ...] = ("test",)
    optional_splits: tuple[str, ...] = ()
    columns: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    apart = False
    hold_out = staticmethod(hold_out)
    encode = staticmethod(encode_texts)

    def featurize(
        self, examples: TextExamples, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> Features:
        features = self.encode(examples, tokenizer, max_seq_length)
        if not features.targets:
            return features
        notes = (*features.notes, *self.note_targets(features.targets))
        return dataclasses.replace(features, notes=notes)

    def build_model(self, config: BertConfig) -> keras.Model:
        if getattr(config, "bilstm", None) == "siamese" and (self.apart or not self.pairs):
            raise ValueError("--preset=bilstm-pairs is for pairs of texts: use --preset=bilstm")
        return super().build_model(config)

    @property
    @abc.abstractmethod
    def predicted(self) -> str:
        """What the exported module returns, in words."""

    @abc.abstractmethod
    def prediction_columns(self, outputs: Outputs, features: Features) -> dict[str, Sequence]:
        """Returns the columns of targets, if known, and predictions, for `predictions_*.tsv`."""

    def write_predictions(
        self, folder: str, split: str, outputs: Outputs, features: Features
    ) -> list[str]:
        """Writes the predictions of a split.

        `predictions_<split>.tsv` has the index of each example, `prediction_columns` and the text.
        There may also be a file for a server.
        """
        index, columns = features.examples.index, self.prediction_columns(outputs, features)
        columns = {"index": index, **columns, **features.examples.text_columns}
        files = [write_table(folder, f"predictions_{split}.tsv", columns)]
        if split in self.submissions:
            columns = {"index": index, "prediction": self.submitted(outputs)}
            files.append(write_table(folder, self.submissions[split], columns))
        return files

    @abc.abstractmethod
    def serve(self, predicted: tf.Tensor) -> Tensors:
        """Returns what the exported module returns, given the output of the model, in the graph."""

    def serving(
        self, model: BertTaskModel, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> TextModule:
        """Builds a module that returns what `serve` says; its variable `labels` names classes."""
        inputs = dict(pairs=self.pairs or self.apart, apart=self.apart)
        outputs = dict(outputs=self.serve, labels=self.head.labels)
        return TextModule(model, tokenizer, max_seq_length, **inputs, **outputs)

    def example_call(self) -> str:
        arguments = '["a text"], ["another"]' if self.pairs or self.apart else '["a text"]'
        return f"({arguments})  # a dict: {self.predicted}"

    def note_targets(self, targets: Mapping[str, np.ndarray]) -> tuple[str, ...]:
        """Returns notes on the targets of a split, for example that all are the same."""
        return ()


def constant_predictions(
    logits: np.ndarray, labels: np.ndarray, names: Sequence[str]
) -> str | None:
    """Describes (nearly) constant predictions; None if there are none, or if most are right.

    `logits` are [N, C], and `labels` the right classes, int [N].
    """
    predicted = logits.argmax(axis=-1)
    label = np.bincount(predicted).argmax()
    return constant_answer(names[label], predicted == label, labels == label)


def constant_answer(name: str, predicted: np.ndarray, right: np.ndarray) -> str | None:
    """See `constant_predictions`; bool [N]: which examples have this prediction, and should."""
    count, true = int(np.sum(predicted)), int(np.sum(right))
    if count < _NEARLY_ALL * len(predicted) or true >= count or count == 1:
        return None
    return (
        f'the model predicts "{name}" for {count:,} of {len(predicted):,} examples, but '
        f"that is right for {true:,}: it ignores its input"
    )


# Predictions that deviate less than this share of what the values deviate count as constant.
_NEARLY_CONSTANT = 0.01


def number_head(head: Head) -> Head:
    """Returns a head for numbers, with the mean and the deviation of another head."""
    return Head("classifier", mean=head.mean, deviation=head.deviation)


@dataclass(frozen=True, kw_only=True)
class RegressionTask(TextTask):
    """Predicts a number for a text or a pair of texts. The target is `values`, float [N].

    Args:
        head: holds the mean and the deviation of the numbers. Without them, the dense layer has to
            learn the numbers themselves, which takes many steps if they are far from 0 or from each
            other.
    """

    head: Head = Head("classifier")

    metric: str = "spearman"
    predicted = "the value"
    metrics = ("spearman", "pearson", "pearson_spearman_mean", "mean_squared_error", "loss")

    @property
    def objective(self) -> RegressionObjective:
        return RegressionObjective(self.head.deviation)

    def note_targets(self, targets: Mapping[str, np.ndarray]) -> tuple[str, ...]:
        return note_constant(targets["values"], "{:g}".format)

    def score(self, outputs: Outputs, features: Features) -> dict[str, float]:
        """Returns the `loss`, the `mean_squared_error` and the correlation coefficients.

        The `loss` is the mean squared error divided by the square of the deviation.
        """
        predictions = outputs["values"].astype(np.float64)
        values = features.targets["values"].astype(np.float64)
        error = float(np.mean((predictions - values) ** 2))
        scores = {"loss": error / self.head.deviation**2, "mean_squared_error": error}
        return scores | correlations(values, predictions)

    def problem(self, outputs: Outputs, features: Features) -> str | None:
        """Reports (nearly) constant predictions of values that are not constant."""
        predictions, values = outputs["values"], features.targets["values"]
        if np.std(predictions) >= _NEARLY_CONSTANT * np.std(values):
            return None
        return (
            f"the model predicts {np.mean(predictions):.4g} for all of {len(values):,} examples "
            f"(standard deviation {np.std(predictions):.2g}, but {np.std(values):.2g} of the "
            "values): it ignores its input"
        )

    def prediction_columns(self, outputs: Outputs, features: Features) -> dict[str, Sequence]:
        """Returns the columns value and prediction."""
        targets = features.targets
        columns = {"value": targets["values"]} if "values" in targets else {}
        return columns | {"prediction": outputs["values"]}

    def serve(self, predicted: tf.Tensor) -> Tensors:
        """Returns `value`, float32 [B]."""
        return {"value": predicted}

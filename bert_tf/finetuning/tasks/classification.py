"""Classification of texts or pairs of texts."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from bert_tf.config import Head
from bert_tf.finetuning.features import Features
from bert_tf.finetuning.objectives import ClassificationObjective
from bert_tf.finetuning.predictions import write_table
from bert_tf.finetuning.serving import TextModule
from bert_tf.finetuning.tasks.text_task import TextTask
from bert_tf.models.task_model import BertTaskModel
from bert_tf.text.tokenizer import WordPieceTokenizer

# From this share of the examples on, predictions of one class count as constant.
_NEARLY_ALL = 0.99


@dataclass(frozen=True, kw_only=True)
class ClassificationTask(TextTask):
    """Assigns one of several classes to a text or a pair of texts.

    Attributes:
        labels: the names of the classes, in the order of the model's outputs.
    """

    labels: tuple[str, ...]

    metric = "accuracy"
    objective = ClassificationObjective()

    @property
    def head(self) -> Head:
        return Head("classifier", self.labels)

    def score(self, outputs: Mapping[str, np.ndarray], features: Features) -> dict[str, float]:
        """Returns the mean cross-entropy, `loss`, and the `accuracy`."""
        logits, labels = outputs["logits"].astype(np.float64), features.targets["labels"]
        log_sums = np.logaddexp.reduce(logits, axis=-1)
        losses = log_sums - np.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
        correct = logits.argmax(axis=-1) == labels
        return {"loss": float(losses.mean()), "accuracy": float(correct.mean())}

    def problem(self, outputs: Mapping[str, np.ndarray], features: Features) -> str | None:
        """Reports (nearly) constant predictions, unless most labels are that class."""
        predicted = outputs["logits"].argmax(axis=-1)
        label = np.bincount(predicted).argmax()
        count, true = (int(np.sum(x == label)) for x in (predicted, features.targets["labels"]))
        if count < _NEARLY_ALL * len(predicted) or true >= count:
            return None
        return (
            f'the model predicts "{self.labels[label]}" for {count:,} of {len(predicted):,} '
            f"examples, but {true:,} are: it ignores its input. Try another --learning_rate "
            "(3e-4 for an encoder as small as tiny, 2e-5 for base), more epochs, or an "
            "--init_checkpoint that was trained for longer."
        )

    def write_predictions(
        self, folder: str, split: str, outputs: Mapping[str, np.ndarray], features: Features
    ) -> list[str]:
        """Writes `predictions_<split>.tsv`: index, label, prediction, probability of each class."""
        logits = outputs["logits"].astype(np.float64)
        columns = {"index": range(len(logits))}
        if "labels" in features.targets:
            columns["label"] = [self.labels[label] for label in features.targets["labels"]]
        columns["prediction"] = [self.labels[label] for label in logits.argmax(axis=-1)]
        probabilities = np.exp(logits - np.logaddexp.reduce(logits, axis=-1)[:, None])
        columns |= {f"p({name})": probabilities[:, i] for i, name in enumerate(self.labels)}
        return [write_table(folder, f"predictions_{split}.tsv", columns)]

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

    def example_call(self) -> str:
        arguments = '["a text"], ["another"]' if self.pairs else '["a text"]'
        return (
            f"({arguments})  # a dict: the probabilities of {', '.join(self.labels)}, and the label"
        )

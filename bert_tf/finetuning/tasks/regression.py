"""A number for a text or a pair of texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from bert_tf.config import Head
from bert_tf.finetuning.features import Features, note_constant
from bert_tf.finetuning.metrics import correlations
from bert_tf.finetuning.objectives import RegressionObjective
from bert_tf.finetuning.serving import Tensors
from bert_tf.finetuning.task import Outputs
from bert_tf.finetuning.tasks.text_task import IGNORES_INPUT, TextTask

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
            f"values): {IGNORES_INPUT}"
        )

    def prediction_columns(self, outputs: Outputs, features: Features) -> dict[str, Sequence]:
        """Returns the columns value and prediction."""
        targets = features.targets
        columns = {"value": targets["values"]} if "values" in targets else {}
        return columns | {"prediction": outputs["values"]}

    def serve(self, predicted: tf.Tensor) -> Tensors:
        """Returns `value`, float32 [B]."""
        return {"value": predicted}

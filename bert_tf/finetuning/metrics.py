"""Metrics of predictions, computed by scikit-learn and SciPy.

The correlation of constant labels or predictions, which is undefined, is 0.
"""

import warnings
from collections.abc import Callable, Sequence

import numpy as np

from bert_tf.finetuning.predictions import cross_entropy

# The metrics of each class, as scikit-learn returns them.
OF_A_CLASS = ("precision", "recall", "f1")


def accuracy(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the share of predictions that equal their labels, both int [N]."""
    return float(np.mean(labels == predictions))


def f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the F1 of class 1; labels and predictions are 0 or 1, int [N]."""
    # scikit-learn and SciPy are slow to import.
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predictions, zero_division=0))


def matthews(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the Matthews correlation coefficient of labels and predictions, both int [N]."""
    from sklearn.metrics import matthews_corrcoef

    return _without_warnings(matthews_corrcoef, labels, predictions)


def pearson(values: np.ndarray, predictions: np.ndarray) -> float:
    """Returns Pearson's linear correlation coefficient, both float [N]."""
    from scipy.stats import pearsonr

    return _correlation(pearsonr, values, predictions)


def spearman(values: np.ndarray, predictions: np.ndarray) -> float:
    """Returns Spearman's rank correlation coefficient, both float [N]."""
    from scipy.stats import spearmanr

    return _correlation(spearmanr, values, predictions)


def of_classes(labels: np.ndarray, logits: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """Returns the metrics of a classifier that predicts one class for each example.

    They are `loss` (the mean cross-entropy), `accuracy`, `matthews` and those of
    `precision_recall_f1`. With two classes, there are also `f1`, that of the second class, and
    `roc_auc`, the area under its ROC curve. If all labels are the same, `roc_auc` is undefined and
    left out. `labels` are int [N], and `logits` [N, C].
    """
    from sklearn.metrics import roc_auc_score

    predictions = logits.argmax(axis=-1)
    scores = {
        "loss": cross_entropy(labels, logits),
        "accuracy": accuracy(labels, predictions),
        "matthews": matthews(labels, predictions),
    }
    if len(names) == 2:
        scores["f1"] = f1(labels, predictions)
    if len(names) == 2 and np.ptp(labels):
        scores["roc_auc"] = float(roc_auc_score(labels, logits[:, 1] - logits[:, 0]))
    return scores | precision_recall_f1(labels, predictions, names)


def precision_recall_f1(
    labels: np.ndarray, predictions: np.ndarray, names: Sequence[str]
) -> dict[str, float]:
    """Returns the metrics of each class, such as `f1/spam`, and their means, such as `macro_f1`.

    A ratio without any example is 0. If every example has one class, classes that are neither a
    label nor a prediction are left out, as in scikit-learn's `classification_report`. Labels and
    predictions are one class each, int [N], or any number of classes, 0 or 1 [N, C].
    """
    from sklearn.metrics import precision_recall_fscore_support

    found = np.arange(len(names)) if labels.ndim == 2 else np.union1d(labels, predictions)
    columns = precision_recall_fscore_support(labels, predictions, labels=found, zero_division=0)
    columns = dict(zip(OF_A_CLASS, columns, strict=False))
    # Results are written as lines of text.
    keys = [names[index].replace("\n", "\\n") for index in found]
    means = {f"macro_{metric}": float(column.mean()) for metric, column in columns.items()}
    return means | {
        f"{metric}/{key}": float(value)
        for metric, column in columns.items()
        for key, value in zip(keys, column, strict=True)
    }


def _correlation(function: Callable, values: np.ndarray, predictions: np.ndarray) -> float:
    if np.ptp(values) == 0 or np.ptp(predictions) == 0:
        return 0.0
    return _without_warnings(lambda *arrays: function(*arrays).statistic, values, predictions)


def _without_warnings(function: Callable, *arrays: np.ndarray) -> float:
    """Calls a function without its warnings about rare inputs: its result is right all the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(function(*arrays))

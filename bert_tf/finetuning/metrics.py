"""Metrics of predictions, computed by scikit-learn and SciPy.

The correlation of constant labels or predictions, which is undefined, is 0.
"""

import warnings
from collections.abc import Callable, Mapping

import numpy as np


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


# What a classification task may name in `metrics`.
CLASSIFICATION: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
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

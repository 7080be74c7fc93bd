"""Metrics of predictions, computed by scikit-learn and SciPy.

The correlation of constant labels or predictions, which is undefined, is 0.
"""

import warnings
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array
from scipy.special import log_softmax, logsumexp

# The metrics of each class, as scikit-learn returns them.
OF_A_CLASS = ("precision", "recall", "f1")
_QUERIES_AT_ONCE = 1024


def correlations(values: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Returns the linear correlation, that of the ranks, and their mean; both arrays are [N]."""
    # scikit-learn and SciPy are slow to import.
    from scipy.stats import pearsonr, spearmanr

    linear = by_rank = 0.0
    if np.ptp(values) and np.ptp(predictions):
        with warnings.catch_warnings(action="ignore"):  # rare inputs, of which the result is right
            linear, by_rank = (x(values, predictions).statistic for x in (pearsonr, spearmanr))
    scores = {"pearson": linear, "spearman": by_rank}
    scores["pearson_spearman_mean"] = (linear + by_rank) / 2
    return {name: float(score) for name, score in scores.items()}


def mean_cross_entropy(labels: np.ndarray, logits: np.ndarray) -> float:
    """Returns the mean cross-entropy of labels, int [N], and logits [N, C]."""
    chosen = np.take_along_axis(log_softmax(logits, axis=-1), labels[:, None], axis=-1)
    return -float(chosen.mean())


def of_classes(labels: np.ndarray, logits: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """Returns the metrics of a classifier that predicts one class for each example.

    They are `loss` (the mean cross-entropy), `accuracy`, `matthews` and those of
    `precision_recall_f1`. With two classes, there are also `f1`, that of the second class, and
    `roc_auc`, the area under its ROC curve. If all labels are the same, `roc_auc` is undefined and
    left out. `labels` are int [N], and `logits` [N, C].
    """
    from sklearn.metrics import f1_score, matthews_corrcoef, roc_auc_score

    predictions = logits.argmax(axis=-1)
    scores = {"loss": mean_cross_entropy(labels, logits)}
    scores["accuracy"] = float(np.mean(labels == predictions))
    with warnings.catch_warnings(action="ignore"):  # rare inputs, of which the result is right
        scores["matthews"] = float(matthews_corrcoef(labels, predictions))
    if len(names) == 2:
        scores["f1"] = float(f1_score(labels, predictions, zero_division=0))
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


def rank_right_texts(
    vectors: np.ndarray, texts: np.ndarray, temperature: float
) -> dict[str, np.ndarray]:
    """Ranks the distinct second texts of all examples by their cosine with each first text.

    A first text may occur with several second ones, which all are right. The first text itself is
    no candidate, unless it is right.

    Args:
        vectors: those of both texts, of length 1, float [N, 2, H].
        texts: their numbers, int [N, 2 or more]; equal texts have the same number.
        temperature: divides the cosines in the loss.

    Returns:
        arrays [N]: `ranks`, those of the best right texts, counted from 1; ties count as worse.
        `cosines`, with these texts. `losses`, the cross-entropy of each example's second text among
        the candidates, without other right ones.
    """
    queries, query = np.unique(texts[:, 0], return_inverse=True)
    names, first, own = np.unique(texts[:, 1], return_index=True, return_inverse=True)
    candidates, shape = vectors[first, 1], (len(queries), len(names))
    pairs = csr_array((np.ones(len(texts), bool), (query, own)), shape)
    parts: dict[str, list] = {"ranks": [], "cosines": [], "losses": []}
    for start in range(0, len(texts), _QUERIES_AT_ONCE):
        part = slice(start, start + _QUERIES_AT_ONCE)
        cosines = vectors[part, 0] @ candidates.T
        right = pairs[query[part]].toarray()
        wrong = ~right & (names != texts[part, :1])
        best = np.max(cosines, axis=1, where=right, initial=-np.inf)
        mine = np.take_along_axis(cosines, own[part, None], axis=1)[:, 0]
        parts["ranks"].append(1 + np.sum(wrong & (cosines >= best[:, None]), axis=1))
        parts["cosines"].append(best)
        above = np.where(wrong, (cosines - mine[:, None]) / temperature, -np.inf)
        parts["losses"].append(np.logaddexp(0, logsumexp(above, axis=1)))
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}

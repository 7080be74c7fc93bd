"""Objectives, metrics and the weights of classes, worked by hand."""

import numpy as np
import pytest
import sklearn.metrics
import tensorflow as tf
from sklearn.utils.class_weight import compute_class_weight

from bert_tf.finetuning import metrics, objectives
from bert_tf.finetuning.tasks.classification import class_weights, describe_weights
from bert_tf.models.inputs import INPUTS

WEIGHTS = tf.constant([1.0, 1.0, 0.0])


def measure(objective, outputs, **batch) -> tuple[dict, dict]:
    """Returns the means of all measures, and what is predicted."""
    batch = {name: tf.constant(values) for name, values in batch.items()}
    batch["example_weights"] = WEIGHTS

    def model(batch, training):
        return tf.constant(outputs, tf.float32)

    sums, counts = objective.sums(model, batch, training=True), objective.counts(batch)
    assert set(sums) == set(counts) == set(objective.measures) >= set(objective.losses)
    means = {name: float(sums[name] / counts[name]) for name in sums}
    return means, objective.outputs(model, batch)


@pytest.mark.parametrize(("weights", "first"), [(None, 1), ((1.0, 3.0), 3)])
def test_classification(weights, first):
    """Oracle: the losses log 2 and log 4/3; CrossEntropyLoss of torch divides by weights."""
    logits = [[0.0, 0.0], [np.log(3.0), 0.0], [5.0, 1.0]]
    objective = objectives.ClassificationObjective(class_weights=weights)
    means, outputs = measure(objective, logits, labels=[1, 0, 0])
    expected = {"loss": (first * np.log(2) + np.log(4 / 3)) / (first + 1), "accuracy": 0.5}
    assert means == pytest.approx(expected, rel=1e-6)
    np.testing.assert_array_equal(outputs["logits"], np.float32(logits))


def test_regression():
    means, outputs = measure(
        objectives.RegressionObjective(), [1.0, 2.0, 9.0], values=[1.5, 4.0, 0.0]
    )
    assert means == pytest.approx({"loss": (0.25 + 4) / 2})
    np.testing.assert_array_equal(outputs["values"], np.float32([1, 2, 9]))


def test_multi_label():
    """Oracle: log 2 at logit 0; log 4/3 for a label with probability 3/4."""
    logits = [[0.0, np.log(3.0)], [-np.log(3.0), 0.0], [9.0, 9.0]]
    labels = [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    means, _ = measure(objectives.MultiLabelObjective(), logits, labels=labels)
    assert means == pytest.approx({"loss": (np.log(2) + np.log(4 / 3)) / 2}, rel=1e-6)


def test_tagging():
    """Oracle: three tokens count, with the losses log 2, log 4/3 and log 4."""
    third = [np.log(3.0), 0.0]
    logits = [[[0.0, 0.0], third], [third, [7.0, 7.0]], [third, third]]
    tags = [[1, 0], [1, -1], [0, 0]]
    means, _ = measure(objectives.TaggingObjective(), logits, tags=tags)
    expected = {"loss": (np.log(2) + np.log(4 / 3) + np.log(4)) / 3, "accuracy": 1 / 3}
    assert means == pytest.approx(expected, rel=1e-6)
    # In training: the sum, divided by the two examples that count times 2.5 tags on average.
    means, _ = measure(
        objectives.TaggingObjective(), logits, tags=tags, mean_tags=np.full(3, 2.5, "f")
    )
    assert means == pytest.approx(expected | {"loss": expected["loss"] * 3 / 5}, rel=1e-6)


def test_span():
    """Oracle: the probabilities 3/4 and 1/2 of the first example; padding takes no part."""
    logits = np.zeros([3, 3, 2])
    logits[0, :2, 0], logits[0, 2] = [np.log(3.0), 0], 50
    mask = [[1, 1, 0], [1, 1, 1], [1, 1, 1]]
    means, _ = measure(
        objectives.SpanObjective(), logits, input_mask=mask, start=[0, 2, 0], end=[1, 2, 0]
    )
    first = (np.log(4 / 3) + np.log(2)) / 2
    assert means == pytest.approx({"loss": (first + np.log(3)) / 2}, rel=1e-6)


# Random vectors of three texts for each of four examples, and labels.
VECTORS = np.random.default_rng(0).normal(size=(4, 3, 5)).astype(np.float32)
LABELS = np.array([0.9, 0.1, 0.5, 0.3], np.float32)


def loss_of_vectors(objective, columns: int, **batch) -> tuple[float, float]:
    """Returns the mean loss, and the norm of its gradient with respect to the vectors."""
    vectors = tf.constant(VECTORS[:, :columns])
    batch |= {name: tf.zeros([4, columns, 7], tf.int32) for name in INPUTS}
    with tf.GradientTape() as tape:
        tape.watch(vectors)
        batch["example_weights"] = tf.ones(4)
        sums = objective.sums(lambda x, training: tf.reshape(vectors, [-1, 5]), batch, True)
        loss = sums["loss"] / objective.counts(batch)["loss"]
    return float(loss), float(tf.norm(tape.gradient(loss, vectors)))


def test_similarity_equals_sentence_transformers():
    """Oracle: CosineSimilarityLoss of sentence-transformers 6.2 with the same vectors and labels.

    A label of 4.5 between 0 and 5 is its 0.9.
    """
    expected = pytest.approx((0.16202980, 0.28658903), rel=1e-5)
    for low, high in ((0.0, 1.0), (0.0, 5.0), (-3.0, 2.0)):
        objective = objectives.SimilarityObjective(low, high - low)
        assert loss_of_vectors(objective, 2, values=LABELS * (high - low) + low) == expected


def test_ranking_equals_sentence_transformers():
    """Oracle: MultipleNegativesRankingLoss of sentence-transformers 6.2 with the same vectors."""
    for columns, temperature, *expected in (
        (2, 0.05, 6.75135756, 7.7017293),
        (3, 0.05, 9.54562283, 9.47874737),
        (3, 0.5, 2.06231499, 0.72595304),
    ):
        texts = tf.reshape(tf.range(4 * columns), [4, columns])
        found = loss_of_vectors(objectives.RankingObjective(temperature), columns, texts=texts)
        assert found == pytest.approx(tuple(expected), rel=1e-5)


def test_right_candidates_are_no_negatives():
    """Oracle: NumPy, over the candidates that remain, listed by hand."""
    # The first two queries are one text, so both 1 and 3 are right. 0 is a query and a negative.
    # The second one has no negative.
    texts = np.array([[0, 1, 2], [0, 3, -1], [5, 1, 3], [6, 5, 0]])
    # The texts of the candidates are 1, 3, 1, 5, 2, -1, 3, 0.
    kept = [{0, 3, 4}, {1, 3, 4}, {1, 2, 4, 6, 7}, {0, 1, 2, 3, 4, 6, 7}]
    unit = VECTORS / np.linalg.norm(VECTORS, axis=-1, keepdims=True)
    logits = unit[:, 0] @ np.concatenate([unit[:, 1], unit[:, 2]]).T / 0.05
    losses = [np.log(np.exp(logits[i, [*k]] - logits[i, i]).sum()) for i, k in enumerate(kept)]
    loss, _ = loss_of_vectors(objectives.RankingObjective(0.05), 3, texts=tf.constant(texts))
    assert loss == pytest.approx(np.mean(losses), rel=1e-5)


CLASSES = np.array([1, 1, 1, 0, 0, 0, 0, 1])
VALUES = np.array([0.0, 1.0, 2.0, 5.0])


def test_of_each_class_equal_the_report_of_scikit_learn():
    """Oracle: `classification_report`, `roc_auc_score`; 5 of 8 pairs in order, by hand.

    The third of the classes occurs nowhere, the fourth only among the predictions.
    """
    names = ["ham", "a = b/c", "none", "x\ny"]
    labels, predictions = np.array([0, 0, 1, 1, 1, 0]), np.array([0, 1, 1, 1, 3, 0])
    scores = metrics.of_classes(labels, np.eye(4)[predictions], names)
    report = sklearn.metrics.classification_report(
        labels, predictions, output_dict=True, zero_division=0
    )
    for name, own in {"precision": "precision", "recall": "recall", "f1": "f1-score"}.items():
        for number, label in {0: "ham", 1: "a = b/c", 3: "x\\ny"}.items():
            assert scores[f"{name}/{label}"] == pytest.approx(report[str(number)][own])
        assert scores[f"macro_{name}"] == pytest.approx(report["macro avg"][own])
    assert not any("none" in name or "auc" in name for name in scores)

    odds = np.array([0.1, 0.6, 0.2, 0.3, 0.4, 0.5])
    two = metrics.of_classes(
        np.array([0, 0, 0, 0, 1, 1]), np.stack([1 - odds, odds], 1), ["0", "1"]
    )
    assert two["roc_auc"] == pytest.approx((3 + 3) / 8)
    assert two["f1"] == two["f1/1"] and {"f1/0", "matthews"} <= two.keys()
    assert "roc_auc" not in metrics.of_classes(np.zeros(2, int), np.eye(2), ["0", "1"])


def test_undefined_is_zero_without_a_warning():
    """Oracle: the convention of the GLUE paper for Matthews; pytest turns warnings into errors."""
    for labels in (CLASSES, np.zeros(8, int), np.ones(8, int)):
        for constant in (np.zeros(8, int), np.ones(8, int)):
            found = metrics.of_classes(labels, np.eye(2)[constant], ["0", "1"])
            assert found["matthews"] == 0
    assert metrics.of_classes(np.zeros(2, int), np.eye(2)[[0, 0]], ["0", "1"])["f1"] == 0
    for arrays in ((VALUES, np.full(4, 2.5)), (np.full(4, 2.5), VALUES), (np.ones(1), np.zeros(1))):
        assert set(metrics.correlations(*arrays).values()) == {0.0}
    # Predictions that are not finite must not look like constant ones.
    assert np.isnan([*metrics.correlations(VALUES, np.array([np.nan, 1, 2, 3])).values()]).all()


def test_ranks_of_right_texts():
    """Oracle: a loop over the candidates, in Python; by hand: ties are worse, and the first text.

    Query 0 has two right texts, one of them twice; the second text of the last example is the
    query of another one.
    """
    texts = np.array([[0, 1], [0, 3], [2, 1], [4, 5], [6, 0]])
    vectors = np.random.default_rng(0).normal(size=(5, 2, 4))
    vectors[2, 1], vectors[1, 0] = vectors[0, 1], vectors[0, 0]
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    found = metrics.rank_right_texts(vectors, texts, 0.5)
    candidates = {name: vectors[i, 1] for i, name in enumerate(texts[:, 1])}
    for row, (query, own) in enumerate(texts):
        right = {second for first, second in texts if first == query}
        cosines = {name: vectors[row, 0] @ x for name, x in candidates.items() if name != query}
        best = max(cosines[name] for name in right)
        wrong = [cosines[name] for name in cosines.keys() - right]
        assert found["ranks"][row] == 1 + sum(x > best for x in wrong)
        assert found["cosines"][row] == pytest.approx(best)
        total = sum(np.exp(x / 0.5) for x in [*wrong, cosines[own]])
        assert found["losses"][row] == pytest.approx(np.log(total) - cosines[own] / 0.5)
    # More copies of a pair than 8 bits count change nothing.
    rows = np.append(np.arange(5), np.zeros(199, int))
    often = metrics.rank_right_texts(vectors[rows], texts[rows], 0.5)
    np.testing.assert_array_equal(often["ranks"], found["ranks"][rows])
    equal = metrics.rank_right_texts(np.ones([5, 2, 1]), texts, 0.5)
    # Of the candidates 0, 1, 3 and 5, the first text and right ones are not wrong.
    assert equal["ranks"].tolist() == [2, 2, 4, 4, 4]


WEIGHTED = ("ham", "spam", "a=b")
TARGETS = np.array([0] * 17 + [1] * 2 + [2] * 5)


def test_balanced_weights():
    """Oracle: scikit-learn's. A class without examples has no effect on the others."""
    expected = compute_class_weight("balanced", classes=np.arange(3), y=TARGETS)
    weights = class_weights("balanced", WEIGHTED, TARGETS)
    assert weights == pytest.approx(expected)
    assert class_weights("balanced", (*WEIGHTED, "none"), TARGETS) == (*weights, 0.0)
    assert np.mean(np.array(weights)[TARGETS]) == pytest.approx(1.0)


def test_stated_weights():
    """Oracle: by hand."""
    assert class_weights("spam=4,a=b=0.5", WEIGHTED, TARGETS) == (1.0, 4.0, 0.5)
    line = "Class weights: ham 1 (17 examples), spam 4 (2 examples), a=b 0.5 (5 examples)."
    assert describe_weights((1.0, 4.0, 0.5), WEIGHTED, TARGETS) == line
    # The name of a class may hold a comma.
    assert class_weights("x, y=2,z=3,a,b=4", ("x, y", "z", "a,b"), TARGETS) == (2.0, 3.0, 4.0)
    # A shell may pass it decomposed.
    assert class_weights("cafe\u0301=2", ("caf\u00e9", "z"), TARGETS) == (2.0, 1.0)
    # Names of data in memory may be decomposed or begin with spaces.
    assert class_weights("caf\u00e9=2, z=3", ("cafe\u0301", " z"), TARGETS) == (2.0, 3.0)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ("equal", "'equal' is neither `balanced` nor label=weight, with a weight above 0"),
        ("eggs=2", "'eggs=2' is neither .* one of the labels ham, spam, a=b$"),
        ("span=2", "one of the labels ham, spam, a=b; similar names are spam$"),
        ("spam=0", "'spam=0' is neither"),
        ("spam=nan", "'spam=nan' is neither"),
        ("spam=inf", "'spam=inf' is neither"),
        ("spam=2,ham=1,spam=3", "--class_weights=spam=2,ham=1,spam=3 names a class twice"),
        ("spam=much", "'spam=much' is neither"),
    ],
)
def test_wrong_weights_are_one_clear_line(value, match):
    with pytest.raises(ValueError, match=match):
        class_weights(value, WEIGHTED, TARGETS)

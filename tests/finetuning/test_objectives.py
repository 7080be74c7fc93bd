"""The objectives of fine-tuning, worked by hand. Rows of weight 0 only fill the batch."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning import objectives
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
    """Oracle: the losses log 2 and log 4/3; their mean is weighted as by torch.nn.CrossEntropyLoss.

    It divides by the sum of the weights.
    """
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

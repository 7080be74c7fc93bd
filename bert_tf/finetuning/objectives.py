"""What fine-tuning minimizes, and which outputs it predicts, for each kind of target.

Every objective measures `loss`: a sum over the examples, tokens or windows that count, divided by
their number, over the global batch. In training, taggers divide by the expected number of tokens;
see `TaggingObjective`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from bert_tf.models.inputs import rows_of

Tensors = Mapping[str, tf.Tensor]


class PerExample:
    """Measures the mean loss of the examples, and predicts what the model returns as `logits`."""

    measures = losses = ("loss",)

    def example_losses(self, model: keras.Model, batch: Tensors, training: bool) -> tf.Tensor:
        """Returns the loss of each example, float [B]."""
        raise NotImplementedError

    def sums(self, model: keras.Model, batch: Tensors, training: bool) -> dict[str, tf.Tensor]:
        losses = self.example_losses(model, batch, training)
        return {"loss": tf.reduce_sum(losses * batch["example_weights"])}

    def counts(self, batch: Tensors) -> dict[str, tf.Tensor]:
        return {"loss": tf.reduce_sum(batch["example_weights"])}

    def outputs(self, model: keras.Model, batch: Tensors) -> dict[str, tf.Tensor]:
        return {"logits": model(batch, training=False)}

    def combine(self, outputs: Sequence[tf.Tensor], inputs: Tensors) -> tf.Tensor:
        """Returns the output of an ensemble, whose probabilities are the mean of its members'."""
        return _log_mean(tf.nn.log_softmax(tf.stack(outputs)))


class Called:
    """A model that was called already, for an objective that calls one.

    Args:
        output: what a call returns.
        model: the model that returned it, if the objective reads its encoder.
    """

    def __init__(self, output: Any, model: keras.Model | None = None):
        self.encoder, self._output = getattr(model, "encoder", model), output

    def __call__(self, batch: Tensors, training: bool) -> Any:
        return self._output


def _log_mean(logs: tf.Tensor) -> tf.Tensor:
    """Returns the logarithm of the mean over the first axis, given logarithms."""
    return tf.reduce_logsumexp(logs, axis=0) - tf.math.log(tf.cast(tf.shape(logs)[0], logs.dtype))


def _losses_and_hits(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the cross-entropy of each label, and 1 where its logit is the largest, else 0."""
    losses = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    return losses, tf.cast(tf.equal(tf.argmax(logits, -1, labels.dtype), labels), tf.float32)


@dataclass(frozen=True)
class ClassificationObjective(PerExample):
    """Cross-entropy and accuracy for the target `labels`, int [B]; predicts `logits` [B, C].

    Serves classifiers and models for multiple choice.

    Args:
        class_weights: the weight of the examples of each class in the loss; the mean is divided by
            the sum of the weights. By default all are 1.

    Source: google-research/bert run_classifier.py `create_model`, `metric_fn`.
    """

    class_weights: tuple[float, ...] | None = None

    measures = ("loss", "accuracy")

    def counts(self, batch: Tensors) -> dict[str, tf.Tensor]:
        examples = tf.reduce_sum(batch["example_weights"])
        return {"loss": tf.reduce_sum(self._weights(batch)), "accuracy": examples}

    def sums(self, model: keras.Model, batch: Tensors, training: bool) -> dict[str, tf.Tensor]:
        losses, hits = _losses_and_hits(model(batch, training=training), batch["labels"])
        return {
            "loss": tf.reduce_sum(losses * self._weights(batch)),
            "accuracy": tf.reduce_sum(hits * batch["example_weights"]),
        }

    def _weights(self, batch: Tensors) -> tf.Tensor:
        if self.class_weights is None:
            return batch["example_weights"]
        weights = tf.gather(tf.constant(self.class_weights), batch["labels"])
        return weights * batch["example_weights"]


@dataclass(frozen=True)
class RegressionObjective(PerExample):
    """Squared error for the target `values`, float [B]; predicts `values` [B].

    Args:
        deviation: the standard deviation of the values; the squared errors are divided by its
            square, so that the size of the loss does not depend on the unit of the values.
    """

    deviation: float = 1.0

    def example_losses(self, model: keras.Model, batch: Tensors, training: bool) -> tf.Tensor:
        return tf.square((model(batch, training=training) - batch["values"]) / self.deviation)

    def outputs(self, model: keras.Model, batch: Tensors) -> dict[str, tf.Tensor]:
        return {"values": model(batch, training=False)}

    def combine(self, outputs: Sequence[tf.Tensor], inputs: Tensors) -> tf.Tensor:
        """Returns the mean of the numbers."""
        return tf.reduce_mean(tf.stack(outputs), axis=0)


@dataclass(frozen=True)
class MultiLabelObjective(PerExample):
    """Binary cross-entropy, the mean over classes, for the target `labels`, float [B, C] of 0 or 1.

    Predicts `logits` [B, C].
    """

    def example_losses(self, model: keras.Model, batch: Tensors, training: bool) -> tf.Tensor:
        logits = model(batch, training=training)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(batch["labels"], logits)
        return tf.reduce_mean(losses, axis=-1)

    def combine(self, outputs: Sequence[tf.Tensor], inputs: Tensors) -> tf.Tensor:
        """Averages the probability of each class, a sigmoid."""
        logits = tf.stack(outputs)
        return _log_mean(tf.math.log_sigmoid(logits)) - _log_mean(tf.math.log_sigmoid(-logits))


@dataclass(frozen=True)
class TaggingObjective(PerExample):
    """Cross-entropy and accuracy per token for the target `tags`, int [B, S].

    Tokens whose tag is -1 do not count. In training, the loss of a batch is not divided by its own
    number of tags, but by the number that as many examples have on average (`mean_tags`). So a
    token counts as much in a batch of short examples as in one of long examples. Predicts `logits`
    [B, S, C].

    Source: BERT (arXiv:1810.04805) section 5.3.
    """

    measures = ("loss", "accuracy")

    def counts(self, batch: Tensors) -> dict[str, tf.Tensor]:
        tokens = expected = tf.reduce_sum(self._weights(batch))
        if "mean_tags" in batch:
            expected = tf.reduce_sum(batch["mean_tags"] * batch["example_weights"])
        return {"loss": expected, "accuracy": tokens}

    def sums(self, model: keras.Model, batch: Tensors, training: bool) -> dict[str, tf.Tensor]:
        tags, weights = tf.maximum(batch["tags"], 0), self._weights(batch)
        losses, hits = _losses_and_hits(model(batch, training=training), tags)
        return {"loss": tf.reduce_sum(losses * weights), "accuracy": tf.reduce_sum(hits * weights)}

    def _weights(self, batch: Tensors) -> tf.Tensor:
        return tf.cast(batch["tags"] >= 0, tf.float32) * batch["example_weights"][:, tf.newaxis]


@dataclass(frozen=True)
class SpanObjective(PerExample):
    """The mean cross-entropy of the targets `start` and `end`, int [B], over all positions.

    Padding takes no part in the softmax, so the loss does not depend on it. Predicts `logits`
    [B, S, 2].

    Source: google-research/bert run_squad.py `model_fn_builder`.
    """

    def example_losses(self, model: keras.Model, batch: Tensors, training: bool) -> tf.Tensor:
        logits = _without_padding(model(batch, training=training), batch)
        log_probabilities = tf.nn.log_softmax(logits, axis=1)
        targets = tf.stack([batch["start"], batch["end"]], axis=1)
        picked = tf.gather(
            tf.transpose(log_probabilities, [0, 2, 1]), targets, axis=2, batch_dims=2
        )
        return -tf.reduce_mean(picked, axis=1)

    def combine(self, outputs: Sequence[tf.Tensor], inputs: Tensors) -> tf.Tensor:
        """Averages the probabilities of starts and of ends in each window."""
        # Windows compete by their logits, so the logarithms of their sums are averaged, too.
        logits = tf.stack([_without_padding(x, inputs) for x in outputs])
        sums = tf.reduce_logsumexp(logits, axis=2, keepdims=True)
        return _log_mean(logits - sums) + tf.reduce_mean(sums, axis=0)


def _without_padding(logits: tf.Tensor, batch: Tensors) -> tf.Tensor:
    return logits - 1e9 * tf.cast(batch["input_mask"] == 0, tf.float32)[:, :, tf.newaxis]


def _unit_vectors(model: keras.Model, batch: Tensors, training: bool) -> tf.Tensor:
    """Returns the vectors of the K texts of each example, of length 1, float32 [B, K, H]."""
    vectors = model(rows_of(batch), training=training)
    vectors = tf.reshape(vectors, [-1, batch["input_word_ids"].shape[1], vectors.shape[-1]])
    return tf.math.l2_normalize(vectors, axis=-1)


@dataclass(frozen=True)
class SimilarityObjective(PerExample):
    """Squared error of the cosine of two vectors, for inputs [B, 2, S]; predicts `values` [B].

    The target `values`, float [B], are the cosines times `deviation`, plus `mean`.

    Source: sentence-transformers CosineSimilarityLoss.
    """

    mean: float
    deviation: float

    def example_losses(self, model: keras.Model, batch: Tensors, training: bool) -> tf.Tensor:
        targets = (batch["values"] - self.mean) / self.deviation
        return tf.square(self._cosines(model, batch, training) - targets)

    def outputs(self, model: keras.Model, batch: Tensors) -> dict[str, tf.Tensor]:
        return {"values": self._cosines(model, batch, False) * self.deviation + self.mean}

    def _cosines(self, model: keras.Model, batch: Tensors, training: bool) -> tf.Tensor:
        first, second = tf.unstack(_unit_vectors(model, batch, training), axis=1)
        return tf.reduce_sum(first * second, axis=-1)


@dataclass(frozen=True)
class RankingObjective(PerExample):
    """Cross-entropy of finding the second text of each example by its first, for [B, K, S].

    The logits are cosines, divided by `temperature`; the candidates are the second and further
    texts of all examples in the batch of the replica. The target `texts`, int [B, K], holds the
    same number for the same text: candidates that are the first text itself, or known to be right
    as well, do not count, nor does a missing text, -1. Predicts `vectors`, of length 1, of the
    first texts, float [B, H].

    Source: sentence-transformers MultipleNegativesRankingLoss, which counts all candidates.
    """

    temperature: float

    def example_losses(self, model: keras.Model, batch: Tensors, training: bool) -> tf.Tensor:
        vectors, texts = _unit_vectors(model, batch, training), batch["texts"]
        # The second texts of all examples come first.
        candidates = tf.concat(tf.unstack(vectors, axis=1)[1:], axis=0)
        names = tf.concat(tf.unstack(texts, axis=1)[1:], axis=0)
        logits = tf.matmul(vectors[:, 0], candidates, transpose_b=True) / self.temperature
        same_first = tf.cast(texts[:, :1] == texts[:, 0], tf.float32)
        right = tf.matmul(same_first, tf.cast(texts[:, 1:2] == names, tf.float32)) > 0
        ignored = tf.cast(right | (texts[:, :1] == names) | (names < 0), tf.float32)
        examples = tf.shape(logits)[0]
        logits -= 1e9 * ignored * (1 - tf.eye(examples, tf.shape(logits)[1]))
        return keras.losses.sparse_categorical_crossentropy(
            tf.range(examples), logits, from_logits=True
        )

    def outputs(self, model: keras.Model, batch: Tensors) -> dict[str, tf.Tensor]:
        return {"vectors": _unit_vectors(model, batch, training=False)[:, 0]}

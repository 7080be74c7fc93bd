"""Predictions: in the order of the examples, without padding, on one replica and on two."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import one_device, two_replicas

from bert_tf.training.trainer import Trainer

LENGTHS = np.array([3, 1, 5, 2, 4, 4, 1])  # seven examples: the last batch is partial


class _Model(keras.Model):
    def __init__(self):
        super().__init__(name="toy")
        self.weight = self.add_weight(name="weight", shape=(2,), initializer="ones")
        self.weight.assign([2.0, -1.0])

    def call(self, inputs, training=None):
        mask = tf.cast(inputs["input_mask"], tf.float32)
        tokens = tf.cast(inputs["input_word_ids"], tf.float32)[..., None] * self.weight
        # Padding gets a value, too, so that it would be noticed.
        return tf.reduce_sum(tokens * mask[..., None], axis=[1, 2]), tokens + 1.0


class _Objective:
    measures = losses = ("loss",)

    def outputs(self, model, batch):
        total, tokens = model(batch)
        return {"total": total, "tokens": tokens}


def _examples() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.integers(1, 100, length).astype(np.int32) for length in LENGTHS]


def _batches(examples, order, batch_size: int) -> tf.data.Dataset:
    """Batches of the examples in this order, each padded to a length of its own."""
    order = np.append(order, np.full(-len(order) % batch_size, -1)).astype(np.int32)
    ids = tf.ragged.constant([examples[index].tolist() for index in order], dtype=tf.int32)
    rows = {"input_word_ids": ids, "input_mask": tf.ones_like(ids), "example_index": order}
    dataset = tf.data.Dataset.from_tensor_slices(rows)
    return dataset.ragged_batch(batch_size).map(
        lambda batch: {
            name: values.to_tensor() if isinstance(values, tf.RaggedTensor) else values
            for name, values in batch.items()
        }
    )


@pytest.mark.parametrize("replicas", [1, 2])
def test_outputs_are_those_of_each_example_alone(replicas):
    """Oracle: the model applied to each example by itself."""
    strategy = one_device() if replicas == 1 else two_replicas()
    with strategy.scope():
        model = _Model()
    examples, order = _examples(), np.array([6, 1, 3, 0, 4, 5, 2])
    batches = _batches(examples, order, batch_size=4)
    trainer = Trainer(strategy, model, _Objective())
    found = trainer.predict(strategy.experimental_distribute_dataset(batches), ["tokens"])

    assert found.keys() == {"total", "tokens"}
    assert found["total"].shape == (7,) and len(found["tokens"]) == 7
    for index, ids in enumerate(examples):
        alone = {"input_word_ids": ids[None], "input_mask": np.ones_like(ids[None])}
        total, tokens = model(alone)
        assert found["total"][index] == pytest.approx(float(total[0]))
        np.testing.assert_allclose(found["tokens"][index], tokens[0])


def test_outputs_that_are_not_finite_are_an_error():
    """Oracle: the weight that was damaged."""
    strategy = one_device()
    with strategy.scope():
        model = _Model()
    model.weight.assign([np.inf, 1.0])
    batch = {"input_word_ids": [[1, 2]], "input_mask": [[1, 1]], "example_index": [0]}
    dataset = tf.data.Dataset.from_tensors({k: np.array(v, np.int32) for k, v in batch.items()})
    with pytest.raises(ValueError, match="computes NaN or infinity"):
        Trainer(strategy, model, _Objective()).predict(dataset, ["tokens"])

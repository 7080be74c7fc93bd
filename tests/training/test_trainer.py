"""Steps of BERT: replicas and accumulation compared with one device; evaluation; dropout seeds."""

import dataclasses
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import calls_of, one_device, two_replicas

from bert_tf.base.tensorflow_ops import for_gpu
from bert_tf.layers import dropout
from bert_tf.layers.padding import TokenCapacity
from bert_tf.models.bert_encoder import skip_padding
from bert_tf.training.optimizers import AdamW
from bert_tf.training.trainer import Trainer, open_batches


@pytest.fixture(scope="module")
def one_device_losses(losses) -> list[float]:
    return losses(one_device())


@pytest.mark.parametrize(
    ("replicas", "parts", "compiled", "atol"),
    [
        (1, 8, False, 1e-5),
        (2, 2, False, 1e-5),
        pytest.param(2, 1, True, 1e-4, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_the_losses_are_those_of_one_device(
    losses, one_device_losses, monkeypatch, replicas, parts, compiled, atol
):
    """Oracle: one device, the same batch undivided, without XLA; dropout is 0."""
    monkeypatch.setattr("bert_tf.training.trainer.compiles", lambda _: compiled)
    strategy = two_replicas() if replicas == 2 else one_device()
    found = losses(strategy, accumulation_steps=parts)
    np.testing.assert_allclose(found, one_device_losses, rtol=0, atol=atol)
    assert found[-1] < found[0] - 0.1


def test_evaluation_is_that_of_numpy_for_any_batch_size(make_trainer, examples):
    """Oracle: log-softmax in NumPy over the rows of weight 1."""
    trainer = make_trainer(one_device())
    data = examples
    outputs = trainer.model(data)
    words = np.asarray(outputs["mlm_logits"], np.float64)
    words -= np.log(np.exp(words).sum(-1, keepdims=True))
    pairs = np.asarray(outputs["next_sentence_logits"], np.float64)
    pairs -= np.log(np.exp(pairs).sum(-1, keepdims=True))
    word_weights, weights = data["masked_lm_weights"], data["example_weights"]
    labels, next_labels = data["masked_lm_ids"], data["next_sentence_labels"]
    word_losses = -np.take_along_axis(words, labels[..., None], -1)[..., 0]
    pair_losses = -np.take_along_axis(pairs, next_labels[:, None], -1)[:, 0]
    expected = {
        "masked_lm_loss": np.average(word_losses, weights=word_weights),
        "next_sentence_loss": np.average(pair_losses, weights=weights),
        "masked_lm_accuracy": np.average(words.argmax(-1) == labels, weights=word_weights),
        "next_sentence_accuracy": np.average(pairs.argmax(-1) == next_labels, weights=weights),
    }
    expected["loss"] = expected["masked_lm_loss"] + expected["next_sentence_loss"]
    for strategy, batch_size in ((one_device(), 32), (two_replicas(), 4)):
        trainer = make_trainer(strategy)
        batches = tf.data.Dataset.from_tensor_slices(data).batch(batch_size)
        results = trainer.evaluate(strategy.experimental_distribute_dataset(batches))
        assert results == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_are_clipped_as_one_vector(
    make_trainer, make_iterator, eagerly, monkeypatch, compiled
):
    """Oracle: after the first step, AdamW's m is 0.1 times the clipped gradient."""
    monkeypatch.setattr("bert_tf.training.trainer.compiles", lambda _: compiled)
    strategy = one_device()
    trainer = make_trainer(strategy)
    trainer.clip_norm = 0.05
    trainer.train(make_iterator(strategy), 1)
    slots = trainer.optimizer.slots
    m = np.concatenate([slots[name].numpy().ravel() for name in slots if name.endswith("adam_m")])
    assert np.linalg.norm(m) == pytest.approx(0.1 * 0.05, rel=1e-4)


@pytest.mark.parametrize(
    ("precision", "replicas", "parts", "value", "steps"),
    [
        ("float32", 1, 1, 1e30, 3),  # the norm overflows
        ("float32", 1, 2, np.nan, 3),
        ("mixed_bfloat16", 2, 1, -np.inf, 3),
        ("mixed_float16", 1, 1, np.inf, 18),  # 15 steps halve the scale of the loss until it is 1
    ],
)
@pytest.mark.slow
def test_gradients_that_are_not_finite_change_nothing(
    make_trainer, make_iterator, eagerly, capsys, precision, replicas, parts, value, steps
):
    """Oracle: the state before these steps, where a value of a gradient is bad; their number."""
    keras.config.set_dtype_policy(precision)
    strategy = two_replicas() if replicas == 2 else one_device()
    trainer, iterator = make_trainer(strategy, accumulation_steps=parts), make_iterator(strategy)
    assert trainer.train(iterator, 1) is None
    original, calls = trainer._part_gradients, []

    def bad(*args):
        gradients, sums = original(*args)
        calls.append(args)
        if len(calls) % (parts * replicas) == 0:
            gradients[0] += tf.one_hot([3], gradients[0].shape[0], value)[0][:, tf.newaxis]
        return gradients, sums

    trainer._part_gradients = bad
    state = [x for name, x in trainer.state.items() if "adam" in name] + trainer.model.weights
    before = [x.numpy() for x in state]
    assert trainer.train(iterator, steps - 1) is None
    assert "WARNING: up to step" in capsys.readouterr().out
    assert trainer.train(iterator, 1) == steps - 1 and trainer.step.numpy() == steps + 1
    for x, expected in zip(state, before, strict=True):
        np.testing.assert_array_equal(x.numpy(), expected)
    trainer._part_gradients = original
    assert trainer.train(iterator, 1) is None
    assert np.abs(state[0].numpy() - before[0]).max() > 0


class _SlowToFree:
    """An iterator that is freed only when `allowed` is set."""

    def __init__(self, allowed, freed):
        self._allowed, self._freed = allowed, freed

    def __next__(self):
        raise StopIteration

    def __del__(self):
        self._allowed.wait(60)
        self._freed.set()


def test_nobody_waits_for_an_iterator_that_is_slow_to_free(monkeypatch):
    """Oracle: events."""
    monkeypatch.setattr("bert_tf.training.trainer._PATIENCE", 0.0)
    allowed, freed = threading.Event(), threading.Event()

    class Dataset:
        def __iter__(self):
            return _SlowToFree(allowed, freed)

    with open_batches(Dataset()):
        pass
    assert not freed.is_set()
    allowed.set()
    assert freed.wait(60)


class _SeedModel(keras.Model):
    """Its loss is the dropout seed that it receives."""

    def __init__(self):
        super().__init__(name="seeds")
        self.weight = self.add_weight(name="weight", shape=(), initializer="zeros")

    def call(self, inputs, training=None):
        return tf.cast(inputs["dropout_seed"], tf.float32) / 2.0**31 + 0.0 * self.weight


class _SeedObjective:
    measures = ("first", "second")
    losses = ("first",)

    def counts(self, batch):
        return {"first": tf.constant(1.0), "second": tf.constant(1.0)}

    def sums(self, model, batch, training):
        # Every part of a batch has the step, undivided.
        assert batch["step"].shape == ()
        self.for_gpu = for_gpu()
        first, second = tf.unstack(model(batch, training=training))
        return {"first": first, "second": second}


def test_dropout_seeds_differ_by_step_replica_part_and_seed_and_repeat():
    """Oracle: the seeds, read from a model that returns them."""

    def seeds(strategy, seed=0, first_step=0, accumulation_steps=1):
        with strategy.scope():
            model = _SeedModel()
            optimizer = AdamW(model.trainable_weights)
        trainer = Trainer(
            strategy,
            model,
            _SeedObjective(),
            optimizer,
            lambda step: 0.0,
            seed=seed,
            accumulation_steps=accumulation_steps,
        )
        trainer.step.assign(first_step)
        rows = {"x": np.zeros([8, 1], np.float32)}
        data = tf.data.Dataset.from_tensors(rows).unbatch().batch(8).repeat()
        iterator = iter(strategy.experimental_distribute_dataset(data))
        found = []
        for _ in range(2):
            trainer.restart_means()
            trainer.train(iterator, 1)
            means = trainer.training_means()
            found.append((means["first"], means["second"]))
        return found

    cpu = one_device()
    base = seeds(cpu)
    assert base == seeds(cpu) and base[0] != base[1]
    assert seeds(cpu, first_step=1)[0] == base[1]
    others = [seeds(cpu, seed=2**31)[0], seeds(two_replicas())[0]]
    others.append(seeds(cpu, accumulation_steps=2)[0])
    assert len({base[0], *others}) == 4


def test_no_two_dropouts_of_a_step_share_a_seed(
    make_trainer, make_iterator, config, monkeypatch, eagerly
):
    """Oracle: the number of masks: of 2 replicas, 2 parts, 2 layers and 2 groups of rows."""
    masks = calls_of(monkeypatch, dropout, "dropout_mask")
    rates = dict(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    config = dataclasses.replace(config, num_hidden_layers=2, **rates)
    strategy = two_replicas()
    trainer = make_trainer(strategy, config, accumulation_steps=2)
    skip_padding(trainer.model)
    trainer.train(make_iterator(strategy, batch_size=32), 1)
    seeds = {tuple(np.asarray(mask.args[2])) for mask in masks}
    assert len(seeds) == len(masks) == 2 * 2 * (1 + 2 * (2 + 2))


@pytest.mark.parametrize("compiled", [False, True])
def test_only_compiled_gradients_have_the_form_for_gpus(monkeypatch, compiled):
    """Oracle: what the objective sees while the step is traced."""
    monkeypatch.setattr("bert_tf.training.trainer.compiles", lambda _: compiled)
    strategy, objective = one_device(), _SeedObjective()
    with strategy.scope():
        model = _SeedModel()
        optimizer = AdamW(model.trainable_weights)
    trainer = Trainer(strategy, model, objective, optimizer, lambda step: 0.0)
    trainer.train(iter(tf.data.Dataset.from_tensors({"x": np.zeros([8, 1])}).repeat()), 1)
    assert objective.for_gpu == compiled and not for_gpu()


@pytest.fixture(scope="module")
def train_padded(make_trainer, examples):
    """The lengths of rows with padding, and a function (strategy, parts, shortcut) that trains on
    them and returns the loss and the weights."""
    lengths = np.random.default_rng(1).integers(4, 17, 32)
    mask = (np.arange(16) < lengths[:, np.newaxis]).astype(np.int32)
    # Padding is never predicted.
    positions = examples["masked_lm_positions"] % lengths[:, np.newaxis].astype(np.int32)
    data = examples | {"input_mask": mask, "masked_lm_positions": positions}

    def train(strategy, parts=1, shortcut=None):
        trainer = make_trainer(strategy, accumulation_steps=parts)
        batches = tf.data.Dataset.from_tensor_slices(data).repeat().batch(8)
        batches = iter(strategy.experimental_distribute_dataset(batches))
        trainer.train(batches, 10, shortcut)
        return [trainer.training_means()["loss"], *trainer.model.get_weights()]

    return lengths, train


@pytest.fixture(scope="module")
def without_shortcut(train_padded) -> list:
    return train_padded[1](one_device())


@pytest.mark.parametrize(
    ("replicas", "parts", "capacity", "compiled"),
    [
        (1, 4, 20, False),
        (2, 1, 40, False),
        pytest.param(1, 1, 80, True, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_a_shortcut_does_not_change_the_losses(
    train_padded, without_shortcut, monkeypatch, replicas, parts, capacity, compiled
):
    """Oracle: the same steps without it. It applies to some of the parts, and not to others."""
    monkeypatch.setattr("bert_tf.training.trainer.compiles", lambda _: compiled)
    lengths, train = train_padded
    sums = lengths.reshape(4 * replicas * parts, -1).sum(axis=1)
    assert sums.min() <= capacity < sums.max()
    strategy = two_replicas() if replicas == 2 else one_device()
    found = train(strategy, parts, TokenCapacity(capacity))
    for x, y in zip(found, without_shortcut, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4)

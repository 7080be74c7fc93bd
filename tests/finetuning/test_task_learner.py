"""What the flags of training do to the model, the optimizer and the schedule."""

import random
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from support import assert_same_state, one_device, quick_runs  # noqa: F401

from bert_tf.config import BertConfig, ModelSpec
from bert_tf.finetuning.evaluating import Evaluator
from bert_tf.finetuning.fine_tune import fine_tune
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.registry import TASKS
from bert_tf.finetuning.task import Task
from bert_tf.finetuning.task_learner import TaskLearner, make_training, training_phase
from bert_tf.finetuning.tokenizing import Features
from bert_tf.models.task_model import BertTaskModel
from bert_tf.runs.run import Run
from bert_tf.sessions.learner import Training
from bert_tf.sessions.session import Session

CONFIG = BertConfig(20, 8, 2, 2, 16, max_position_embeddings=16, initializer_range=0.5)


class _Features:
    """21 training examples, a third of them positive."""

    targets = {"labels": np.arange(21, dtype=np.int32) % 3 // 2}
    ids = tf.ragged.constant([[1]] * 21)
    max_seq_length = 128
    num_truncated = 1
    advice = Features.advice

    def __len__(self) -> int:
        return 21


def training_of(task=TASKS["sst2"], **flags) -> Training:
    values = dict(task=task.name, output_dir="unused", do_train=True, train_batch_size=2)
    options = FineTuningOptions(**values | flags)
    session = Session(options, one_device(), Run(options.output_dir))
    return make_training(session, TaskLearner(task), ModelSpec(CONFIG), _Features())


def test_a_frozen_encoder_and_a_head_that_trains_as_in_the_original():
    """Oracles: the weights before; google-research/bert optimization.py, worked in NumPy.

    Its learning rate is that of the step before the update, counted from 0; its Adam does not
    correct the bias of the moments. A frozen encoder drops nothing, or the gradient would differ.
    """
    training = training_of(
        freeze_encoder=True, bias_correction=False, learning_rate=1e-2, num_train_epochs=4.0
    )
    assert CONFIG.hidden_dropout_prob > 0
    ids = tf.constant(np.random.default_rng(0).integers(0, 20, [4, 16], np.int32))
    batch = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids * 0}
    batch |= {"labels": tf.constant([0, 1, 1, 0]), "example_weights": tf.ones([4])}
    model, total, warmup = training.model, 42, 4
    for step in (0, 3, 4, 41):
        expected = 1e-2 * (step / warmup if step < warmup else 1 - step / total)
        assert float(training.trainer.schedule(tf.constant(step))) == pytest.approx(
            expected, rel=1e-5
        )
    model.head.dropout.rate = 0.0
    before = model.get_weights()
    errors = tf.nn.softmax(model(batch)).numpy() - np.eye(2)[batch["labels"]]
    pooled = model.encoder(batch)["pooled_output"].numpy()
    gradients = [pooled.T @ errors / 4, errors.mean(axis=0)]
    norm = np.sqrt(sum(np.sum(gradient**2) for gradient in gradients))
    training.trainer.step.assign(10)
    training.trainer.train(iter(tf.data.Dataset.from_tensors(batch)), 1)

    expected = dict(zip([weight.path for weight in model.weights], before, strict=True))
    for name, gradient, decay in zip(("kernel", "bias"), gradients, (0.01, 0.0), strict=True):
        path, gradient = f"task_model/head/dense_{name}", gradient * min(1, 1 / norm)
        update = 0.1 * gradient / (np.sqrt(0.001 * gradient**2) + 1e-6) + decay * expected[path]
        expected[path] = expected[path] - 1e-2 * (1 - 10 / total) * update
    for weight in model.weights:
        tolerance = 1e-5 if "/head/" in weight.path else 0
        np.testing.assert_allclose(weight.numpy(), expected[weight.path], atol=tolerance, rtol=0)
    # Checkpoints hold the whole model, and moments of the head alone.
    assert len(before) == len(BertTaskModel(CONFIG, 2).weights)
    assert sum(name.endswith("adam_m") for name in training.trainer.state) == 2


def test_layer_decay_is_electras():
    """Oracle: google-research/electra model/optimization.py `_get_layer_lrs`, for two layers."""
    depths = {"embeddings": 0, "layer_0": 1, "layer_1": 2, "pooler": 3, "head": 4}
    training = training_of(layer_decay=0.8)
    for weight, factor in zip(
        training.model.weights, training.trainer.optimizer.rates, strict=True
    ):
        expected = 0.8 ** (4 - depths[weight.path.split("/")[1]])
        assert factor == pytest.approx(expected), weight.path
    assert {*training_of().trainer.optimizer.rates} == {1.0}


@pytest.mark.parametrize(
    ("device", "shortest", "capacity"),
    # Of 64 * 32 and 64 * 128 places, 64 * 11 + 4 * 8 * 6.06 are computed, rounded up.
    [("CPU", 1, None), ("GPU", 1, 1024), ("TPU", 1, 1024), ("GPU", 30, None)],
)
def test_how_training_skips_padding(monkeypatch, device, shortest, capacity):
    """Oracle: XLA, which compiles for all but CPUs, and for a fixed number of tokens."""
    monkeypatch.setattr(Session, "device", device)
    training, examples = training_of(train_batch_size=64, num_train_epochs=10.0), _Features()
    assert bool(training.model.encoder.skips_padding) == (device == "CPU")
    examples.lengths = np.maximum(range(1, 22), shortest)
    phase = training_phase(training, examples, evaluate=dict)
    assert getattr(phase.shortcut, "tokens", None) == capacity


def test_flags_and_the_metric_of_the_task_reach_the_driver_and_the_optimizer():
    """Oracle: the flags; the paper's metric for MRPC. What they do is tested on its own."""
    training = training_of(TASKS["mrpc"], early_stopping=2, bias_correction=False)
    assert (training.driver.plan.patience, training.driver.plan.best_metric) == (2, "eval_f1")
    assert not training.trainer.optimizer.bias_correction
    training = training_of()
    assert training.driver.plan.patience is None and training.trainer.optimizer.bias_correction


def test_what_the_encoder_could_read_is_said(capsys, monkeypatch):
    """Oracle: the configuration, of 16 positions."""
    training_of()
    monkeypatch.setattr(_Features, "max_seq_length", 8)
    training_of()
    advice = "The encoder can read 16 tokens: to truncate less, raise --max_seq_length.\n"
    assert capsys.readouterr().out == advice


def test_class_weights_are_those_of_the_training_split(capsys):
    """Oracle: 14 negative and 7 positive examples weigh 21 / (2 * 14) and 21 / (2 * 7)."""
    training = training_of(class_weights="balanced")
    assert training.trainer.objective.class_weights == (0.75, 1.5)
    expected = "Class weights: negative 0.75 (14 examples), positive 1.5 (7 examples).\n"
    assert capsys.readouterr().out == expected
    assert training_of().trainer.objective == TASKS["sst2"].objective
    for blamed, flags in {"": {}, " --label_type=similarity": {"label_type": "similarity"}}.items():
        with pytest.raises(ValueError, match=f"no effect with --task=stsb{blamed}, which does not"):
            training_of(TASKS["stsb"], class_weights="balanced", **flags)


@pytest.mark.parametrize("epochs, expected", [(0.1, 1), (4.0, 5), (200.0, 100)])
def test_a_short_run_has_a_curve_too(epochs, expected):
    """Oracle: a tenth of 1, 42 and 2,100 steps, rounded up, and never more than 100 steps."""
    assert training_of(num_train_epochs=epochs).driver.plan.log_steps == expected


def test_a_picture_of_earlier_labels_does_not_stay(tmp_path, monkeypatch):
    """Oracle: the files; the new test set has no labels, to which the picture could belong."""
    for name in ("confusion_test.png", "confusion_dev.png"):
        (tmp_path / name).touch()
    monkeypatch.setattr(Evaluator, "_predict", lambda self, split: {})
    task = types.SimpleNamespace(write_predictions=lambda *arguments: ["predictions_test.tsv"])
    trainer = types.SimpleNamespace(strategy=tf.distribute.get_strategy(), step=tf.Variable(0))
    splits = {"test": types.SimpleNamespace(targets={})}
    evaluator = Evaluator(task, trainer, splits, batch_size=1)
    assert evaluator.report("test", str(tmp_path)) == ({}, ["predictions_test.tsv"])
    assert [path.name for path in tmp_path.iterdir()] == ["confusion_dev.png"]


@pytest.mark.parametrize("step", [0, 7])
def test_only_training_is_told_how_to_train(step, monkeypatch, capsys):
    """Oracle: the advice is for a run whose weights have taken steps."""
    monkeypatch.setattr(Evaluator, "_predict", lambda self, split: {})
    task = types.SimpleNamespace(metric="loss", in_results=Task.in_results)
    task.score, task.problem = lambda *_: {"loss": 1.0}, lambda *_: "it ignores its input"
    trainer = types.SimpleNamespace(strategy=tf.distribute.get_strategy(), step=tf.Variable(step))
    splits = {"dev": types.SimpleNamespace(targets={"labels": [1]})}
    assert Evaluator(task, trainer, splits, batch_size=1).evaluate("dev") == {"eval_loss": 1.0}
    printed = capsys.readouterr().out
    assert "dev: it ignores its input." in printed
    assert ("--learning_rate" in printed) == ("step 7" in printed) == bool(step)


@pytest.mark.slow
def test_threads_train_as_alone(files, tmp_path):
    """Oracle: the state of the same run alone; other threads draw from Python's generator."""
    flags = dict(
        task="SST-2",
        data_dir=str(files),
        vocab_file=str(files / "vocab.txt"),
        bert_config_file=str(files / "bert_config.json"),
        do_train=True,
        max_seq_length=24,
        train_batch_size=16,
        num_train_epochs=0.5,
    )
    folders, stop = [str(tmp_path / name) for name in "abc"], threading.Event()

    def train(folder):
        fine_tune(FineTuningOptions(output_dir=folder, **flags))

    def draw():
        while not stop.wait(1e-3):
            random.random()
            np.random.random()

    train(folders[0])
    with ThreadPoolExecutor(3) as pool:
        pool.submit(draw)
        try:
            [*pool.map(train, folders[1:])]
        finally:
            stop.set()
    for folder in folders[1:]:
        assert_same_state(folders[0], folder)

"""Heads that are removed and weights that become zero."""

import dataclasses
import gzip
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import two_replicas

import bert_tf
from bert_tf.compress import run
from bert_tf.compression import pruning
from bert_tf.config import ModelSpec
from bert_tf.finetuning.batches import eval_batches
from bert_tf.finetuning.evaluating import Evaluator
from bert_tf.finetuning.fine_tuned import open_fine_tuned
from bert_tf.finetuning.registry import TASKS
from bert_tf.finetuning.task import DataFiles
from bert_tf.models.task_model import BertTaskModel
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.optimizers import AdamW
from bert_tf.weights.checkpoint import load_weights
from bert_tf.weights.opening import open_checkpoint


@pytest.fixture(scope="module")
def model(teacher, config) -> BertTaskModel:
    source = open_checkpoint(teacher)
    model = BertTaskModel(config, 2)
    load_weights(teacher, source.tensors, model.weights)
    return model


def scaled(model: BertTaskModel, batch, layer: int, head: int, factor: float) -> np.ndarray:
    """Computes the outputs with a factor on the rows that a head of width 8 multiplies."""
    kernel = model.encoder.block(layer).attention.output_kernel
    before = kernel.numpy()
    after = before.copy()
    after[8 * head : 8 * head + 8] *= factor
    kernel.assign(after)
    outputs = model(batch).numpy()
    kernel.assign(before)
    return outputs.astype(np.float64)


def test_importance_is_the_mean_sensitivity(model, teacher, files):
    """Oracle: equation 2 by central differences, one example after another, in NumPy."""
    task = TASKS["sst2"]
    examples = task.read_splits(["train"], DataFiles(str(files)))["train"]
    tokenizer = WordPieceTokenizer(open_checkpoint(teacher).spec.vocab, True)
    features = task.featurize(examples, tokenizer, 12)
    # The last batch of 12 holds 4 of the 16 examples.
    found = pruning.head_importance(model, task.objective, features, 12)
    (batch,) = eval_batches(features, 16)
    rows, labels = np.arange(16), batch["labels"].numpy()
    expected = np.zeros((3, 2))
    for layer, head in np.ndindex(3, 2):
        losses = []
        for factor in (1.01, 0.99):
            logits = scaled(model, batch, layer, head, factor)
            losses.append(np.log(np.exp(logits).sum(-1)) - logits[rows, labels])
        expected[layer, head] = np.mean(np.abs(losses[0] - losses[1]) / 0.02)
    expected /= np.sqrt((expected**2).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_heads_are_gated_one_by_one(model, config, batch):
    """Oracles: the model without gates; with the rows that a head multiplies set to 0."""
    ones = [tf.ones([4, 2]) for _ in range(3)]
    np.testing.assert_allclose(pruning.gated_outputs(model, batch, ones), model(batch), atol=1e-6)
    gates = [ones[0], tf.constant([[1.0, 0.0]] * 4), ones[2]]
    expected = scaled(model, batch, 1, 1, 0.0)
    np.testing.assert_allclose(pruning.gated_outputs(model, batch, gates), expected, atol=1e-6)
    chooser = BertTaskModel(config, 1, "multiple_choice")
    choices = {name: tf.reshape(batch[name], [2, 2, 8]) for name in batch if "input" in name}
    gates = [tf.constant([[1.0, 1.0], [1.0, 0.0]])] + [tf.ones([2, 2])] * 2
    found = pruning.gated_outputs(chooser, choices, gates)
    np.testing.assert_allclose(found[0], chooser(choices)[0], atol=1e-6)
    np.testing.assert_allclose(found[1], scaled(chooser, choices, 0, 1, 0.0)[1], atol=1e-6)


def test_the_least_important_heads_go_but_one_stays_in_each_layer():
    """Oracle: the order of the values, by hand."""
    importance = [np.array([0.5, 0.2, 0.9]), np.array([0.1, 0.15, 0.12])]
    assert pruning.least_important(importance, 0.0) == {}
    assert pruning.least_important(importance, 0.34) == {1: [0, 2]}
    assert pruning.least_important(importance, 0.5) == {0: [1], 1: [0, 2]}
    assert pruning.least_important(importance, 1.0) == {0: [0, 1], 1: [0, 2]}


@pytest.mark.usefixtures("eagerly")
@pytest.mark.slow
def test_a_student_without_heads(make_options, config, tmp_path, capsys, run_and_resume):
    """Oracles: the parameters of 3 of 6 heads; the uninterrupted run; what reads such models."""
    options = make_options("heads", sparsity=0.5, num_train_epochs=1.0, max_seq_length=None)
    lines = run_and_resume(run, options, rtol=1e-7, atol=1e-6)[1].splitlines()
    # Oracle: the teacher's positions.
    assert "--max_seq_length is 16, the most that the model takes." in lines
    assert any(line.startswith("Removing 3 of 6 attention heads") for line in lines)
    values = json.loads((tmp_path / "student/compression.json").read_text())
    assert values["teacher_parameters"] == BertTaskModel(config, 2).count_params()
    assert values["teacher_parameters"] - values["student_parameters"] == 3 * (
        3 * (16 * 8 + 8) + 8 * 16
    )
    checkpoint = open_fine_tuned(options.output_dir, None, None, False)[0]
    assert sum(len(heads) for heads in checkpoint.spec.config.pruned_heads.values()) == 3
    assert bert_tf.load(options.output_dir).config == checkpoint.spec.config
    run(options)
    assert "holds a finished run: not training again" in capsys.readouterr().out
    with pytest.raises(ValueError, match="sparsity=0.5, not 0.34"):
        run(dataclasses.replace(options, sparsity=0.34))
    again = dict(teacher=options.output_dir, sparsity=0.34, output_dir=str(tmp_path / "again"))
    run(dataclasses.replace(options, num_train_epochs=0.0, **again))
    config = open_checkpoint(again["output_dir"]).spec.config
    assert sum(len(config.kept_heads(layer)) for layer in range(3)) == 3


def test_heads_have_the_numbers_of_the_first_teacher(teacher, config, start, monkeypatch):
    """Oracle: of a layer that lost head 1, the second one left is head 2."""
    importance = [np.array([0.9, 0.1, 0.5]), *np.full([2, 4], 0.5)]
    for name, value in (
        ("training_features", []),
        ("load_task_model", None),
        ("head_importance", importance),
    ):
        monkeypatch.setattr(pruning, name, lambda *_, value=value: value)
    monkeypatch.setattr(pruning, "remove_heads", lambda checkpoint, removed: removed)
    source = open_checkpoint(teacher)
    config = dataclasses.replace(config, num_attention_heads=4, pruned_heads={0: [1]})
    source = dataclasses.replace(source, spec=ModelSpec(config, source.spec.vocab, True))
    assert start("heads", teacher=source, sparsity=0.1) == {0: [2]}


def test_the_schedule_and_the_mask():
    """Oracles: equation 1 of the paper, and the smallest magnitudes, in NumPy."""
    for step, share in ((0, 0.0), (1, 0.8 * (1 - 0.75**3)), (2, 0.7), (4, 0.8)):
        assert float(pruning.sparsity_at(tf.constant(step, tf.int64), 0.8, 4)) == pytest.approx(
            share
        )
    matrix = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    for share in (0.0, 0.01, 0.33, 1.0):
        found = pruning.keep_mask(tf.constant(matrix), tf.constant(share, tf.float64))
        np.testing.assert_array_equal(found, ~smallest(matrix, share))


NAMES = {
    "encoder/embeddings/word_embeddings": (10, 4),
    "encoder/layer_0/attention/qkv_kernel": (4, 12),
    "encoder/layer_0/output_kernel": (6, 4),
    "encoder/layer_0/output_bias": (4,),
    "encoder/embeddings/position_embeddings": (6, 4),
    "encoder/pooler/dense_kernel": (4, 4),
}


def arrays(seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.normal(size=shape).astype(np.float32) for shape in NAMES.values()]


def make_variables() -> list[keras.Variable]:
    variables = list(map(keras.Variable, arrays(0)))
    for variable, name in zip(variables, NAMES, strict=True):
        variable._path = name
    return variables


def make_apply(strategy: tf.distribute.Strategy, optimizer: AdamW):
    return tf.function(
        lambda gradients: strategy.run(optimizer.apply, (gradients, 0.1)), autograph=False
    )


def smallest(values: np.ndarray, share: float) -> np.ndarray:
    order = np.argsort(np.abs(values).ravel(), kind="stable")[: round(share * values.size)]
    return np.isin(np.arange(values.size), order).reshape(values.shape)


@pytest.mark.parametrize("devices", [1, 2])
def test_weights_become_zero_and_stay_so(devices):
    """Oracle: AdamW in NumPy, whose smallest values become 0 after each step, also resumed."""
    strategy = two_replicas() if devices == 2 else tf.distribute.get_strategy()
    arguments = dict(sparsity=0.5, num_steps=4, bias_correction=True)
    plain = make_variables()
    with strategy.scope():
        variables = make_variables()
        optimizer = pruning.PruningAdamW(variables, **arguments)
    reference = AdamW(plain, bias_correction=True)
    zero = {name: np.zeros(shape, bool) for name, shape in NAMES.items()}
    apply = make_apply(strategy, optimizer)
    for step in range(6):
        if step == 2 and devices == 1:
            resumed = pruning.PruningAdamW(variables, **arguments)
            for name, slot in resumed.slots.items():
                slot.assign(optimizer.slots[name])
            apply = make_apply(strategy, resumed)
        gradients = list(map(tf.constant, arrays(step + 1)))
        reference.apply(gradients, 0.1)
        apply(gradients)
        share = 0.5 * (1 - (1 - min(step + 1, 4) / 4) ** 3)
        for variable, other in zip(variables, plain, strict=True):
            name = other.path
            expected = np.where(zero[name], 0.0, other.numpy())
            if pruning.PRUNED.fullmatch(name) and step < 4:
                parts = np.split(expected, 3 if "qkv" in name else 1, axis=-1)
                zero[name] = np.concatenate([smallest(part, share) for part in parts], axis=-1)
            expected = np.where(zero[name], 0.0, expected)
            np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5, err_msg=name)
    assert [float(np.mean(zero[name])) for name in NAMES] == [0.5] * 3 + [0.0] * 3


def test_weights_are_sorted_at_most_ten_times():
    """Oracle: the steps, by hand: every third of 25, and the last."""
    optimizer, steps = pruning.PruningAdamW(make_variables(), sparsity=0.5, num_steps=25), []
    optimizer._prune_all = lambda strategy, step: steps.append(int(step))
    for _ in range(30):
        optimizer._prune_if_due(tf.distribute.get_strategy())
    assert steps == [3, 6, 9, 12, 15, 18, 21, 24, 25]


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_a_sparse_student(teacher, make_options, tmp_path, monkeypatch, run_and_resume):
    """Oracles: the request, at each evaluation; the best epoch's weights; the uninterrupted run."""
    options = make_options("weights", sparsity=0.75, student_layers="1")
    evaluate, shares = Evaluator.evaluate, []

    def evaluate_and_count(self, split, *args):
        weights = self._trainer.model.weights
        shares.append(
            {np.mean(w.numpy() == 0) for w in weights if pruning.PRUNED.fullmatch(w.path)}
        )
        return evaluate(self, split, *args)

    monkeypatch.setattr(Evaluator, "evaluate", evaluate_and_count)
    line = run_and_resume(run, options, rtol=1e-7, atol=1e-6)[1].splitlines()[-2]
    # Twice in training, and in the end the teacher; both times.
    assert shares == [{0.75}, {0.75}, {0.0}] * 2
    assert line.startswith("75.0% of the weights of layers and word embeddings are zero; ")
    found = open_checkpoint(options.output_dir)
    values = json.loads((tmp_path / "student/compression.json").read_text())
    nonzero = sum(np.count_nonzero(tensor.read()) for tensor in found.tensors.values())
    assert (values["sparsity"], values["student_nonzero"]) == (0.75, nonzero)
    before, after = (
        b"".join(tensors[path].read().tobytes() for path in sorted(tensors))
        for tensors in (open_checkpoint(teacher).tensors, found.tensors)
    )
    assert values["teacher_gzip_bytes"] == len(gzip.compress(before, 6))
    assert values["student_bytes"] == len(gzip.compress(after, 6)) < 0.6 * len(after)

"""Quantized weights and activations, and the bits that layers get."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.compress import run
from bert_tf.compression import quantized_student
from bert_tf.compression.quantization import (
    Quantization,
    QuantizedModel,
    num_dense,
    num_groups,
    straight_through,
    symmetric,
)
from bert_tf.compression.quantized_student import (
    Q8BertLearner,
    QBertLearner,
    choose_bits,
    hessian_product,
    layer_eigenvalues,
    layer_matrices,
    top_eigenvalue,
)
from bert_tf.config import ModelSpec
from bert_tf.finetuning.objectives import ClassificationObjective
from bert_tf.layers.layer import dense_inputs
from bert_tf.models.task_model import BertTaskModel
from bert_tf.run_finetuning import Options as FineTuningOptions
from bert_tf.run_finetuning import run as run_finetuning
from bert_tf.training.checkpoints import latest_checkpoint
from bert_tf.weights.names import num_matrices
from bert_tf.weights.opening import open_checkpoint

Q8BERT, QBERT = Q8BertLearner.quantization, QBertLearner.quantization
QKV = "encoder/layer_1/attention/qkv_kernel"


@pytest.mark.parametrize(
    ("how", "bits", "groups"),
    [(Q8BERT, 8, 3), (QBERT, 2, 48), (dataclasses.replace(QBERT, groups=4), 3, 12)],
)
def test_every_group_has_a_grid_of_its_own(how, bits, groups):
    """Oracles: the papers' formulas in NumPy; half a step; twice is once; 2^bits values."""
    matrix = np.random.default_rng(0).normal(size=[8, 48]).astype(np.float32)
    matrix[:, :2] = 0
    found = how.rounded(QKV, tf.constant(matrix), [4, bits]).numpy()
    np.testing.assert_array_equal(how.rounded(QKV, tf.constant(found), [4, bits]), found)
    for values, rounded in zip(
        *(np.split(x, groups, axis=1) for x in (matrix, found)), strict=True
    ):
        if how.symmetric:
            lowest, step = 0.0, np.abs(values).max() / 127
        else:
            lowest, step = values.min(), (values.max() - values.min()) / (2**bits - 1)
        step = step or 1.0
        expected = lowest + np.round((values - lowest) / step) * step
        np.testing.assert_allclose(rounded, expected, atol=1e-6)
        assert np.abs(rounded - values).max() <= step / 2 + 1e-6
        assert len(np.unique(rounded)) <= 2**bits


def test_groups_and_bytes():
    """Oracles: the paper's 128 groups of 6 columns for 768; bytes counted by hand."""
    assert [num_groups(width, 128) for width in (768, 384, 16, 312, 130)] == [128, 128, 16, 104, 65]
    shapes = {
        "encoder/embeddings/word_embeddings": (10, 8),
        "encoder/embeddings/position_embeddings": (5, 8),
        QKV: (8, 24),
        "encoder/layer_1/attention/qkv_bias": (24,),
    }
    how = Quantization(symmetric=False, groups=4)
    expected = 80 + 2 * 4 * 4 + 40 + 2 * 4 * 4 + 192 * 3 / 8 + 2 * 4 * 12 + 4 * 24
    assert how.num_bytes(shapes, [2, 3]) == expected
    assert Q8BERT.num_bytes(shapes, [8, 8]) == 80 + 4 + 40 + 4 + 192 + 3 * 4 + 4 * 24


def test_every_dense_layer_of_a_model_is_quantized(config, mobile, batch):
    """Oracle: the inputs of dense layers, recorded. Query and key are two matrices."""
    albert = dataclasses.replace(config, num_hidden_groups=2, embedding_size=4)
    own_keys = dataclasses.replace(
        mobile, key_query_shared_bottleneck=False, classifier_activation=False
    )
    for kind in (config, albert, mobile, own_keys):
        student, found = BertTaskModel(kind, 2), []
        with dense_inputs(student, lambda layer, name, x, found=found: found.append(x) or x):
            student(batch)
        assert num_dense(student) == len(found)
    assert [num_matrices(f"a/{name}_kernel") for name in ("qkv", "qk", "output")] == [3, 2, 1]


def test_gradients_pass_straight_through():
    """Oracle: the gradient as if nothing had been rounded; values beyond the grid are cut off."""
    x = tf.Variable([-3.0, 0.3, 2.0])
    with tf.GradientTape() as tape:
        y = straight_through(x, symmetric(x, 2.0))
        loss = tf.reduce_sum(y * [1.0, 2.0, 3.0])
    np.testing.assert_allclose(y, [-2.0, round(0.3 / 2 * 127) / 127 * 2, 2.0], rtol=1e-6)
    np.testing.assert_array_equal(tape.gradient(loss, x), [1.0, 2.0, 3.0])


def test_a_model_with_eight_bits(config, batch):
    """Oracles: the float model; the largest inputs of its dense layers, in NumPy."""
    student = BertTaskModel(
        dataclasses.replace(config, hidden_dropout_prob=0, attention_probs_dropout_prob=0), 2
    )
    model = QuantizedModel(student, Q8BERT, [8] * 3)
    largest = []
    with dense_inputs(student, lambda layer, name, x: largest.append(np.abs(x).max()) or x):
        expected = student(batch)
    assert len(largest) == 3 * 4 + 2
    before = [weight.numpy() for weight in student.weights]
    first = model(batch, training=True)
    ranges = model.weights[0]
    assert ranges.path == "quantization/activation_ranges"
    np.testing.assert_allclose(ranges, largest, rtol=0.05)
    assert 0 < np.abs(first - expected).max() < 0.1
    for value, weight in zip(before, student.weights, strict=True):
        np.testing.assert_array_equal(value, weight)
    # The range moves by a ten-thousandth of the difference.
    ranges.assign(np.full(14, 10.0))
    again = model(batch, training=True)
    moved = (10.0 - ranges.numpy()) * 1e4
    np.testing.assert_allclose(moved, 10 - np.array(largest), rtol=0.1, atol=0.5)
    with model.evaluated_weights():
        assert len(np.unique(student.head.dense_kernel)) <= 255
        np.testing.assert_allclose(model(batch), again, atol=1e-5)
        fixed = QuantizedModel(student, ranges=ranges.numpy())
        np.testing.assert_array_equal(fixed(batch), model(batch))
        assert [weight.path for weight in fixed.weights] == [w.path for w in student.weights]
    for value, weight in zip(before, student.weights, strict=True):
        np.testing.assert_array_equal(value, weight)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_gradients_are_those_of_the_quantized_weights(policy, config, batch):
    """Oracle: the gradients where the weights are the quantized ones already."""
    keras.config.set_dtype_policy(policy)
    config = dataclasses.replace(config, num_hidden_layers=1)
    model = QuantizedModel(BertTaskModel(config, 2), QBERT, [3])
    model.weights[0].assign(np.full(6, 6.0))
    targets = [weight.value for weight in model.trainable_weights]

    @tf.function(autograph=False)
    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(batch, training=True) ** 2)
        return tape.gradient(loss, targets)

    found = gradients()
    assert all(np.abs(gradient).max() > 0 for gradient in map(tf.convert_to_tensor, found[:4]))
    model.weights[0].assign(np.full(6, 6.0))
    with model.evaluated_weights():
        for gradient, expected in zip(found, gradients(), strict=True):
            np.testing.assert_allclose(
                tf.convert_to_tensor(gradient), tf.convert_to_tensor(expected), atol=1e-5
            )


def test_the_top_eigenvalue_of_a_layer(config, batch):
    """Oracles: numpy.linalg.eigvalsh of the whole Hessian, from differences of gradients."""
    small = dataclasses.replace(
        config, hidden_size=4, intermediate_size=4, num_hidden_layers=1, initializer_range=0.5
    )
    # With these weights, the two largest eigenvalues are far apart, as power iteration needs.
    keras.utils.set_random_seed(1)
    model, objective = BertTaskModel(small, 2), ClassificationObjective()
    (weights,) = layer_matrices(model)
    sizes = [np.prod(weight.shape) for weight in weights]
    assert sum(sizes) == 4 * (12 + 4 + 4 + 4)

    @tf.function(autograph=False)
    def gradient(*values):
        for weight, value in zip(weights, values, strict=True):
            weight.assign(value)
        with tf.GradientTape() as tape:
            loss = objective.sums(model, batch, False)["loss"] / objective.counts(batch)["loss"]
        return tf.concat([tf.reshape(g, [-1]) for g in tape.gradient(loss, weights)], 0)

    def at(flat):
        parts = np.split(flat, np.cumsum(sizes)[:-1])
        return [part.reshape(w.shape) for part, w in zip(parts, weights, strict=True)]

    point = np.concatenate([weight.numpy().ravel() for weight in weights])
    steps = 1e-2 * np.eye(len(point), dtype=np.float32)
    hessian = np.stack([gradient(*at(point + s)) - gradient(*at(point - s)) for s in steps]) / 2e-2
    gradient(*at(point))
    random = np.random.default_rng(0).normal(size=len(point)).astype(np.float32)
    found = hessian_product(model, objective, weights, batch, at(random))
    found = np.concatenate([np.ravel(part) for part in found])
    np.testing.assert_allclose(found, hessian @ random, atol=0.02 * np.abs(found).max())
    values = np.linalg.eigvalsh((hessian + hessian.T) / 2)
    top = values[np.abs(values).argmax()]
    found = layer_eigenvalues(model, objective, [batch, batch], seed=1)
    assert found.shape == (1, 2) and found[0, 0] != found[0, 1]
    np.testing.assert_allclose(found, top, rtol=0.05)


def test_the_top_eigenvalue_has_a_sign():
    """Oracle: the eigenvalues that the matrix was made of."""
    random = np.random.default_rng(0)
    basis = np.linalg.qr(random.normal(size=[6, 6]))[0]
    matrix = (basis * [1.5, -3, 1, 0.5, -0.2, 0] @ basis.T).astype(np.float32)

    def product(parts):
        return tf.split(tf.linalg.matvec(matrix, tf.concat(parts, 0)), [2, 4])

    start = tf.split(tf.constant(random.normal(size=6), tf.float32), [2, 4])
    assert top_eigenvalue(product, start) == pytest.approx(-3, rel=0.01)


def test_sensitive_layers_get_more_bits():
    """Oracle: Omega by hand, 1.5, 3, 2, 0.5 and 2.5."""
    values = np.array([[1, 0.5], [-2, 1], [0, 2], [0.5, 0], [-2.5, 0]])
    assert choose_bits(values, 2, 4) == [2, 4, 4, 2, 4]


def test_several_replicas_are_refused(make_learner, config):
    """Oracle: the message, which says what to do."""
    learner = make_learner("q8bert")
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        with pytest.raises(ValueError, match="quantization trains on one device: give --strategy"):
            learner.build_model(None, ModelSpec(config))


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_a_quantized_student_from_flags_to_its_readers(
    files, make_options, tmp_path, monkeypatch, run_and_resume
):
    """Oracles: the uninterrupted run; the grid of the stored weights; what reads run folders."""
    options = make_options("qbert", bits="2/4", learning_rate=1e-3)
    measured, sizes = np.random.default_rng(0).normal(size=[3, 10]), []

    def measure(model, objective, batches, seed):
        sizes.append(len(next(iter(batches))["input_word_ids"]))
        return measured

    monkeypatch.setattr(quantized_student, "layer_eigenvalues", measure)
    results, printed = run_and_resume(run, options, rtol=1e-7, atol=1e-6)
    # Only when the run begins.
    assert sizes == [8]
    assert "Initializing randomly" not in printed
    values = json.loads((tmp_path / "student" / "compression.json").read_text())
    means, deviations = measured.mean(1), measured.std(1)
    bits = np.where(np.argsort(np.argsort(np.abs(means) + deviations)) > 0, 4, 2)
    assert values["layer_bits"] == bits.tolist()
    for layer, mean in enumerate(means):
        assert f"Layer {layer}: top eigenvalue {mean:.3g} +- " in printed
    best = open_checkpoint(options.output_dir)
    shapes = {path: tensor.shape for path, tensor in best.tensors.items()}
    assert values["student_bytes"] == QBERT.num_bytes(shapes, values["layer_bits"])
    assert f"and {values['student_bytes'] / 1e6:.2f} MB (" in printed.splitlines()[-2]
    newest = open_checkpoint(latest_checkpoint(options.output_dir))
    for path, tensor in best.tensors.items():
        if len(tensor.shape) == 2:
            value, trained = tensor.read(), newest.tensors[path].read()
            on_grid = QBERT.rounded(path, tf.constant(value), values["layer_bits"])
            np.testing.assert_allclose(value, on_grid, atol=1e-6)
            # Tables and matrices of 32 values may keep all of them apart with 8 bits.
            assert len(np.unique(value)) < len(np.unique(trained)) or value.size == 32
    assert run(options) == results
    evaluation = FineTuningOptions(
        task="sst2", data_dir=str(files), output_dir=options.output_dir, do_eval=True
    )
    assert abs(run_finetuning(evaluation)["eval_accuracy"] - results["eval_accuracy"]) < 0.2

"""A student and its teacher: what they compute, what is compared, and when; the losses in NumPy."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.compression import losses
from bert_tf.compression.distillation import (
    Distillation,
    DistillationObjective,
    mixed_logits,
    replacing_rate,
)
from bert_tf.compression.losses import Pair, compute, patience, term_loss, token_cosine
from bert_tf.compression.recipes import ATTENTION, HIDDEN, RECIPES, teacher_layer
from bert_tf.finetuning.objectives import (
    ClassificationObjective,
    MultiLabelObjective,
    RegressionObjective,
    SpanObjective,
    TaggingObjective,
)
from bert_tf.layers.padding import Tokens
from bert_tf.models.bert_encoder import attention_probabilities
from bert_tf.models.task_model import BertTaskModel

RANDOM = np.random.default_rng(0)
MASK = np.array([[1] * 5, [1] * 3 + [0] * 2], np.int32)


def values(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def softmax(x):
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def soft_labels(t, s, temperature, row):
    p, q = (softmax(x[row] / temperature) for x in (t, s))
    return temperature**2 * np.sum(p * np.log(p / q))


def squared_error(t, s, row):
    return np.sum((t[row] - s[row]) ** 2)


def first_token_cosine(t, s, row):
    a, b = t[row, 0], s[row, 0]
    return 1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b)


LOGITS, STATES = (2, 3), (2, 5, 8)
# The NumPy of test_general.py and of the tests below has the other losses.
CASES = {
    "soft_labels": (losses.soft_labels, soft_labels, LOGITS, {"temperature": 2.5}),
    "soft_labels of numbers": (losses.soft_labels, squared_error, (2,), {}),
    "squared_error": (losses.squared_error, squared_error, LOGITS, {}),
    "squared_error of numbers": (losses.squared_error, squared_error, (2,), {}),
    "first_token_cosine": (losses.first_token_cosine, first_token_cosine, STATES, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_loss_is_its_papers(name):
    """Oracles: the formula in NumPy, for each example without its padding; 0 for equal outputs."""
    loss, formula, shape, arguments = CASES[name]
    teacher, student = values(*shape), values(*shape)
    expected = [formula(teacher, student, row=row, **arguments) for row in (0, 1)]
    found = loss(teacher, student, MASK, **arguments)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    np.testing.assert_allclose(loss(teacher, teacher, MASK, **arguments), [0, 0], atol=1e-6)


def test_soft_labels_have_the_gradient_of_the_cross_entropy():
    """Oracle: T (q - p), the gradient of -T^2 sum p log q."""
    teacher, student = values(2, 3), tf.Variable(values(2, 3))
    with tf.GradientTape() as tape:
        loss = losses.soft_labels(teacher, student, temperature=4.0)
    expected = 4.0 * (softmax(student.numpy() / 4) - softmax(teacher / 4))
    np.testing.assert_allclose(tape.gradient(loss, student), expected, atol=1e-6)


BOTH = (HIDDEN, ATTENTION)


def without_dropout(config, **changes):
    rates = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return dataclasses.replace(config, **rates | changes)


@pytest.mark.parametrize("skips_padding", [False, True])
def test_outputs_are_the_models(config, batch, skips_padding):
    """Oracles: the model itself, with and without dropout; `attention_probabilities`."""
    model = BertTaskModel(config, 2)
    model.encoder.skips_padding = skips_padding
    for training in (False, True):
        outputs = compute(model, batch, BOTH, training)
        expected = model(batch, training=training)
        if not training:  # the last layer of a model on its own drops elements of fewer rows
            np.testing.assert_allclose(outputs.logits, expected, rtol=1e-5, atol=1e-6)
        layers = model.encoder(batch, training=training)["encoder_outputs"]
        assert outputs.num_layers == 3
        for found, expected in zip(outputs.hidden[1:], layers, strict=True):
            np.testing.assert_array_equal(found, expected)
    outputs = compute(model, batch, BOTH, False)
    bias = np.where(batch["input_mask"], 0, -1e9)[:, None, None]
    expected = attention_probabilities(model.encoder, batch)
    np.testing.assert_allclose(tf.nn.softmax(np.stack(outputs.scores) + bias), expected, atol=1e-6)
    # The embeddings have the dropout of the same call, in which it drops elements of tokens alone
    # if there is no padding.
    outputs, encoder = compute(model, batch, BOTH, True), model.encoder
    seeds = encoder.dropout_seeds(batch, True)
    seeds.next()  # that of the embeddings
    x, mask = outputs.hidden[0], encoder.attention_mask(batch["input_mask"])
    tokens = Tokens(batch["input_mask"]) if skips_padding else None
    if tokens:
        x, mask = tokens.pack(x), tokens.masks(mask)
    first = encoder.block(0)(x, mask, seeds=seeds, training=True, tokens=tokens)
    first = tokens.spread(first) if tokens else first
    np.testing.assert_array_equal(first, outputs.hidden[1])
    assert compute(model, batch, (), False).hidden == []


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if recipe.loss.terms])
def test_a_student_that_is_its_teacher_has_no_loss(name, config, batch):
    """Oracle: 0 for every term, whatever its weight."""
    model = BertTaskModel(config, 2)
    outputs = compute(model, batch, BOTH, False)
    for progress in (0.0, 0.4, 0.9):
        rest = batch["input_mask"], tf.constant(progress), lambda x, embeddings: x
        pair = Pair(outputs, outputs, *rest)
        for term in RECIPES[name].loss.terms:
            found = term_loss(term, pair)
            np.testing.assert_allclose(found, np.zeros(4), atol=1e-5, err_msg=term.name)


def test_layers_are_compared_as_published():
    """Oracles: PKD (arXiv:1908.09355) section 3.2 and TinyBERT (arXiv:1909.10351) section 4.2."""
    assert [teacher_layer(i, 6, 12) for i in range(1, 6)] == [2, 4, 6, 8, 10]
    assert [teacher_layer(i, 3, 12) for i in range(1, 3)] == [4, 8]
    assert [teacher_layer(i, 4, 12) for i in range(5)] == [0, 3, 6, 9, 12]
    kept = {name: list(recipe.layers(12)) for name, recipe in RECIPES.items()}
    assert kept["pkd6"] == kept["layers"] == kept["theseus"] == [0, 1, 2, 3, 4, 5]
    assert kept["pkd3"] == [0, 1, 2]
    assert kept["distilbert"] == [1, 3, 5, 7, 9, 11]
    assert kept["tinybert"] == [2, 5, 8, 11]
    assert all(list(recipe.layers(1)) == [0] for recipe in RECIPES.values())


def make(config, recipe, student=None, steps=10, base=None, outputs=2, kind="classifier"):
    student = student or dataclasses.replace(config, num_hidden_layers=2)
    models = (BertTaskModel(x, outputs, kind) for x in (student, config))
    objective = base or ClassificationObjective()
    return Distillation(*models), DistillationObjective(objective, RECIPES[recipe].loss, steps)


def sums_at(step, model, objective, batch, training=True):
    batch = batch | {"step": tf.constant(step, tf.int64)}
    return {name: float(x) for name, x in objective.sums(model, batch, training).items()}


def test_the_loss_has_the_weights_of_the_recipe(config, batch):
    """Oracle: PKD's (1 - alpha) CE + alpha KD + beta PT over the rows that count, in NumPy."""
    model, objective = make(config, "pkd6")
    assert objective.losses == ("labels", "soft_labels", "patience")
    assert {name: float(x) for name, x in objective.counts(batch).items()} == dict.fromkeys(
        ("labels", "soft_labels", "patience", "accuracy"), 3.0
    )
    found = sums_at(0, model, objective, batch, training=False)
    student, teacher = (m(batch).numpy() for m in (model.student, model.teacher))
    log_q = tf.nn.log_softmax(student).numpy()
    labels = -log_q[np.arange(3), [0, 1, 1]].sum()
    assert found["labels"] == pytest.approx(0.5 * labels, rel=1e-5)
    p, q = (tf.nn.softmax(x[:3] / 10).numpy() for x in (teacher, student))
    assert found["soft_labels"] == pytest.approx(50 * np.sum(p * np.log(p / q)), rel=1e-3)
    layers = [m.encoder(batch)["encoder_outputs"] for m in (model.teacher, model.student)]
    t, s = (x.numpy()[:3, 0] for x in (layers[0][1], layers[1][0]))
    t, s = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (t, s))
    assert found["patience"] == pytest.approx(100 * np.sum((t - s) ** 2) / 16, rel=1e-4)
    np.testing.assert_array_equal(objective.outputs(model, batch)["logits"], student)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("name", ["tinybert", "internal", "mobilebert"])
@pytest.mark.slow
def test_mixed_precision_has_the_gradients_of_float32(name, policy, config, mobile, batch):
    """Oracle: the same in float32."""
    students = {
        "tinybert": without_dropout(config, num_hidden_layers=1, hidden_size=8),
        "mobilebert": dataclasses.replace(mobile, num_hidden_layers=1),
    }
    gradients = []
    for kind in ("float32", policy):
        keras.config.set_dtype_policy(kind)
        keras.utils.set_random_seed(0)  # the same weights
        model, objective = make(without_dropout(config), name, student=students.get(name))
        with tf.GradientTape() as tape:
            step = {"step": tf.constant(0, tf.int64)}
            sums = objective.sums(model, batch | step, training=False)
            loss = tf.add_n([sums[term] for term in objective.losses])
        weights = [weight.value for weight in model.trainable_weights]
        found = tape.gradient(loss, weights, unconnected_gradients="zero")
        gradients.append(np.concatenate([np.ravel(tf.convert_to_tensor(x)) for x in found]))
    scale = np.linalg.norm(gradients[0])
    assert np.linalg.norm(gradients[1] - gradients[0]) < 0.05 * scale


def test_a_mobilebert_imitates_one_layer_more_at_a_time(config, mobile, batch):
    """Oracles: the two losses of MobileBERT (arXiv:2004.02984), feature map and attention transfer,
    in NumPy; then half the labels and half the teacher's probabilities.
    """
    model, objective = make(config, "mobilebert", student=mobile, steps=12)
    found = [sums_at(step, model, objective, batch, training=False) for step in (0, 2, 4)]
    mask = batch["input_mask"].numpy()[:3].astype(bool)
    attention, hidden = [], []
    for ours, theirs in ((0, 1), (1, 2)):
        models = (model.teacher, theirs), (model.student, ours)
        p, q = (attention_probabilities(m.encoder, batch)[i][:3].numpy() for m, i in models)
        kl = np.sum(p * np.log(np.maximum(p, 1e-30) / np.maximum(q, 1e-30)), -1).mean(1)
        t, s = (m.encoder(batch)["encoder_outputs"][i][:3] for m, i in models)
        errors = np.mean((t - model.project(s, False)) ** 2, -1)
        attention.append(sum(kl[row][mask[row]].mean() for row in range(3)))
        hidden.append(sum(errors[row][mask[row]].mean() for row in range(3)))
    for sums, layers in zip(found, (1, 2, 0), strict=True):
        assert sums["attention"] == pytest.approx(sum(attention[:layers]), rel=1e-3)
        assert sums["hidden"] == pytest.approx(100 * sum(hidden[:layers]), rel=1e-4)
    assert found[1]["labels"] == found[1]["soft_labels"] == 0.0
    teacher, student = (m(batch).numpy()[:3] for m in (model.teacher, model.student))
    log_q = student - np.logaddexp.reduce(student, -1, keepdims=True)
    assert found[2]["labels"] == pytest.approx(-0.5 * log_q[[0, 1, 2], [0, 1, 1]].sum(), rel=1e-4)
    expected = 0.5 * divergence(teacher, student).sum()
    assert found[2]["soft_labels"] == pytest.approx(expected, rel=1e-3)


def test_a_narrower_student_imitates_scores_states_and_embeddings(config, batch):
    """Oracle: TinyBERT (arXiv:1909.10351) equations 7 to 9, layers 1, 2 against 2, 3, in NumPy."""
    narrow = dataclasses.replace(config, num_hidden_layers=2, hidden_size=8)
    model, objective = make(config, "tinybert", narrow)
    found = sums_at(0, model, objective, batch, training=False)
    hidden, words = (weight.numpy() for weight in model.weights[-2:])
    teacher, student = (compute(m, batch, BOTH, False) for m in (model.teacher, model.student))
    expected = dict.fromkeys(("attention", "hidden", "embeddings"), 0.0)
    for row, n in enumerate((8, 3, 5)):

        def error(a, b, row=row, n=n):
            return np.mean((a[row, :n] - b[row, :n]) ** 2)

        expected["embeddings"] += error(teacher.hidden[0], student.hidden[0] @ words)
        for ours, theirs in ((1, 2), (2, 3)):
            expected["hidden"] += error(teacher.hidden[theirs], student.hidden[ours] @ hidden)
            scores = (
                x[row, :, :n, :n] for x in (teacher.scores[theirs - 1], student.scores[ours - 1])
            )
            expected["attention"] += np.mean(np.subtract(*scores) ** 2)
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-4)


def test_the_teacher_has_no_dropout(config, batch):
    """Oracle: no loss of a student with the teacher's weights."""
    model, objective = make(config, "pd", without_dropout(config))
    model.student.set_weights(model.teacher.get_weights())
    assert sums_at(0, model, objective, batch)["soft_labels"] == pytest.approx(0, abs=1e-5)


def divergence(teacher, student, axis=-1):
    p, q = (np.exp(x - np.logaddexp.reduce(x, axis, keepdims=True)) for x in (teacher, student))
    return np.sum(p * np.log(p / q), axis)


def test_taggers_and_finders_of_answers_are_compared_token_by_token(config, batch):
    """Oracles, in NumPy: the divergences at tagged tokens; the mean of start and end in a text."""
    tags = np.where(batch["input_mask"], [0, -1, 2, 1, -1, 0, 0, 1], -1)
    ones = tf.ones(4, tf.int32)
    targets = {"tagger": {"tags": tf.constant(tags)}, "span": {"start": ones, "end": ones}}
    for base, outputs, kind in ((TaggingObjective(), 3, "tagger"), (SpanObjective(), 2, "span")):
        model, loss = make(config, "minibert", base=base, outputs=outputs, kind=kind)
        t, s = (m(batch).numpy()[:3] for m in (model.teacher, model.student))
        data = batch | targets[kind]
        found = sums_at(0, model, loss, data, training=False)["soft_labels"]
        count = float(loss.counts(data)["soft_labels"])
        if kind == "tagger":
            tagged = tags[:3] >= 0
            assert found == pytest.approx(divergence(t, s)[tagged].sum(), rel=1e-3)
            assert count == tagged.sum()
        else:
            parts = (divergence(t[i, :n], s[i, :n], 0).mean() for i, n in enumerate((8, 3, 5)))
            assert found == pytest.approx(sum(parts), rel=1e-3)
            assert count == 3


def test_choices_and_several_classes_count_with_their_mean(config, batch):
    """Oracles, in NumPy: the divergence over the choices; that of every class from the other."""
    for name in ("input_word_ids", "input_mask", "input_type_ids"):
        batch[name] = tf.stack([batch[name], batch[name][::-1]], axis=1)
    model, loss = make(config, "distilbert", outputs=1, kind="multiple_choice")
    found = sums_at(0, model, loss, batch, training=False)
    t, s = (m(batch).numpy()[:3] for m in (model.teacher, model.student))
    expected = 0.625 * 4 * divergence(t / 2, s / 2).sum()
    assert found["soft_labels"] == pytest.approx(expected, rel=1e-3)
    states = [m.encoder(m.rows(batch))["sequence_output"] for m in (model.teacher, model.student)]
    cosines = np.reshape(token_cosine(*states, model.student.rows(batch)["input_mask"]), [4, 2])
    assert found["cosine"] == pytest.approx(0.125 * cosines.mean(1)[:3].sum(), rel=1e-3)

    batch = {name: x[:, 0] if name.startswith("input") else x for name, x in batch.items()}
    batch["labels"] = tf.zeros([4, 3])
    model, loss = make(config, "pd", base=MultiLabelObjective(), outputs=3)
    t, s = (np.stack([m(batch)[:3], np.zeros([3, 3])], -1) for m in (model.teacher, model.student))
    found = sums_at(0, model, loss, batch, training=False)["soft_labels"]
    assert found == pytest.approx(divergence(t, s).mean(1).sum(), rel=1e-3)
    # Of numbers, the squared error in standard deviations.
    batch["values"] = tf.zeros(4)
    model, loss = make(config, "pd", base=RegressionObjective(deviation=2.0), outputs=1)
    t, s = (m(batch)[:3].numpy() for m in (model.teacher, model.student))
    found = sums_at(0, model, loss, batch, training=False)["soft_labels"]
    assert found == pytest.approx(np.sum((t - s) ** 2) / 4, rel=1e-4)


def test_stages_follow_the_steps(config, batch):
    """Oracle: the spans in the table of recipes, of 10 steps."""
    model, objective = make(config, "tinybert")
    early, late = (sums_at(step, model, objective, batch) for step in (6, 7))
    assert min(early[name] for name in ("attention", "hidden", "embeddings")) > 0
    assert early["soft_labels"] == 0 < late["soft_labels"]
    assert late["attention"] == late["hidden"] == late["embeddings"] == 0
    assert objective.losses == ("attention", "hidden", "embeddings", "soft_labels")
    # Two layers: the second joins, or follows, after a quarter of the steps.
    found = {}
    for recipe in ("internal", "internal-progressive"):
        _, objective = make(config, recipe)
        found[recipe] = [sums_at(i, model, objective, batch, False)["cosine"] for i in (0, 3, 5)]
    stacked, progressive = found["internal"], found["internal-progressive"]
    assert stacked[0] == progressive[0] > 0 and stacked[2] == progressive[2] == 0
    assert stacked[1] == pytest.approx(progressive[0] + progressive[1], rel=1e-5)


def test_patience_is_the_mean_over_layers(config, batch):
    """Oracle: PKD's loss of layer 1 and of layer 2, apart; 0 for a student of one layer."""
    (term,) = RECIPES["pkd6"].loss.terms[1:]
    teacher, student = (compute(BertTaskModel(config, 2), batch, BOTH, False) for _ in range(2))
    rest = batch["input_mask"], tf.constant(0.0), None
    parts = [patience(teacher.hidden[i], student.hidden[i], rest[0]) for i in (1, 2)]
    np.testing.assert_allclose(term_loss(term, Pair(teacher, student, *rest)), np.mean(parts, 0))
    one = student._replace(hidden=student.hidden[:2])
    np.testing.assert_array_equal(term_loss(term, Pair(teacher, one, *rest)), np.zeros(4))


def test_the_teacher_is_no_part_of_what_is_trained_and_saved(config):
    """Oracles: the paths of the student alone; one projection each for a narrower student."""
    narrow = dataclasses.replace(config, num_hidden_layers=2, hidden_size=8)
    model, _ = make(config, "tinybert", narrow)
    student = [weight.path for weight in model.student.weights]
    paths = [weight.path for weight in model.weights]
    projections = [f"distillation/{x}_projection/kernel" for x in ("hidden", "embedding")]
    assert sorted(paths) == sorted(student + projections)
    assert model.project(tf.zeros([1, 2, 8]), False).shape == (1, 2, 16)
    assert make(config, "tinybert")[0].weights[0].path in student
    assert len(make(config, "tinybert")[0].weights) == len(student)
    alone = Distillation(model.student, model.teacher, projects=False)
    assert [weight.path for weight in alone.weights] == student


def test_theseus_replaces_modules(config, batch):
    """Oracles: the teacher at a rate of 0, the student at 1, and both kinds of layers between."""
    config = without_dropout(config, num_hidden_layers=4)
    student = BertTaskModel(without_dropout(config, num_hidden_layers=2), 2)
    teacher = BertTaskModel(config, 2)
    for path in ("embeddings", "pooler"):
        getattr(student.encoder, path).set_weights(getattr(teacher.encoder, path).get_weights())
    student.head.set_weights(teacher.head.get_weights())
    call = tf.function(mixed_logits)
    np.testing.assert_allclose(call(student, teacher, batch, 0.0), teacher(batch), atol=1e-5)
    np.testing.assert_allclose(call(student, teacher, batch, 1.0), student(batch), atol=1e-5)
    mixed = [
        call(student, teacher, batch | {"dropout_seed": tf.constant([seed, 0])}, 0.5).numpy()
        for seed in range(12)
    ]
    assert len({values.tobytes() for values in mixed}) == 4
    rates = [float(replacing_rate(tf.constant(x))) for x in (0.0, 1 / 3, 2 / 3, 1.0)]
    assert rates == pytest.approx([0.3, 0.65, 1.0, 1.0])


def test_theseus_trains_the_student_on_the_labels(config, batch):
    """Oracle: with a rate of 1, the student's own loss."""
    model, objective = make(without_dropout(config), "theseus")
    found = sums_at(9, model, objective, batch)
    expected = ClassificationObjective().sums(model.student, batch, False)
    assert objective.losses == ("labels",)
    assert found["labels"] == pytest.approx(float(expected["loss"]), rel=1e-5)

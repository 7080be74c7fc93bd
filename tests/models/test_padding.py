"""Encoders that compute nothing for padding, or in the last layer only what is read.

Oracles: the same encoder, which computes all of it; counting, and random batches.
"""

import copy
import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from encoders import MOBILE, SMALL, STILL, random_inputs, randomize
from support import calls_of

from bert_tf.compression.distillation import Distillation
from bert_tf.config import BertConfig
from bert_tf.layers.padding import SortedTokens, TokenCapacity, token_places
from bert_tf.models.bert_encoder import BertEncoder, skip_padding
from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective
from bert_tf.models.task_model import BertTaskModel

CONFIGS = {
    "bert": STILL,
    "albert": dataclasses.replace(STILL, num_hidden_groups=1, embedding_size=16),
    "left_to_right": dataclasses.replace(STILL, is_decoder=True),
    "pruned": dataclasses.replace(STILL, pruned_heads={1: [0, 3]}),
    "mobilebert": dataclasses.replace(MOBILE, key_query_shared_bottleneck=True),
}
# Tokens of different rows of 17, one of them twice.
PLACES = np.array([3, 4, 70, 4, 57, 40], np.int32)
SOME = {"output_places": PLACES}


@pytest.fixture(params=CONFIGS)
def config(request) -> BertConfig:
    return CONFIGS[request.param]


def masked_inputs(config: BertConfig) -> dict[str, np.ndarray]:
    """Returns rows with padding at the end, at the start, inside, everywhere and nowhere."""
    inputs = random_inputs(config, batch=13, length=17)
    inputs["input_word_ids"] = np.random.default_rng(2).integers(0, 101, (13, 17))
    mask = inputs["input_mask"]
    mask[3:] = 1
    mask[3, :5] = mask[4, 6:9] = mask[5] = 0
    return inputs


def outputs_and_gradients(encoder: BertEncoder, inputs: dict, training: bool = True):
    """Returns what the encoder gives for tokens, and the gradients of a loss that reads it all."""
    mask = tf.cast(inputs["input_mask"], tf.float32)[:, :, tf.newaxis]
    with tf.GradientTape() as tape:
        outputs = encoder(inputs, training=training)
        layers = [x * mask for x in outputs["encoder_outputs"]]
        # Of a row without tokens, only the shape is defined.
        pooled = outputs["pooled_output"] * tf.reduce_max(mask, axis=1)
        loss = sum(tf.reduce_sum(tf.sin(x + i)) for i, x in enumerate([*layers, pooled]))
    weights = [weight.value for weight in encoder.trainable_weights]
    gradients = tape.gradient(loss, weights, unconnected_gradients="zero")
    return [*layers, pooled], [tf.convert_to_tensor(x) for x in gradients]


def assert_equal(found, expected) -> None:
    for x, y in zip(found[0], expected[0], strict=True):
        np.testing.assert_allclose(x, y, atol=2e-5 * max(1.0, np.abs(y).max()))
    for x, y in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4 * max(1.0, np.abs(y).max()))


@pytest.mark.parametrize(
    ("name", "rematerialize"),
    [
        *((name, "none") for name in CONFIGS),
        *((name, kind) for name in ("bert", "mobilebert") for kind in ("selective", "layers")),
    ],
)
@pytest.mark.slow
def test_outputs_and_gradients(name, rematerialize):
    encoder = randomize(BertEncoder(CONFIGS[name], rematerialize))
    inputs = masked_inputs(CONFIGS[name])
    expected = outputs_and_gradients(encoder, inputs)
    skip_padding(encoder)
    compute = tf.function(outputs_and_gradients, autograph=False)
    for found in (outputs_and_gradients(encoder, inputs), compute(encoder, inputs)):
        assert_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["left_to_right", "pruned", "mobilebert"])
def test_a_fixed_number_of_places_with_xla(name):
    """Oracle: the same encoder without places; others are below."""
    config = CONFIGS[name]
    encoder, inputs = randomize(BertEncoder(config, "selective")), masked_inputs(config)
    compute = tf.function(outputs_and_gradients, autograph=False, jit_compile=True)
    places = token_places(inputs["input_mask"])
    assert sorted(places) == np.flatnonzero(inputs["input_mask"] | (np.arange(17) == 0)).tolist()
    places = token_places(inputs["input_mask"], len(places) + 5)
    found, expected = (compute(encoder, x) for x in (inputs | {"token_places": places}, inputs))
    assert_equal(found, expected)


def test_padding_is_not_computed(config, monkeypatch):
    """Oracle: the shape of what a layer reads."""
    encoder, inputs = BertEncoder(config), masked_inputs(config)
    skip_padding(encoder)
    calls = calls_of(monkeypatch, encoder.block(1), "call")
    outputs = encoder(inputs)
    # The first place of each row is always computed: the pooler reads it.
    mask = inputs["input_mask"].copy()
    mask[:, 0] = 1
    assert {tuple(call.args[0].shape) for call in calls} == {(mask.sum(), 48)}
    for x in outputs["encoder_outputs"]:
        assert not np.any(np.asarray(x)[mask == 0])


def test_examples_do_not_see_each_other(config):
    """Oracle: the outputs before another example's token changed, bit for bit, even to infinity."""
    encoder, inputs = randomize(BertEncoder(config)), random_inputs(config)
    skip_padding(encoder)
    encoder.embeddings.word_embeddings.assign(
        np.where(np.arange(101)[:, None] == 7, np.inf, encoder.embeddings.word_embeddings)
    )
    inputs["input_word_ids"][inputs["input_word_ids"] == 7] = 8
    before, others = encoder(inputs), copy.deepcopy(inputs)
    others["input_word_ids"][1, 2] = 7
    after = encoder(others)
    for name in ("sequence_output", "pooled_output"):
        assert np.isnan(after[name][1]).any()
        for row in (0, 2):
            np.testing.assert_array_equal(after[name][row], before[name][row])


def test_the_same_seed_drops_the_same_in_eager_code_and_graphs():
    """Oracle: the outputs of eager code; of other seeds, they differ."""
    encoder = randomize(BertEncoder(SMALL))
    skip_padding(encoder)
    inputs = masked_inputs(SMALL) | {"dropout_seed": np.array([3, 4], np.int32)}
    first = encoder(inputs, training=True)["sequence_output"]
    again = tf.function(encoder, autograph=False)(inputs, training=True)["sequence_output"]
    np.testing.assert_allclose(first, again, atol=1e-5)
    other = encoder(inputs | {"dropout_seed": np.array([3, 5])}, training=True)["sequence_output"]
    assert np.abs(first - other).max() > 0.1


def test_attention_pads_groups_of_rows_to_their_longest():
    """Oracle: the lengths, sorted; the tokens that come back are those that went in."""
    lengths = np.array([9, 2, 5, 1, 9, 3, 2])
    mask = (np.arange(17) < lengths[:, np.newaxis]).astype(np.int32)
    tokens, seen = SortedTokens(mask, 3), []

    def record(x, mask, group):
        seen.append((group, tuple(x.shape[:2]), mask.shape[2:]))
        return 2.0 * x

    x = tokens.pack(np.random.default_rng(0).random((7, 17, 4)).astype(np.float32))
    causal = np.tril(np.ones((17, 17), bool)) & mask[:, np.newaxis, np.newaxis].astype(bool)
    np.testing.assert_array_equal(tokens.map_rows(record, x, tokens.masks(causal)), 2.0 * x)
    assert seen == [(0, (2, 2), (2, 2)), (1, (2, 3), (3, 3)), (2, (3, 9), (9, 9))]


def test_groups_of_rows_drop_different_probabilities():
    """Oracle: eight equal rows; with one seed for both groups, four pairs of outputs are equal."""
    rates = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5)
    encoder = randomize(BertEncoder(dataclasses.replace(SMALL, **rates)))
    skip_padding(encoder)
    inputs = {name: np.repeat(x[:1], 8, axis=0) for name, x in random_inputs(SMALL).items()}
    rows = encoder(inputs | {"dropout_seed": np.array([3, 4])}, training=True)["pooled_output"]
    assert len({row.tobytes() for row in np.asarray(rows)}) == 8


@pytest.mark.parametrize("kind", ["classifier", "tagger", "span", "multiple_choice"])
def test_heads(kind):
    """Oracle: the logits of the tokens before padding is skipped."""
    model = randomize(BertTaskModel(SMALL, 1 if kind == "multiple_choice" else 2, kind))
    inputs = random_inputs(SMALL, batch=6)
    mask = inputs["input_mask"]
    if kind == "multiple_choice":
        inputs = {name: x.reshape(2, 3, -1) for name, x in inputs.items()}
    expected = model(inputs)
    given = model(inputs | {"token_places": token_places(inputs["input_mask"])})
    skip_padding(model)
    for found in (given, model(inputs)):
        if kind in ("tagger", "span"):
            found, expected = (x * mask[:, :, None] for x in (found, expected))
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_nested_encoders_are_found():
    """Oracle: the student and the teacher of a distillation."""
    model = Distillation(BertTaskModel(SMALL, 2), BertTaskModel(SMALL, 2), projects=False)
    skip_padding(model)
    assert model.student.encoder.skips_padding and model.teacher.encoder.skips_padding


@pytest.mark.parametrize(("rows", "mean"), [(8, 60), (32, 13), (256, 200)])
def test_batches_hardly_ever_exceed_it(rows, mean):
    """Oracle: 20,000 random batches of texts whose lengths are skewed, as those of reviews are."""
    random = np.random.default_rng(0)
    lengths = np.minimum(random.gamma(2.0, mean / 2, 5000).astype(int) + 1, 512)
    found = TokenCapacity.for_rows(lengths, rows, 512).tokens
    totals = random.choice(lengths, (20_000, rows)).sum(axis=1)
    assert found % 128 == 0 and np.mean(totals > found) < 2e-3
    assert found < 2 * totals.mean() + 128


@pytest.mark.parametrize(("length", "skips"), [(128, False), (110, False), (100, True)])
def test_little_padding_is_computed(length, skips):
    """Oracle: by hand, 85% of 128 is 108.8."""
    assert bool(TokenCapacity.for_rows(np.full(9, length), 32, 128)) == skips


def test_it_applies_to_batches_with_no_more_tokens():
    """Oracle: counting; the first place of a row without tokens counts."""
    batch = {"input_mask": np.array([[1, 1, 1], [0, 1, 0], [0, 0, 0]])}
    for tokens, applies in ((5, False), (6, True)):
        assert bool(TokenCapacity(tokens).applies(batch)) == applies
    places = TokenCapacity(7).shorten(batch)["token_places"]
    np.testing.assert_array_equal(places, [0, 1, 2, 3, 4, 6, 5])


def read(encoder: BertEncoder, inputs: dict):
    """Returns the outputs at `PLACES` and the pooled ones, and the gradients of a loss of both."""
    rows = tf.cast(tf.reduce_max(inputs["input_mask"], axis=1, keepdims=True), tf.float32)
    with tf.GradientTape() as tape:
        outputs = encoder(inputs, training=True)
        x = outputs.get("at_places")
        if x is None:
            x = tf.gather(tf.reshape(outputs["sequence_output"], [-1, 48]), PLACES)
        # Of a row without tokens, only the shape is defined.
        pooled = outputs["pooled_output"] * rows
        loss = tf.reduce_sum(tf.sin(x)) + tf.reduce_sum(tf.cos(pooled))
    weights = [weight.value for weight in encoder.trainable_weights]
    gradients = tape.gradient(loss, weights, unconnected_gradients="zero")
    return [x, pooled], [tf.convert_to_tensor(gradient) for gradient in gradients]


@pytest.mark.parametrize(
    "name, rematerialize",
    [*((name, "none") for name in CONFIGS), ("bert", "selective"), ("bert", "layers")],
)
@pytest.mark.slow
def test_outputs_and_gradients_at_places(name, rematerialize):
    encoder = randomize(BertEncoder(CONFIGS[name], rematerialize))
    inputs = masked_inputs(CONFIGS[name])
    expected = read(encoder, inputs)
    assert_equal(read(encoder, inputs | SOME), expected)
    skip_padding(encoder)
    compute = tf.function(read, autograph=False)
    assert_equal(compute(encoder, inputs | SOME), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "albert"])
def test_a_fixed_number_of_tokens_with_xla(name):
    encoder, inputs = randomize(BertEncoder(CONFIGS[name])), masked_inputs(CONFIGS[name])
    compute = tf.function(read, autograph=False, jit_compile=True)
    some = inputs | {"token_places": token_places(inputs["input_mask"])}
    assert_equal(compute(encoder, some | SOME), read(encoder, inputs))


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("kind, rows", [("classifier", 6), ("multiple_choice", 6), ("tagger", 60)])
def test_classifiers_compute_one_row_for_each_example(kind, rows, skips, monkeypatch):
    """Oracles: the shape of what the last feed-forward network reads; the logits of all rows."""
    model = randomize(BertTaskModel(SMALL, 1 if kind == "multiple_choice" else 2, kind))
    inputs = random_inputs(SMALL, batch=6, length=10)
    inputs["input_mask"][:] = 1
    expected = model.head(model.encoder(inputs)["pooled_output"])
    if skips:
        skip_padding(model)
    last = model.encoder.block(SMALL.num_hidden_layers - 1)
    calls = calls_of(monkeypatch, last, "feed_forward")
    if kind == "multiple_choice":
        inputs = {name: x.reshape(2, 3, -1) for name, x in inputs.items()}
        expected = tf.reshape(expected, [2, 3])
    found = model(inputs)
    assert [np.prod(call.args[1].shape[:-1]) for call in calls] == [rows]
    if kind != "tagger":
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("skips, scored", [(False, 6), (True, 4)])
def test_pretraining_scores_only_predictions(skips, scored, monkeypatch):
    """Oracles: the number of predictions with a weight; the losses of the model's own outputs."""
    model, inputs = randomize(BertPretrainer(SMALL)), random_inputs(SMALL)
    batch = inputs | {
        "masked_lm_positions": np.array([[1, 3], [2, 0], [0, 0]]),
        "masked_lm_ids": np.array([[5, 6], [7, 0], [8, 0]]),
        "masked_lm_weights": np.array([[1, 1], [1, 0], [0.5, 0]], np.float32),
        "next_sentence_labels": np.array([0, 1, 1]),
        "example_weights": np.array([1, 1, 0], np.float32),
    }
    logits = model(batch)["mlm_logits"]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["masked_lm_ids"], logits)
    whole = PretrainingObjective().sums(model, batch, training=False)
    if skips:
        skip_padding(model)
    calls = calls_of(monkeypatch, model.masked_lm, "_scores")
    sums = PretrainingObjective().sums(model, batch, training=False)
    assert [call.args[0].shape[0] for call in calls] == [scored]
    expected = tf.reduce_sum(losses * batch["masked_lm_weights"])
    np.testing.assert_allclose(sums["masked_lm_loss"], expected, rtol=1e-5)
    for name, value in whole.items():
        np.testing.assert_allclose(sums[name], value, rtol=1e-5, err_msg=name)

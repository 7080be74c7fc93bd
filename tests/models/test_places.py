"""Encoders whose last layer computes only what is read. Oracle: the same encoder, without that."""

import numpy as np
import pytest
import tensorflow as tf
from encoders import SMALL, random_inputs, randomize
from support import calls_of
from test_padding import CONFIGS, assert_equal, masked_inputs

from bert_tf.layers.padding import token_places
from bert_tf.models.encoder import BertEncoder, skip_padding
from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective
from bert_tf.models.task_model import BertTaskModel

# Tokens of different rows of 17, one of them twice.
PLACES = np.array([3, 4, 70, 4, 57, 40], np.int32)
SOME = {"output_places": PLACES}


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
def test_outputs_and_gradients(name, rematerialize):
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

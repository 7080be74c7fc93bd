"""Factorized embeddings and shared layers; tests/weights/formats compare them with ALBERT's."""

import collections
import dataclasses
import re

import numpy as np
import pytest
import tensorflow as tf
from encoders import random_inputs, randomize

from bert_tf.config import BertConfig
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective

SMALL = BertConfig(
    vocab_size=101,
    hidden_size=48,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=80,
    hidden_act="gelu_new",  # KerasHub computes the tanh form.
    max_position_embeddings=40,
    embedding_size=20,
    num_hidden_groups=1,
)


def test_masked_lm_scores_worked_by_hand():
    """Oracle: NumPy, from the output of the encoder: H -> E, tanh GELU, normalization, table."""
    model = BertPretrainer(SMALL)
    randomize(model)
    positions = np.array([[1, 4], [0, 2]], np.int32)
    inputs = random_inputs(SMALL, batch=2) | {"masked_lm_positions": positions}
    outputs, head = model(inputs), model.masked_lm
    assert head.transform_kernel.shape == (48, 20)
    x = np.take_along_axis(outputs["sequence_output"].numpy(), positions[..., None], axis=1)
    x = x @ head.transform_kernel.numpy() + head.transform_bias.numpy()
    x = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
    x = x * head.layer_norm.gamma.numpy() + head.layer_norm.beta.numpy()
    table = model.encoder.embeddings.word_embeddings.numpy()
    expected = x @ table.T + head.output_bias.numpy()
    np.testing.assert_allclose(outputs["mlm_logits"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("layers", "groups", "used"),
    [(12, 1, [0] * 12), (6, 2, [0, 0, 0, 1, 1, 1]), (5, 2, [0, 0, 0, 1, 1]), (22, 22, range(22))],
)
def test_each_layer_uses_its_group(layers, groups, used, monkeypatch):
    """Oracle: int(layer / layers * groups) of google-research/albert, in exact arithmetic."""
    config = dataclasses.replace(SMALL, num_hidden_layers=layers, num_hidden_groups=groups)
    encoder = BertEncoder(config)
    calls = []
    for index, block in enumerate(encoder.blocks):
        monkeypatch.setattr(block, "call", _recorder(block.call, calls, index))
    outputs = encoder(random_inputs(config, batch=1, length=3))["encoder_outputs"]
    assert calls == list(used)
    assert len(outputs) == layers


def test_gradients_of_shared_layers_add_up():
    """Oracle: the same weights without sharing; masked-LM and sentence-order losses."""
    separate = BertPretrainer(dataclasses.replace(SMALL, num_hidden_groups=None))
    shared = BertPretrainer(SMALL)
    randomize(shared)
    values = {weight.path: weight for weight in shared.weights}
    for weight in separate.weights:
        weight.assign(values[re.sub(r"layer_\d", "layer_0", weight.path)])
    positions = np.array([[1, 4], [0, 2]], np.int32)
    batch = random_inputs(SMALL, batch=2) | {
        "masked_lm_positions": positions,
        "masked_lm_ids": positions + 7,
        "masked_lm_weights": np.ones((2, 2), np.float32),
        "next_sentence_labels": np.array([1, 0]),
        "example_weights": np.ones(2, np.float32),
    }
    found, parts = _gradients(shared, batch), _gradients(separate, batch)
    expected = collections.defaultdict(float)
    for path, gradient in parts.items():
        expected[re.sub(r"layer_\d", "layer_0", path)] += gradient
    assert found.keys() == expected.keys()
    for path, gradient in expected.items():
        np.testing.assert_allclose(found[path], gradient, rtol=1e-3, atol=1e-3, err_msg=path)


def _gradients(model, batch: dict) -> dict[str, np.ndarray]:
    with tf.GradientTape() as tape:
        sums = PretrainingObjective().sums(model, batch, training=False)
        loss = sums["masked_lm_loss"] + sums["next_sentence_loss"]
    weights = model.trainable_weights
    gradients = tape.gradient(loss, [weight.value for weight in weights])
    dense = [tf.convert_to_tensor(gradient).numpy() for gradient in gradients]
    return {weight.path: x for weight, x in zip(weights, dense, strict=True)}


def _recorder(call, calls: list, index: int):
    def recorded(x, attention_mask, seeds=None, training=None):
        calls.append(index)
        return call(x, attention_mask, seeds=seeds, training=training)

    return recorded

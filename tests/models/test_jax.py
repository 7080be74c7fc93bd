"""The layers and models on Keras' JAX backend."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("jax", reason="needs the extra tpu-check")

PROGRAM = """
import json
import sys

import keras
import numpy as np
from bert_tf.config import BertConfig
from bert_tf.layers.fused import cross_entropy
from bert_tf.layers.padding import token_places
from bert_tf.models.pretrainer import BertPretrainer


def loss_and_gradient_norms(rematerialize, dropout, capacity):
    config = BertConfig(
        50, 32, 2, 2, 64, max_position_embeddings=64,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )
    generator = np.random.default_rng(0)
    batch = {
        "input_word_ids": generator.integers(5, 50, (4, 16)),
        "input_mask": np.repeat([[1] * 10 + [0] * 6], 4, axis=0),
        "input_type_ids": generator.integers(0, 2, (4, 16)),
        "masked_lm_positions": generator.integers(1, 10, (4, 3)),
        "masked_lm_ids": generator.integers(5, 50, (4, 3)),
        "next_sentence_labels": np.array([0, 1, 0, 1]),
        "dropout_seed": np.array([3, -4], np.int32),
    }
    if capacity:
        batch["token_places"] = token_places(batch["input_mask"], capacity)
    model = BertPretrainer(config, rematerialize)
    for number, variable in enumerate(model.trainable_variables):
        values = np.random.default_rng(number).normal(0, 0.2, variable.shape)
        variable.assign(values.astype(np.float32))
    values = [variable.value for variable in model.trainable_variables]

    def loss():
        outputs = model(batch, training=True)
        words = cross_entropy(outputs["mlm_logits"], batch["masked_lm_ids"])
        pairs = cross_entropy(outputs["next_sentence_logits"], batch["next_sentence_labels"])
        return keras.ops.sum(words) + keras.ops.sum(pairs)

    if keras.backend.backend() == "jax":
        import jax

        def of_values(values):
            with keras.StatelessScope(zip(model.trainable_variables, values, strict=True)):
                return loss()

        value, gradients = jax.jit(jax.value_and_grad(of_values))(values)
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value = loss()
        gradients = map(tf.convert_to_tensor, tape.gradient(value, values))
    return [float(value), *(float(np.linalg.norm(gradient)) for gradient in gradients)]


print(json.dumps([loss_and_gradient_norms(*case) for case in json.loads(sys.argv[1])]))
"""
KEPT, SHORTENED, DROPPED, RECOMPUTED = (
    *(("none", 0.0, None), ("none", 0.0, 43)),
    *(("none", 0.3, None), ("selective", 0.3, None)),
)


def losses_and_gradient_norms(backend: str, *cases: tuple) -> list[list[float]]:
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(cases)],
        env=os.environ | {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(process.stdout)


def test_losses_and_gradients():
    """Oracles: the model on the TensorFlow backend; with dropout, the one that keeps its masks."""
    (expected,) = losses_and_gradient_norms("tensorflow", KEPT)
    kept, shortened, dropped, recomputed = losses_and_gradient_norms(
        "jax", KEPT, SHORTENED, DROPPED, RECOMPUTED
    )
    assert kept == pytest.approx(expected, rel=1e-4)
    assert shortened == pytest.approx(expected, rel=1e-4)
    assert recomputed == pytest.approx(dropped, rel=1e-4)

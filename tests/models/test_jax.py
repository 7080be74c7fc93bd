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

config = BertConfig(
    vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=64, max_position_embeddings=64,
    hidden_dropout_prob=float(sys.argv[2]), attention_probs_dropout_prob=float(sys.argv[2]),
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
if sys.argv[3]:
    batch["token_places"] = token_places(batch["input_mask"], int(sys.argv[3]))
model = BertPretrainer(config, sys.argv[1])
for number, variable in enumerate(model.trainable_variables):
    values = np.random.default_rng(number).normal(0, 0.2, variable.shape)
    variable.assign(values.astype(np.float32))


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

    values = [variable.value for variable in model.trainable_variables]
    value, gradients = jax.jit(jax.value_and_grad(of_values))(values)
else:
    import tensorflow as tf

    with tf.GradientTape() as tape:
        value = loss()
    gradients = tape.gradient(value, [variable.value for variable in model.trainable_variables])
    gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
found = [float(value), *(float(np.linalg.norm(gradient)) for gradient in gradients)]
print(json.dumps(found))
"""


def loss_and_gradient_norms(
    backend: str, rematerialize: str, dropout: float, capacity: str = ""
) -> list[float]:
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, rematerialize, str(dropout), capacity],
        env=os.environ | {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(process.stdout)


def test_loss_and_gradients_equal_those_of_tensorflow():
    """Oracle: the same model on the TensorFlow backend."""
    expected = loss_and_gradient_norms("tensorflow", "none", 0.0)
    for capacity in ("", "43"):
        found = loss_and_gradient_norms("jax", "none", 0.0, capacity)
        assert found == pytest.approx(expected, rel=1e-4)


def test_recomputing_draws_the_same_masks():
    """Oracle: the JAX gradients of the model that keeps its masks."""
    expected = loss_and_gradient_norms("jax", "none", 0.3)
    assert loss_and_gradient_norms("jax", "selective", 0.3) == pytest.approx(expected, rel=1e-4)

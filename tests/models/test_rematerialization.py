"""Rematerialized layers have the same gradients, with dropout, and need less memory."""

import dataclasses
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from encoders import random_inputs
from tensorflow.compiler.xla.service import hlo_pb2

from bert_tf.config import BertConfig
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer

pytestmark = pytest.mark.usefixtures("optimized_graphs")

CONFIG = BertConfig(50, 32, 3, 2, 64, max_position_embeddings=64)


@functools.cache
def make_step(rematerialize: str, mode: str, groups: int | None = None, layers: int | None = None):
    """A function from inputs to loss and gradients; its model always has the same weights."""
    keras.utils.set_random_seed(0)
    layers = layers or CONFIG.num_hidden_layers
    config = dataclasses.replace(CONFIG, num_hidden_groups=groups, num_hidden_layers=layers)
    if mode == "xla":  # Attention's dropout is enough, and compiles faster.
        config = dataclasses.replace(config, hidden_dropout_prob=0.0)
    model = BertEncoder(config, rematerialize)

    def step(inputs):
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True)
            loss = tf.reduce_sum(tf.sin(outputs["sequence_output"]))
            loss += tf.reduce_sum(outputs["pooled_output"])
        gradients = tape.gradient(loss, [weight.value for weight in model.trainable_weights])
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]

    return step if mode == "eager" else tf.function(step, jit_compile=mode == "xla")


@functools.cache
def everything_kept(mode: str, groups: int | None, layers: int | None):
    """The loss and the gradients of the model that keeps everything."""
    return make_step("none", mode, groups, layers)(make_inputs())


def make_inputs(batch: int = 16, length: int = 64) -> dict:
    inputs = random_inputs(CONFIG, batch, length) | {"dropout_seed": np.array([7, -8])}
    return {name: tf.constant(value, tf.int32) for name, value in inputs.items()}


@pytest.mark.parametrize("kind", ["selective", "layers"])
@pytest.mark.parametrize(
    ("mode", "groups", "layers"), [("eager", None, None), ("graph", 2, None), ("xla", None, 1)]
)
@pytest.mark.slow
def test_gradients_equal_those_without_it(mode, groups, layers, kind):
    """Oracle: the model that keeps everything, with the same dropout."""
    loss, gradients = everything_kept(mode, groups, layers)
    other_loss, other_gradients = make_step(kind, mode, groups, layers)(make_inputs())
    assert float(loss) == pytest.approx(float(other_loss), rel=1e-6)
    for gradient, other in zip(gradients, other_gradients, strict=True):
        np.testing.assert_allclose(other, gradient, rtol=0, atol=1e-6 * np.abs(gradient).max())


def test_without_a_seed_the_second_computation_drops_the_same():
    """Oracle: a difference quotient along the gradient, with the generator's state held fixed."""
    model = BertEncoder(CONFIG, rematerialize="layers")
    inputs = make_inputs(batch=4, length=16)
    del inputs["dropout_seed"]
    state = model.seed_generator.state
    start = state.numpy()
    weight = model.blocks[0].output_kernel

    def loss():
        state.assign(start)
        return tf.reduce_sum(tf.sin(model(inputs, training=True)["sequence_output"]))

    with tf.GradientTape() as tape:
        value = loss()
    gradient = tape.gradient(value, weight.value)
    assert np.array_equal(state.numpy(), start + [0, 1])
    direction = gradient / tf.norm(gradient)
    weight.assign_add(direction * 1e-2)
    above = loss()
    weight.assign_sub(direction * 2e-2)
    assert float(above - loss()) / 2e-2 == pytest.approx(float(tf.norm(gradient)), rel=0.01)


@pytest.mark.slow
def test_it_needs_less_memory():
    """Oracle: XLA's allocations for the compiled step, without weights, inputs and results."""

    def temporary_bytes(rematerialize: str) -> int:
        step = make_step(rematerialize, "xla", layers=2)
        compiled = step.experimental_get_compiler_ir(make_inputs())
        proto = hlo_pb2.HloProto.FromString(compiled(stage="optimized_hlo_proto_serialized"))
        others = ("is_entry_computation_parameter", "is_constant", "maybe_live_out")
        return sum(
            allocation.size
            for allocation in proto.buffer_assignment.buffer_allocations
            if not any(getattr(allocation, name) for name in others)
        )

    everything = temporary_bytes("none")
    assert temporary_bytes("selective") < 0.85 * everything
    assert temporary_bytes("layers") < 0.65 * everything


def test_the_pretrainer_passes_it_on_and_saves_it():
    """Oracle: the attribute of the encoder, before and after a round trip through the config."""
    model = BertPretrainer(CONFIG, rematerialize="layers")
    assert model.encoder.rematerialize == "layers"
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(model))
    assert copy.encoder.rematerialize == "layers"
    assert BertPretrainer(CONFIG).encoder.rematerialize == "none"
    assert "rematerialize" not in CONFIG.to_dict()

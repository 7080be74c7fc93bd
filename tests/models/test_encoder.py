"""The encoder against KerasHub, against real trained weights, and against itself when padded."""

import dataclasses

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.models.encoder import BertEncoder
from bert_tf.presets import PRESETS, preset_config

SMALL = BertConfig(
    vocab_size=101,
    hidden_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=80,
    max_position_embeddings=40,
)


def randomize(model: keras.Model, seed: int = 0) -> None:
    """Gives every weight a random value, so that no bias or normalization is left out of a test."""
    generator = np.random.default_rng(seed)
    for weight in model.weights:
        values = generator.normal(0.0, 0.2, weight.shape)
        weight.assign(values + weight.path.endswith("gamma"))


def random_inputs(config: BertConfig, batch: int = 3, length: int = 17) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(1)
    mask = np.arange(length) < generator.integers(length // 2, length + 1, (batch, 1))
    return {
        "input_word_ids": generator.integers(0, config.vocab_size, (batch, length)) * mask,
        "input_mask": mask.astype(np.int32),
        "input_type_ids": generator.integers(0, 2, (batch, length)) * mask,
    }


def copy_to_keras_hub(encoder: BertEncoder, backbone: keras_hub.models.BertBackbone) -> None:
    """Sets KerasHub's variables from ours, splitting the fused projection."""
    heads = encoder.config.num_attention_heads
    width = encoder.config.hidden_size

    def assign(layer, *values):
        for weight, value in zip(layer.weights, values, strict=True):
            weight.assign(np.reshape(value, weight.shape))

    embeddings = encoder.embeddings
    backbone.token_embedding.embeddings.assign(embeddings.word_embeddings)
    backbone.get_layer("position_embedding").weights[0].assign(embeddings.position_embeddings)
    backbone.get_layer("segment_embedding").weights[0].assign(embeddings.type_embeddings)
    assign(backbone.get_layer("embeddings_layer_norm"), *embeddings.layer_norm.get_weights())
    for index, block in enumerate(encoder.blocks):
        theirs = backbone.get_layer(f"transformer_layer_{index}")
        attention = theirs._self_attention_layer
        kernels = np.split(block.attention.qkv_kernel.numpy(), 3, axis=1)
        biases = np.split(block.attention.qkv_bias.numpy(), 3)
        parts = (attention.query_dense, attention.key_dense, attention.value_dense)
        for dense, kernel, bias in zip(parts, kernels, biases, strict=True):
            assign(dense, kernel.reshape(width, heads, -1), bias.reshape(heads, -1))
        assign(
            attention.output_dense,
            block.attention.output_kernel.numpy().reshape(heads, -1, width),
            block.attention.output_bias.numpy(),
        )
        assign(theirs._self_attention_layer_norm, *block.attention_norm.get_weights())
        assign(theirs._feedforward_intermediate_dense, *_dense(block, "intermediate"))
        assign(theirs._feedforward_output_dense, *_dense(block, "output"))
        assign(theirs._feedforward_layer_norm, *block.output_norm.get_weights())
    assign(backbone.get_layer("pooled_dense"), *_dense(encoder.pooler, "dense"))


def _dense(layer, name):
    return getattr(layer, f"{name}_kernel").numpy(), getattr(layer, f"{name}_bias").numpy()


def test_every_layer_equals_keras_hub_with_the_same_weights():
    # KerasHub computes the tanh form of GELU.
    config = dataclasses.replace(SMALL, hidden_act="gelu_new")
    encoder = BertEncoder(config)
    randomize(encoder)
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=config.vocab_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        hidden_dim=config.hidden_size,
        intermediate_dim=config.intermediate_size,
        max_sequence_length=config.max_position_embeddings,
    )
    copy_to_keras_hub(encoder, backbone)
    every_layer = keras.Model(
        backbone.inputs,
        [backbone.get_layer(f"transformer_layer_{i}").output for i in range(3)]
        + [backbone.output["pooled_output"]],
    )
    inputs = random_inputs(config)
    expected = every_layer(
        {
            "token_ids": inputs["input_word_ids"],
            "padding_mask": inputs["input_mask"],
            "segment_ids": inputs["input_type_ids"],
        }
    )
    outputs = encoder(inputs)
    found = [*outputs["encoder_outputs"], outputs["pooled_output"]]
    mask = inputs["input_mask"][..., None]
    for theirs, ours in zip(expected[:3], found[:3], strict=True):
        np.testing.assert_allclose(ours * mask, theirs * mask, atol=1e-5)
    np.testing.assert_allclose(found[3], expected[3], atol=1e-5)


def test_real_bert_tiny_gives_its_reference_outputs(shared_data):
    weights = np.load(shared_data / "weights/bert_tiny_sst2_encoder.npz")
    reference = np.load(shared_data / "weights/bert_tiny_sst2_encoder_reference.npz")
    encoder = BertEncoder(preset_config("tiny"))
    for index, block in enumerate(encoder.blocks):
        prefix = f"bert/encoder/layer_{index}"
        attention, own = f"{prefix}/attention", block.attention
        for kind in ("kernel", "bias"):
            parts = [
                weights[f"{attention}/self/{part}/{kind}"] for part in ("query", "key", "value")
            ]
            getattr(own, f"qkv_{kind}").assign(np.concatenate(parts, axis=-1))
            getattr(own, f"output_{kind}").assign(weights[f"{attention}/output/dense/{kind}"])
            inner = weights[f"{prefix}/intermediate/dense/{kind}"]
            getattr(block, f"intermediate_{kind}").assign(inner)
            getattr(block, f"output_{kind}").assign(weights[f"{prefix}/output/dense/{kind}"])
            getattr(encoder.pooler, f"dense_{kind}").assign(weights[f"bert/pooler/dense/{kind}"])
        for kind in ("gamma", "beta"):
            norm = weights[f"{attention}/output/LayerNorm/{kind}"]
            getattr(block.attention_norm, kind).assign(norm)
            getattr(block.output_norm, kind).assign(weights[f"{prefix}/output/LayerNorm/{kind}"])
    x = reference["embedding_output"][None]
    mask = np.ones((1, 1, 1, x.shape[1]), bool)
    for index, block in enumerate(encoder.blocks):
        x = block(x, mask)
        np.testing.assert_allclose(x[0], reference[f"layer_{index}_output"], atol=1e-5)
    np.testing.assert_allclose(encoder.pooler(x)[0], reference["pooled_output"], atol=1e-5)


@pytest.mark.parametrize(
    ("name", "count"), [("tiny", 4_385_920), ("base", 109_482_240), ("large", 335_141_888)]
)
def test_golden_parameter_counts(name, count, monkeypatch):
    """The published counts with pooler, vocabulary 30522."""
    zeros = keras.initializers.Zeros()  # drawing 335 million normal values takes ten seconds
    monkeypatch.setattr(keras.initializers, "TruncatedNormal", lambda stddev: zeros)
    assert BertEncoder(preset_config(name)).count_params() == count


def test_the_published_sizes_are_there():
    assert len(PRESETS) == 24 + 6
    assert preset_config("base") == BertConfig(vocab_size=30522)
    assert preset_config("L-2_H-128") == preset_config("tiny")


def test_padding_does_not_change_other_positions():
    encoder = BertEncoder(SMALL)
    randomize(encoder)
    inputs = random_inputs(SMALL, batch=2, length=9)
    inputs["input_mask"][:] = 1
    padded = {name: np.pad(value, ((0, 0), (0, 6))) for name, value in inputs.items()}
    padded["input_word_ids"][:, 9:] = 7
    short, long = encoder(inputs), encoder(padded)
    np.testing.assert_allclose(
        long["sequence_output"][:, :9], short["sequence_output"], rtol=0, atol=1e-5
    )
    np.testing.assert_allclose(long["pooled_output"], short["pooled_output"], rtol=0, atol=1e-5)


def test_the_two_forms_of_gelu_are_erf_and_tanh():
    from bert_tf.layers.initializers import activation

    x = np.linspace(-4, 4, 101).astype(np.float32)
    erf = 0.5 * x * (1 + tf.math.erf(x / np.sqrt(2.0)).numpy())
    tanh = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(activation("gelu")(x), erf, atol=1e-6)
    np.testing.assert_allclose(activation("gelu_new")(x), tanh, atol=1e-6)
    assert np.abs(erf - tanh).max() > 1e-4

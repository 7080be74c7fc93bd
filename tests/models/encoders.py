"""Random weights and inputs for the tests of encoders, and copying weights to KerasHub."""

import keras
import numpy as np

from bert_tf.config import BertConfig
from bert_tf.models.encoder import BertEncoder

SMALL = BertConfig(
    vocab_size=101,
    hidden_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=80,
    max_position_embeddings=40,
)


def randomize(model: keras.Model, seed: int = 0) -> None:
    """Sets all weights to random values, so that every bias and normalization is tested."""
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


def copy_to_keras_hub(encoder: BertEncoder, backbone, their_layers: list) -> None:
    """Copies our weights to KerasHub's variables, splitting the fused projection.

    Args:
        backbone: a BertBackbone or AlbertBackbone.
        their_layers: its transformer layers, in the order of `encoder.blocks`.
    """
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
    if encoder.config.embedding_size:
        assign(backbone.get_layer("embedding_projection"), *_dense(embeddings, "projection"))
    for block, theirs in zip(encoder.blocks, their_layers, strict=True):
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


def assert_equals_keras_hub(encoder: BertEncoder, backbone, layers: list, calls: int = 1) -> None:
    """Compares the output of every layer, and the pooled output, for the same weights.

    Args:
        backbone, layers: as in `copy_to_keras_hub`.
        calls: how often each layer is applied.
    """
    randomize(encoder)
    copy_to_keras_hub(encoder, backbone, layers)
    every_call = [node.outputs[0] for layer in layers for node in layer._inbound_nodes[-calls:]]
    model = keras.Model(backbone.inputs, [*every_call, backbone.output["pooled_output"]])
    inputs = random_inputs(encoder.config)
    names = {"word_ids": "token_ids", "mask": "padding_mask", "type_ids": "segment_ids"}
    *expected, pooled = model({names[name[6:]]: x for name, x in inputs.items()})
    outputs = encoder(inputs)
    mask = inputs["input_mask"][..., None]
    for theirs, ours in zip(expected, outputs["encoder_outputs"], strict=True):
        np.testing.assert_allclose(ours * mask, theirs * mask, atol=1e-5)
    np.testing.assert_allclose(outputs["pooled_output"], pooled, atol=1e-5)

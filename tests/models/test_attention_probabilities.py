"""Attention probabilities, against NumPy and against what the layers compute."""

import dataclasses

import numpy as np
import pytest
from encoders import SMALL, random_inputs, randomize

import bert_tf
from bert_tf.models.encoder import BertEncoder


def split_heads(x: np.ndarray) -> np.ndarray:
    """[B, S, H] -> [B, N, S, H/N]."""
    return x.reshape(*x.shape[:2], 4, 12).transpose(0, 2, 1, 3)


@pytest.mark.parametrize(
    "changes",
    [{}, {"num_hidden_groups": 1, "embedding_size": 16}, {"is_decoder": True}],
    ids=["bert", "albert", "decoder"],
)
def test_probabilities_are_those_of_every_layer(changes):
    """Oracles: the softmax in NumPy, from the input of each layer; with these probabilities and the
    layer's own values and output weights, NumPy computes what the layer computes."""
    encoder = BertEncoder(dataclasses.replace(SMALL, **changes))
    randomize(encoder)
    inputs = random_inputs(SMALL)
    found = bert_tf.attention_probabilities(encoder, inputs).numpy()
    assert found.shape == (3, 3, 4, 17, 17) and found.dtype == np.float32
    allowed = inputs["input_mask"].astype(bool)[:, None, None, :]
    if encoder.config.is_decoder:
        allowed = allowed & np.tri(17, dtype=bool)
    allowed = np.broadcast_to(allowed, found.shape[1:])
    np.testing.assert_allclose(found.sum(axis=-1), 1, atol=1e-6)
    assert not found[:, ~allowed].any() and found[:, allowed].all()
    embeddings = encoder.embeddings(inputs["input_word_ids"], inputs["input_type_ids"])
    layer_inputs = [embeddings, *encoder(inputs)["encoder_outputs"]]
    for layer, probabilities in enumerate(found):
        x = layer_inputs[layer].numpy()
        attention = encoder.blocks[0 if "num_hidden_groups" in changes else layer].attention
        kernel, bias, output_kernel, output_bias = attention.get_weights()
        query, key, value = map(split_heads, np.split(x @ kernel + bias, 3, axis=-1))
        scores = np.where(allowed, query @ key.swapaxes(2, 3) / np.sqrt(12), -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        expected = weights / weights.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(probabilities, expected, atol=1e-5)
        context = (probabilities @ value).transpose(0, 2, 1, 3).reshape(x.shape)
        output = attention(x, allowed)
        np.testing.assert_allclose(context @ output_kernel + output_bias, output, atol=1e-4)


def test_probabilities_in_mixed_precision():
    """Oracle: the probabilities in float32, as far as bfloat16 keeps them; their sums are exact."""
    encoder = BertEncoder(SMALL)
    mixed = BertEncoder(SMALL, dtype="mixed_bfloat16")
    randomize(encoder)
    randomize(mixed)
    inputs = random_inputs(SMALL)
    found = bert_tf.attention_probabilities(mixed, inputs).numpy()
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.sum(axis=-1), 1, atol=1e-6)
    exact = bert_tf.attention_probabilities(encoder, inputs).numpy()
    np.testing.assert_allclose(found, exact, atol=0.05)

"""The encoder: its sizes, shared layers, padding, decoders, and what its tokens attend to.

tests/weights/formats compare its outputs with those of transformers, KerasHub and the Model Garden.
"""

import dataclasses
import re

import numpy as np
import pytest
import tensorflow as tf
from encoders import SMALL, random_inputs, randomize

import bert_tf
from bert_tf.config import BertConfig
from bert_tf.models.encoder import BertEncoder
from bert_tf.presets import PRESETS, preset_config


@pytest.mark.parametrize(
    ("name", "vocab_size", "count"),
    [
        ("tiny", 30522, 4_385_920),
        ("base", 30522, 109_482_240),
        ("large", 30522, 335_141_888),
        ("albert-base", 30000, 11_683_584),
        ("albert-large", 30000, 17_683_968),
        ("albert-xlarge", 30000, 58_724_864),
        ("albert-xxlarge", 30000, 222_595_584),
    ],
)
def test_golden_parameter_counts(name, vocab_size, count):
    """Oracle: the published counts, with the pooler; Hugging Face's `AlbertModel` for ALBERT's."""
    with tf.Graph().as_default():  # where weights have shapes, but no values
        assert BertEncoder(preset_config(name, vocab_size)).count_params() == count


def test_there_is_a_preset_for_every_published_size():
    """Oracle: 24 miniatures, 6 names and 4 ALBERTs; the defaults of BERT base."""
    assert len(PRESETS) == 24 + 6 + 4
    assert preset_config("base") == BertConfig(vocab_size=30522)
    assert preset_config("L-2_H-128") == preset_config("tiny")


def test_padding_does_not_change_other_positions():
    """Oracle: the same sequences without padding."""
    encoder = randomize(BertEncoder(SMALL))
    inputs = random_inputs(SMALL, batch=2, length=9)
    inputs["input_mask"][:] = 1
    padded = {name: np.pad(value, ((0, 0), (0, 6))) for name, value in inputs.items()}
    padded["input_word_ids"][:, 9:] = 7
    short, long = encoder(inputs), encoder(padded)
    np.testing.assert_allclose(
        long["sequence_output"][:, :9], short["sequence_output"], rtol=0, atol=1e-5
    )
    np.testing.assert_allclose(long["pooled_output"], short["pooled_output"], rtol=0, atol=1e-5)


def decoder(**rates) -> BertEncoder:
    return randomize(BertEncoder(dataclasses.replace(SMALL, is_decoder=True, **rates)))


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_in_a_decoder_no_position_depends_on_later_ones(rate):
    """Oracle: the outputs before a later token was changed, bit for bit, and the outputs for a
    sequence of two tokens."""
    encoder = decoder(hidden_dropout_prob=rate, attention_probs_dropout_prob=rate)
    inputs = random_inputs(SMALL, batch=4, length=12)
    inputs["dropout_seed"] = np.array([5, 6], np.int32)
    outputs = encoder(inputs, training=True)["encoder_outputs"]
    for changed in (3, 7, 11):
        others = dict(inputs, input_word_ids=inputs["input_word_ids"].copy())
        others["input_word_ids"][:, changed] += 1
        for x, y in zip(encoder(others, training=True)["encoder_outputs"], outputs, strict=True):
            np.testing.assert_array_equal(x[:, :changed], y[:, :changed])
            assert np.abs(x[0, changed] - y[0, changed]).max() > 1e-3
    if not rate:
        two = {name: value[:, :2] for name, value in inputs.items() if name != "dropout_seed"}
        first = encoder(two)["sequence_output"]
        np.testing.assert_allclose(first, outputs[-1][:, :2], atol=1e-5)


def test_a_decoder_ignores_padding():
    """Oracle: the outputs before the padding's token was changed, bit for bit."""
    encoder, inputs = decoder(), random_inputs(SMALL, batch=2, length=9)
    inputs["input_mask"][:, 4] = 0
    other = dict(inputs, input_word_ids=inputs["input_word_ids"].copy())
    other["input_word_ids"][:, 4] += 1
    x, y = encoder(inputs)["sequence_output"], encoder(other)["sequence_output"]
    np.testing.assert_array_equal(np.delete(x, 4, axis=1), np.delete(y, 4, axis=1))


def test_a_decoder_pools_the_last_token():
    """Oracle: BERT's pooler, tanh of a dense layer, of the last token before the padding."""
    encoder, inputs = decoder(), random_inputs(SMALL)
    outputs = encoder(inputs)
    last = inputs["input_mask"].sum(axis=1) - 1
    read = outputs["sequence_output"].numpy()[np.arange(3), last]
    expected = np.tanh(read @ encoder.pooler.dense_kernel.numpy() + encoder.pooler.dense_bias)
    np.testing.assert_allclose(outputs["pooled_output"], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("layers", "groups", "used"),
    [(12, 1, [0] * 12), (6, 2, [0, 0, 0, 1, 1, 1]), (5, 2, [0, 0, 0, 1, 1]), (22, 22, range(22))],
)
def test_each_layer_uses_its_group(layers, groups, used):
    """Oracle: int(layer / layers * groups) of google-research/albert, in exact arithmetic."""
    sizes = dict(embedding_size=20, num_hidden_layers=layers, num_hidden_groups=groups)
    encoder = BertEncoder(dataclasses.replace(SMALL, **sizes))
    assert [encoder.blocks.index(encoder.block(layer)) for layer in range(layers)] == list(used)


def test_layers_that_share_weights_compute_what_others_do():
    """Oracle: as many layers of their own with these weights; shared gradients are sums."""
    config = dataclasses.replace(SMALL, num_hidden_layers=5, num_hidden_groups=2)
    shared = randomize(BertEncoder(config))
    separate = BertEncoder(dataclasses.replace(config, num_hidden_groups=None))
    source = {
        weight.path: re.sub(r"layer_(\d)", lambda found: f"layer_{int(found[1]) // 3}", weight.path)
        for weight in separate.weights
    }
    values = {weight.path: weight for weight in shared.weights}
    for weight in separate.weights:
        weight.assign(values[source[weight.path]])
    found, gradients = outputs_and_gradients(shared)
    expected, parts = outputs_and_gradients(separate)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    sums = dict.fromkeys(gradients, 0.0)
    for path, gradient in parts.items():
        sums[source[path]] += gradient
    for path, gradient in gradients.items():
        np.testing.assert_allclose(gradient, sums[path], rtol=1e-3, atol=1e-3, err_msg=path)


def outputs_and_gradients(encoder: BertEncoder) -> tuple[list, dict[str, np.ndarray]]:
    """Returns the outputs of all layers, and the gradients of a function of the last one."""
    with tf.GradientTape() as tape:
        outputs = encoder(random_inputs(SMALL, batch=2))
        loss = tf.reduce_sum(tf.sin(outputs["sequence_output"])) + outputs["pooled_output"][0, 0]
    weights = encoder.trainable_weights
    gradients = tape.gradient(loss, [weight.value for weight in weights])
    dense = [tf.convert_to_tensor(gradient).numpy() for gradient in gradients]
    return outputs["encoder_outputs"], {w.path: x for w, x in zip(weights, dense, strict=True)}


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
    encoder = randomize(BertEncoder(dataclasses.replace(SMALL, **changes)))
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
    encoder = randomize(BertEncoder(SMALL))
    mixed = randomize(BertEncoder(SMALL, dtype="mixed_bfloat16"))
    inputs = random_inputs(SMALL)
    found = bert_tf.attention_probabilities(mixed, inputs).numpy()
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.sum(axis=-1), 1, atol=1e-6)
    exact = bert_tf.attention_probabilities(encoder, inputs).numpy()
    np.testing.assert_allclose(found, exact, atol=0.05)

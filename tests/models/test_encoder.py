"""The encoder: its sizes, with padding, and as a decoder.

tests/weights/formats compare its outputs with those of transformers, KerasHub and the Model Garden.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from encoders import SMALL, random_inputs, randomize

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


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_in_a_decoder_no_position_depends_on_later_ones(rate):
    """Oracle: the outputs before a later token was changed, bit for bit, and the outputs for a
    sequence of two tokens."""
    config = dataclasses.replace(
        SMALL, is_decoder=True, hidden_dropout_prob=rate, attention_probs_dropout_prob=rate
    )
    encoder = BertEncoder(config)
    randomize(encoder)
    inputs = random_inputs(config, batch=4, length=12) | {"dropout_seed": np.array([5, 6])}
    inputs["dropout_seed"] = inputs["dropout_seed"].astype(np.int32)
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
    config = dataclasses.replace(SMALL, is_decoder=True)
    encoder = BertEncoder(config)
    randomize(encoder)
    inputs = random_inputs(config, batch=2, length=9)
    inputs["input_mask"][:, 4] = 0
    other = dict(inputs, input_word_ids=inputs["input_word_ids"].copy())
    other["input_word_ids"][:, 4] += 1
    x, y = encoder(inputs)["sequence_output"], encoder(other)["sequence_output"]
    np.testing.assert_array_equal(np.delete(x, 4, axis=1), np.delete(y, 4, axis=1))


def test_a_decoder_pools_the_last_token():
    """Oracle: BERT's pooler, tanh of a dense layer, of the last token before the padding."""
    config = dataclasses.replace(SMALL, is_decoder=True)
    encoder = BertEncoder(config)
    randomize(encoder)
    inputs = random_inputs(config)
    outputs = encoder(inputs)
    last = inputs["input_mask"].sum(axis=1) - 1
    read = outputs["sequence_output"].numpy()[np.arange(3), last]
    expected = np.tanh(read @ encoder.pooler.dense_kernel.numpy() + encoder.pooler.dense_bias)
    np.testing.assert_allclose(outputs["pooled_output"], expected, atol=1e-5)

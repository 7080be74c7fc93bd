"""The encoder: its sizes, arithmetic, shared layers, decoders, and what its tokens attend to.

tests/weights/formats compare its outputs with those of transformers, KerasHub and the Model Garden,
for rows with padding, decoders and shared layers, too.
"""

import dataclasses
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from encoders import MOBILE, SMALL, STILL, random_inputs, randomize

import bert_tf
from bert_tf.config import PRESETS, BertConfig, preset_config
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.task_model import BertTaskModel
from bert_tf.weights.names import training_flops

BATCH, LENGTH, PREDICTIONS = 2, 36, 5


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


def decoder(**rates) -> BertEncoder:
    return randomize(BertEncoder(dataclasses.replace(SMALL, is_decoder=True, **rates)))


def test_in_a_decoder_no_position_depends_on_later_ones():
    """Oracle: the outputs before a later token was changed, bit for bit, also with dropout."""
    encoder = decoder(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    inputs = random_inputs(SMALL, batch=4, length=12)
    inputs["dropout_seed"] = np.array([5, 6], np.int32)
    outputs = encoder(inputs, training=True)["encoder_outputs"]
    for changed in (3, 7, 11):
        others = dict(inputs, input_word_ids=inputs["input_word_ids"].copy())
        others["input_word_ids"][:, changed] += 1
        for x, y in zip(encoder(others, training=True)["encoder_outputs"], outputs, strict=True):
            np.testing.assert_array_equal(x[:, :changed], y[:, :changed])
            assert np.abs(x[:, changed] - y[:, changed]).max() > 1e-3


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
    outputs = encoder(inputs)
    np.testing.assert_array_equal(outputs["embeddings"], embeddings)
    layer_inputs = [embeddings, *outputs["encoder_outputs"]]
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


@pytest.mark.parametrize("left", ["head", "head pooler", "head pooler layer_1 layer_2"])
def test_what_is_frozen_is_frozen_in_a_file(left, tmp_path):
    """Oracle: the weights that the saved model trains."""
    model = BertTaskModel(SMALL, 2)
    layers = [model.encoder.embeddings, *model.encoder.blocks, model.encoder.pooler]
    model.encoder.trainable = False
    for layer in layers:
        layer.trainable = layer.name in left.split()
    inputs = {name: keras.Input([None], dtype="int32", name=name) for name in random_inputs(SMALL)}
    keras.Model(inputs, model(inputs)).save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    found, expected = ([x.path for x in y.trainable_weights] for y in (loaded, model))
    assert found == expected
    assert {path.split("/")[1] for path in found} == set(left.split())


def product_flops(graph: tf.Graph) -> int:
    """Adds up 2 m k n of all matrix products in a graph but those that only sum rows."""
    total = 0
    for operation in graph.get_operations():
        if operation.type in ("MatMul", "BatchMatMulV2"):
            flag = "transpose_a" if operation.type == "MatMul" else "adj_x"
            if operation.outputs[0].shape[-2] == 1:
                continue
            inner = operation.inputs[0].shape[-2 if operation.get_attr(flag) else -1]
            total += 2 * inner * math.prod(operation.outputs[0].shape)
    return total


def traced_flops(config: BertConfig, training: bool) -> float:
    """Returns the FLOPs per sequence in the graph of the model or of its gradients."""
    model = BertPretrainer(config)

    @tf.function
    def run(inputs):
        with tf.GradientTape() as tape:
            outputs = model(inputs)
            loss = tf.reduce_sum(outputs["mlm_logits"] ** 2)
            loss += tf.reduce_sum(outputs["next_sentence_logits"] ** 2)
        if not training:
            return loss
        return tape.gradient(loss, [weight.value for weight in model.trainable_weights])

    tokens = tf.TensorSpec([BATCH, LENGTH], tf.int32)
    inputs = dict.fromkeys(("input_word_ids", "input_mask", "input_type_ids"), tokens)
    inputs["masked_lm_positions"] = tf.TensorSpec([BATCH, PREDICTIONS], tf.int32)
    return product_flops(run.get_concrete_function(inputs).graph) / BATCH


@pytest.mark.parametrize(
    ("config", "training"),
    [
        (STILL, False),
        (dataclasses.replace(STILL, pruned_heads={1: [0, 3]}), True),
        # Sharing layers saves no arithmetic.
        (dataclasses.replace(STILL, embedding_size=16, num_hidden_groups=1), True),
        (MOBILE, True),
        (dataclasses.replace(MOBILE, key_query_shared_bottleneck=True), False),
        (dataclasses.replace(MOBILE, classifier_activation=False), False),
    ],
)
@pytest.mark.slow
def test_the_products_of_the_traced_graph(config, training):
    """Oracle: the shapes of the matrix products in TensorFlow's graph, forward and backward."""
    parts = 1 if training else 3
    assert traced_flops(config, training) == training_flops(config, LENGTH, PREDICTIONS) / parts

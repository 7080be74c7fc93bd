"""The folder to publish, and its archives as others load them."""

import functools
import http.server
import os
import pathlib
import shutil
import tarfile
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
import tf_keras
from support import assert_same_tensors, int32_only, save_run

from bert_tf.checkpoint import open_checkpoint
from bert_tf.config import BertConfig
from bert_tf.models.pretrainer import BertPretrainer
from export import bundle, classifier
from export.saved_models import write_archive
from tfrecords.vocabulary import Vocabulary, load_vocab

VOCAB = Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"))
CONFIG = BertConfig(len(VOCAB), 16, 1, 2, 32, max_position_embeddings=24)


def _write_something(run_folder: str, output_dir: str, license: str) -> None:
    """In place of a classifier."""
    assert (run_folder, license) == ("sst2", "mit")
    tf.saved_model.save(tf.Module(), output_dir)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    run = tmp_path_factory.mktemp("run")
    keras.utils.set_random_seed(0)
    save_run(run, BertPretrainer(CONFIG), VOCAB)
    output = tmp_path_factory.mktemp("bundle") / "release"
    with pytest.MonkeyPatch.context() as patch, int32_only():
        patch.setattr(classifier, "export_classifier", _write_something)
        options = dict(checkpoint=str(run), classifier="sst2", license="mit")
        bundle.run(bundle.Options(**options, output_dir=str(output)))
    return output


@pytest.fixture
def url(folder, tmp_path, monkeypatch):
    """The address of the folder on a server of this machine."""
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path))
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    with http.server.ThreadingHTTPServer(("localhost", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


def test_the_folder_is_complete(folder):
    """Oracle: the list in the help; the configuration and the vocabulary of the run."""
    models = ("classifier", "encoder", "preprocessor")
    names = [*models, *(f"{name}.tar.gz" for name in models)]
    names += ["README.md", "bert_config.json", "huggingface", "vocab.txt"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert BertConfig.from_json_file(str(folder / "bert_config.json")) == CONFIG
    assert load_vocab(str(folder / "vocab.txt")).tokens == VOCAB.tokens
    card = (folder / "README.md").read_text()
    assert 'license: "mit"' in card
    assert all(f"| `{name}` | " in card for name in names if "." not in name)


def test_hub_loads_the_archives_from_a_url(folder, url, run_card):
    """Oracle: the outputs of the folders, which the code of the card loads and calls."""
    text = tf_keras.Input([], dtype=tf.string)
    inputs = hub.KerasLayer(f"{url}/preprocessor.tar.gz")(text)
    outputs = hub.KerasLayer(f"{url}/encoder.tar.gz", trainable=True)(inputs)
    found = tf_keras.Model(text, outputs)(tf.constant(["a text", "another"]))
    expected = run_card(str(folder))["outputs"]
    for name in ("pooled_output", "sequence_output"):
        np.testing.assert_array_equal(found[name], expected[name])


def test_the_form_for_transformers_has_the_same_weights(folder):
    """Oracle: the weights of the encoder's SavedModel."""
    ours, theirs = (open_checkpoint(str(folder / name)) for name in ("encoder", "huggingface"))
    assert theirs.spec == ours.spec
    assert_same_tensors(theirs.tensors, ours.tensors)


def test_an_archive_depends_on_names_and_contents_only(folder, tmp_path):
    """Oracles: the bytes of an archive of a copy; the files that Python extracts."""
    copy = tmp_path / "copy"
    for path in sorted((folder / "encoder").rglob("*"), reverse=True):
        if path.is_file():
            target = copy / path.relative_to(folder / "encoder")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            os.utime(target, (1, 1))
    write_archive(f"{copy}/", str(tmp_path / "copy.tar.gz"))
    archive = folder / "encoder.tar.gz"
    assert (tmp_path / "copy.tar.gz").read_bytes() == archive.read_bytes()
    with tarfile.open(archive) as opened:
        assert {"saved_model.pb", "variables"} <= set(opened.getnames())
        assert {(m.mtime, m.uid, m.gid, m.uname) for m in opened} == {(0, 0, 0, "")}
        files = {m.name: opened.extractfile(m).read() for m in opened if m.isfile()}
    expected = [path for path in copy.rglob("*") if path.is_file()]
    assert files == {str(path.relative_to(copy)): path.read_bytes() for path in expected}

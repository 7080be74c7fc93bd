"""The folder to publish, model cards, archives, and what TensorFlow Serving reads."""

import functools
import http.server
import json
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

from bert_tf.config import BertConfig, ModelSpec
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.runs.run import Run
from bert_tf.training.reports import write_results
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.opening import open_checkpoint
from export import bundle, classifier, text_models
from export.saved_models import license_of, model_card, write_archive
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary, load_vocab

VOCAB = Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"))
CONFIG = BertConfig(len(VOCAB), 16, 1, 2, 32, max_position_embeddings=24)


def _write_something(run_folder: str, output_dir: str, license: str) -> None:
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
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path))
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    with http.server.ThreadingHTTPServer(("localhost", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


@pytest.mark.slow
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


CARD_VOCAB = Vocabulary((*SPECIAL_TOKENS, "a"))
CARD_CONFIG = BertConfig(6, 16, 1, 2, 32)


def test_the_card_says_what_the_run_knows(tmp_path):
    """Oracle: the values in the files of the run; quotes in the YAML are those of JSON."""
    run = Run(str(tmp_path))
    run.write(ModelSpec(CARD_CONFIG, CARD_VOCAB, True), {"input_file": "x*", "learning_rate": 0.25})
    write_results(run.file("eval_results.txt"), {"global_step": 7, "loss": 1.0 / 3})
    (tmp_path / "ckpt-7.index").touch()
    files = {"x1": 600, "x2": 700}
    records = [{"name": x, "of": "records in x*", "bytes": files[x]} for x in files]
    run.record_made_from([*records, {"name": "the teacher", "sha256": "1"}])
    facts = dict(license='other: "mine"', config=CARD_CONFIG, run=Run(run.path))
    folder, code = "/some/where/my encoder/", 'load("FOLDER")'
    card = model_card(folder, "kind", "About.", code, CARD_VOCAB, True, **facts)
    _, front, body = card.split("---\n", 2)
    assert json.loads(front.splitlines()[0].removeprefix("license: ")) == 'other: "mine"'
    for line in (
        "# my encoder: kind",
        'load("my encoder")',
        "| hidden_size | 16 |",
        "| tokens | 6 |",
        f"| SHA-256 of the tokens | {CARD_VOCAB.sha256} |",
        "| input_file | x* |",
        "| records in x* | 2 files, 1,300 bytes |",
        "| learning_rate | 0.25 |",
        "| loss | 0.333333 |",
    ):
        assert line in body.splitlines()


@pytest.mark.parametrize(
    ("card", "given", "expected"),
    [
        ('---\ntags:\n- bert\nlicense: "mit"\n---\nlicense: x', None, "mit"),
        ("---\nlicense: mit \n---\n", "apache-2.0", "apache-2.0"),
        ("---\nlicense:\n- mit\n---\n", None, None),
        ("license: mit", None, None),
    ],
)
def test_the_license_is_that_of_the_source(card, given, expected, tmp_path):
    """Oracle: the YAML of the card beside the checkpoint."""
    spec = ModelSpec(CARD_CONFIG, CARD_VOCAB, True)
    source = Checkpoint("", "", spec, {}, config_file=f"{tmp_path}/config.json")
    assert license_of(given, source) == given == license_of(given, None)
    (tmp_path / "README.md").write_text(card)
    assert license_of(given, source) == expected


def test_a_card_without_a_run_has_no_empty_section():
    """Oracles: the headings; the name that the user gave."""
    for source, more in ((None, []), ("hf:org/name (Hugging Face)", ["## Weights"])):
        card = model_card("x", "kind", "", "", CARD_VOCAB, False, converted_from=source)
        headings = [line for line in card.splitlines() if line.startswith("## ")]
        assert headings == ["## How to load it", "## Vocabulary", *more, "## License"]
        table = f"\n## Weights\n\n| | |\n|---|---|\n| converted from | {source} |"
        assert (table in card) == bool(source)


PAIR = [tf.TensorSpec([None], tf.string, name) for name in ("text", "text_b")]
# What tensorflow-serving-api 2.21 writes for a PredictionLog with predict_log.request:
#   request.model_spec.signature_name = "serving_default"
#   request.inputs[name].CopyFrom(tf.make_tensor_proto(["a text"]))  # for "text" and "text_b"
# with SerializeToString(deterministic=True); the order of the inputs, a map, is free.
GOLDEN = bytes.fromhex(
    "324b0a490a111a0f73657276696e675f64656661756c74"
    "12180a0474657874121008071204120208014206612074657874"
    "121a0a06746578745f62121008071204120208014206612074657874"
)


def test_requests_are_those_of_tensorflow_serving():
    """Oracle: bytes written with tensorflow-serving-api."""
    inputs = {name: tf.constant(["a text"]) for name in ("text", "text_b")}
    assert text_models.warmup_request(inputs) == GOLDEN
    short, long = text_models.warmup_requests(PAIR)
    assert short == GOLDEN
    assert long.count(b"many words") == 2 * 512


def test_batching_parameters():
    """Oracle: the fields of `BatchingParameters` in tensorflow_serving's
    session_bundle_config.proto, each an Int64Value in text format."""
    lines = text_models.batching_files(PAIR)[text_models.BATCHING].splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        "max_batch_size { value: 128 }",
        "batch_timeout_micros { value: 1000 }",
        "max_enqueued_batches { value: 100 }",
    ]
    # Requests with two and with three choices cannot be joined.
    choices = tf.TensorSpec([None, None], tf.string, "choices")
    assert text_models.batching_files([PAIR[0], choices]) == {}

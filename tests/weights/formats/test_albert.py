"""ALBERTs with a SentencePiece model, as the published ones have, from text to answers and back."""

import base64
import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax

import bert_tf
from bert_tf.conversion.conversion_options import ConversionOptions
from bert_tf.conversion.converting import convert
from bert_tf.models.task_model import BertTaskModel
from bert_tf.text.sentencepiece import make_tokenizer
from bert_tf.text.tokenizer_files import TokenizerFiles
from bert_tf.vocabulary.building import build_vocab
from bert_tf.vocabulary.vocabulary_options import VocabularyOptions
from bert_tf.weights.checkpoint import load_weights
from bert_tf.weights.opening import open_checkpoint
from export import bundle, classifier, lite
from tfrecords.sentencepiece import scored_pieces
from tfrecords.vocabulary import load_vocab

FAMILY = pathlib.Path(__file__).parent / "family"
MODEL = FAMILY / "AlbertForMaskedLM" / "spiece.model"
GOLDEN = json.loads((FAMILY.parent / "albert_tokens.json").read_text("utf-8"))
TEXTS = ["a good film (1,000)", "``don't'' the bad store."]
NAMES = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folders of a pre-trained model and of a classifier."""
    path = tmp_path_factory.mktemp("albert")
    for name in ("AlbertForMaskedLM", "AlbertForSequenceClassification"):
        shutil.copytree(FAMILY / name, path / name)
    shutil.copy(MODEL, path / "AlbertForSequenceClassification")
    return tuple(str(path / name) for name in sorted(os.listdir(path)))


def published(path: pathlib.Path, config: dict, added: list, with_model: bool) -> TokenizerFiles:
    """The tokenizer's files of a published folder, with or without its spiece.model."""
    pieces, charsmap = scored_pieces(MODEL.read_bytes())
    scores = [[x, y - 100 if x[-1] == "," and x[-2:-1].isdigit() else y] for x, y in pieces]
    special = [dict(id=i, content=name, special=True) for i, name in enumerate(NAMES)]
    charsmap = base64.b64encode(charsmap).decode()
    steps = [{"type": "NFKD"}, {"type": "Precompiled", "precompiled_charsmap": charsmap}]
    whole = {
        "added_tokens": special + added,
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "model": {"type": "Unigram", "unk_id": 1, "vocab": scores},
    }
    path.mkdir()
    (path / "tokenizer.json").write_text(json.dumps(whole))
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    if with_model:
        shutil.copy(MODEL, path)
    return TokenizerFiles(str(path))


@pytest.mark.parametrize("with_model", [True, False])
@pytest.mark.parametrize("name", [name for name in GOLDEN if name != "texts"])
def test_files_say_how_text_is_split(name, with_model, tmp_path):
    """Oracle: the ids of transformers 5.24 for the same files."""
    case = GOLDEN[name]
    files = published(tmp_path / "a", case["config"], case["added"], with_model)
    assert files.vocab.sentencepiece == MODEL.read_bytes() or not with_model
    ours = make_tokenizer(files.vocab, files.lower_case, True)
    assert ours.tokenize_flat(GOLDEN["texts"]).to_list() == case["ids"]


@pytest.mark.slow
def test_answers_are_those_of_the_model(folders, tmp_path):
    """Oracle: the model, which computes what transformers' does, for the tokenizer's ids."""
    pretrained, classifies = folders
    loaded = bert_tf.load(pretrained)
    assert repr(loaded.tokenizer) == "SentencePieceTokenizer(178 tokens, lower-cases text)"
    checkpoint = open_checkpoint(classifies)
    model = BertTaskModel(checkpoint.spec.config, 3)
    load_weights(classifies, checkpoint.tensors, model.weights)
    inputs = bert_tf.load_preprocessor(classifies, 32)(TEXTS)
    expected = softmax(model(inputs).numpy(), axis=-1)
    classifier.export_classifier(classifies, str(tmp_path / "saved"))
    lite.run(lite.Options(checkpoint=classifies, output_file=str(tmp_path / "a.tflite")))
    for path in (classifies, str(tmp_path / "saved"), str(tmp_path / "a.tflite")):
        answers = bert_tf.load_predictor(path)(TEXTS)
        found = [[answer["probabilities"][x] for x in "xyz"] for answer in answers]
        np.testing.assert_allclose(found, expected, atol=1e-5)
    fill = bert_tf.load_mask_filler(pretrained, top_k=178)
    ids = [loaded.tokenizer.vocab.cls_id, *GOLDEN["published"]["ids"][5][:3], 3]
    row = {"input_word_ids": [ids], "input_mask": [[1] * 5], "input_type_ids": [[0] * 5]}
    row = {name: np.array(x) for name, x in row.items()} | {"masked_lm_positions": [[2]]}
    logits = loaded.model(row)["mlm_logits"][0, 0].numpy()
    guesses = fill("the [MASK] sea")["masks"][0]
    tokens = loaded.tokenizer.vocab.tokens
    assert guesses[0]["token"] == tokens[logits.argmax()]
    np.testing.assert_allclose(
        [guess["probability"] for guess in guesses], np.sort(softmax(logits))[::-1], rtol=1e-4
    )


@pytest.mark.slow
def test_exports_hold_the_model(folders, tmp_path):
    """Oracle: the ids of transformers, from a SavedModel and from what is read of it."""
    path = str(tmp_path / "bundle")
    bundle.run(bundle.Options(checkpoint=folders[0], output_dir=path, max_seq_length=16))
    saved = tf.saved_model.load(f"{path}/preprocessor")
    expected = [GOLDEN["published"]["ids"][i] for i in (0, 1, 2)]
    texts = tf.constant(GOLDEN["texts"][:3])
    assert saved.tokenize(texts).merge_dims(1, 2).to_list() == expected
    for name in ("preprocessor", "encoder", "huggingface"):
        layer = bert_tf.load_preprocessor(f"{path}/{name}")
        assert layer.tokenizer.tokenize_flat(texts).to_list() == expected
    for name in ("spiece.model", "huggingface/spiece.model", "preprocessor/assets/spiece.model"):
        assert pathlib.Path(path, name).read_bytes() == MODEL.read_bytes()


@pytest.mark.slow
def test_runs_keep_the_model(folders, tmp_path):
    """Oracle: the file beside the weights, and the tokenizer of the source."""
    rows = [{"text": text, "label": label} for label, text in enumerate(TEXTS)] * 4
    flags = dict(max_seq_length=16, num_train_epochs=1, train_batch_size=4)
    run = str(tmp_path / "run")
    bert_tf.finetune(folders[0], rows, dev=rows, output_dir=run, **flags)
    for path in (run, f"{run}/best"):
        assert pathlib.Path(path, "spiece.model").read_bytes() == MODEL.read_bytes()
        assert not os.path.exists(f"{path}/vocab.txt")
    assert bert_tf.load(run).tokenizer == bert_tf.load(folders[0]).tokenizer
    pathlib.Path(run, "best", "spiece.model").write_bytes(MODEL.read_bytes() + b"\x22\x00")
    with pytest.raises(ValueError, match="best/spiece.model has changed since it was written"):
        bert_tf.load(run)


@pytest.mark.parametrize("to", ["huggingface", "run", "google"])
def test_conversions_keep_the_model(folders, tmp_path, to):
    """Oracle: the file and the specification of the source."""
    path = str(tmp_path / to)
    convert(
        ConversionOptions(
            from_=folders[0],
            to=to,
            output_dir=path,
            allow_missing="encoder/pooler/*,pretrainer/next_sentence/*",
        )
    )
    assert pathlib.Path(path, "spiece.model").read_bytes() == MODEL.read_bytes()
    again, source = open_checkpoint(path).spec, open_checkpoint(folders[0]).spec
    assert (again.vocab, again.lower_case) == (source.vocab, source.lower_case)


def test_transformers_reads_what_we_write(folders, tmp_path):
    """Oracle: transformers itself, where there is one: the ids it gives the published files."""
    python = os.environ.get("TRANSFORMERS_PYTHON")
    if not python:
        pytest.skip("needs TRANSFORMERS_PYTHON, a Python that has transformers")
    path = str(tmp_path / "written")
    convert(ConversionOptions(from_=folders[0], to="huggingface", output_dir=path))
    code = (
        "import json, sys, transformers\n"
        "read = transformers.AutoTokenizer.from_pretrained(sys.argv[1])\n"
        "texts = json.load(sys.stdin)\n"
        "print(json.dumps([read.encode(x, add_special_tokens=False) for x in texts]))"
    )
    texts = json.dumps(GOLDEN["texts"])
    command = [python, "-c", code, path]
    done = subprocess.run(command, input=texts, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == GOLDEN["published"]["ids"]


def test_records_are_made_with_the_model(tmp_path):
    """Oracle: the tokens of the text, which the records' words join to again."""
    (tmp_path / "a.txt").write_text("A good film (1,000).\nThe sea is never full.\nRain.\n" * 9)
    record = str(tmp_path / "a.tfrecord")
    bert_tf.create_examples(
        input_file=str(tmp_path / "a.txt"),
        output_file=record,
        vocab_file=str(MODEL),
        max_seq_length=32,
    )
    manifest = json.loads((tmp_path / "a.manifest.json").read_text())
    assert base64.b64decode(manifest["tokenizer"]["spiece.model"]) == MODEL.read_bytes()
    example = tf.train.Example.FromString(next(iter(tf.data.TFRecordDataset(record))).numpy())
    feature = example.features.feature
    ids = list(feature["input_ids"].int64_list.value)
    places = feature["masked_lm_positions"].int64_list.value
    labels = feature["masked_lm_ids"].int64_list.value
    weights = feature["masked_lm_weights"].float_list.value
    for place, label, weight in zip(places, labels, weights, strict=True):
        if weight:
            ids[place] = label
    segments = load_vocab(str(MODEL)).decode(ids).removeprefix("[CLS] ").split(" [SEP]")
    text = "a good film (1,000). the sea is never full. rain. " * 9
    assert len(segments) == 3 and all(segment.strip() in text for segment in segments)


def test_what_takes_word_pieces_alone_says_so(folders, tmp_path):
    """Oracle: one line that names the file."""
    message = "spiece.model is a SentencePiece model, but this takes word pieces only"
    options = VocabularyOptions(
        input_file=str(MODEL.parent.parent / "README.md"),
        output_file=str(tmp_path / "vocab.txt"),
        extend_vocab=str(MODEL),
        num_new_tokens=1,
    )
    with pytest.raises(ValueError, match=message):
        build_vocab(options)

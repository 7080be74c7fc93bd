"""The exported preprocessor, against the tokenizer and the packing it was made from."""

import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
import tf_keras
from support import one_line

import bert_tf
from bert_tf.text.bert_preprocessor import pack_segments
from bert_tf.text.tokenizer import WordPieceTokenizer
from export import check, preprocessor, saved_models
from tfrecords.vocabulary import load_vocab

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "abcdefghijklmnopqrstuvwxyzäöüßαβγσς中文のé0123456789!?.,'[]$"
VOCAB = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS), "hello", "world", "##able"]
TEXTS = [
    "Hello, world!",
    "",
    "unbelievable Äpfel \u00c9TUDE e\u0301tude ΑΒΓΣ σς",
    "中文 のの mixed中with文latin",
    "literal [MASK] and [SEP] stay text",
    "zero\u200bwidth\u00adhyphen \u0000 nul\u0007bell\ttab\r\nline \u2028 \u3000 space \ufffd",
    "family 👨\u200d👩\u200d👧 \U0001f468 flag 🇩🇪",
    "x" * 250 + " " + "é" * 201 + " " + "中" * 220,
    b"broken \xff\xfe bytes \xc3",
    "$10,000.99!?''",
    "word " * 60,
]


@pytest.fixture(scope="module")
def vocab_file(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def folder(vocab_file, tmp_path_factory) -> str:
    folder = str(tmp_path_factory.mktemp("export") / "preprocessor")
    options = dict(vocab_file=vocab_file, do_lower_case=True, max_seq_length=32)
    preprocessor.run(preprocessor.Options(output_dir=folder, **options))
    return folder


@pytest.fixture(scope="module")
def loaded(folder):
    return hub.load(folder)


@pytest.fixture(scope="module")
def tokenizer(vocab_file) -> WordPieceTokenizer:
    return WordPieceTokenizer(load_vocab(vocab_file))


def assert_equal(actual, expected):
    """Both are nests of dense or ragged tensors; structure, types and values must be equal."""
    actual, expected = tf.nest.flatten(actual), tf.nest.flatten(expected)
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        assert type(a) is type(b) and a.dtype == b.dtype
        if isinstance(a, tf.RaggedTensor):
            assert a.to_list() == b.to_list()
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_root_equals_tokenizer_and_packing(folder, loaded, tokenizer):
    """Oracle: the tokenizer and the packing that were exported."""
    expected = pack_segments([tokenizer.tokenize_flat(TEXTS)], 32, tokenizer.vocab)
    assert_equal(loaded(TEXTS), expected)
    dataset = tf.data.Dataset.from_tensors(tf.constant(TEXTS)).map(loaded)
    assert_equal(next(iter(dataset)), expected)
    text = tf_keras.Input([], dtype=tf.string)
    layer = tf_keras.Model(text, hub.KerasLayer(folder)(text))
    assert_equal(layer(tf.constant(TEXTS)), expected)
    signature = loaded.signatures["serving_default"]
    assert_equal(signature(sentences=tf.constant(TEXTS)), expected)
    # In Keras 3.
    assert_equal(bert_tf.load_preprocessor(pathlib.Path(folder))(tf.constant(TEXTS)), expected)
    archive = shutil.make_archive(f"{folder}-packed", "gztar", folder)
    assert_equal(bert_tf.load_preprocessor(archive)(tf.constant(TEXTS)), expected)


def test_tokenize_equals_the_tokenizer(loaded, tokenizer):
    texts = tf.constant(TEXTS)
    assert_equal(hub.KerasLayer(loaded.tokenize)(texts), tokenizer.tokenize(texts))
    offsets = hub.KerasLayer(loaded.tokenize_with_offsets)(texts)
    assert_equal(offsets, tokenizer.tokenize_with_offsets(texts))
    assert [x.dtype for x in offsets] == [tf.int32, tf.int64, tf.int64]


def test_cased_vocabulary(vocab_file, tmp_path, monkeypatch):
    """Oracle: the cased tokenizer. Saving is the same for any casing."""
    modules = []
    monkeypatch.setattr(saved_models, "save_model", lambda module, *_, **__: modules.append(module))
    flags = dict(vocab_file=vocab_file, output_dir=str(tmp_path / "out"), do_lower_case=False)
    preprocessor.run(preprocessor.Options(**flags))
    tokenizer = WordPieceTokenizer(load_vocab(vocab_file), lower_case=False)
    assert_equal(modules[0].tokenize(TEXTS), tokenizer.tokenize(TEXTS))


@pytest.mark.parametrize("splits", [[0, 5, 2], [0, 1, 9], [0, -7, 2], [1, 1, 2]])
def test_row_splits_that_do_not_fit_are_an_error(loaded, splits):
    """Oracle: the rule of `tf.RaggedTensor`; 5 and -7 would end the process."""
    splits = tf.constant(splits, tf.int64)
    rows = tf.RaggedTensor.from_row_splits(tf.constant([5, 6]), splits, validate=False)
    for segments in ([rows], [rows, rows]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="row_splits|from_row_splits|Row"):
            loaded.bert_pack_inputs(segments, seq_length=tf.constant(16))


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("segments", [1, 2])
def test_bert_pack_inputs_takes_one_or_two_segments_of_either_rank(
    loaded, tokenizer, flat, segments
):
    ids = tokenizer.tokenize(TEXTS)
    inputs = [ids, tf.reverse(ids, [0])][:segments]
    if flat:
        inputs = [x.merge_dims(1, 2) for x in inputs]
    pack = hub.KerasLayer(loaded.bert_pack_inputs, arguments=dict(seq_length=16))
    assert_equal(pack(inputs), pack_segments(inputs, 16, tokenizer.vocab))
    length = tf.constant(9)
    outputs = loaded.bert_pack_inputs(inputs, seq_length=length)
    assert_equal(outputs, pack_segments(inputs, 9, tokenizer.vocab))
    # Without the argument, the length is the root's.
    assert_equal(loaded.bert_pack_inputs(inputs), pack_segments(inputs, 32, tokenizer.vocab))


def test_pairs_in_a_functional_model(loaded, tokenizer):
    """Oracle: the tokenizer and the packing, for the arguments of the layer."""
    texts = [tf.constant(TEXTS), tf.reverse(TEXTS, [0])]
    inputs = [tf_keras.Input([], dtype=tf.string) for _ in texts]
    tokenize = hub.KerasLayer(loaded.tokenize)
    pack = hub.KerasLayer(loaded.bert_pack_inputs, arguments={"seq_length": 16})
    model = tf_keras.Model(inputs, pack([tokenize(text) for text in inputs]))
    segments = [tokenizer.tokenize_flat(text) for text in texts]
    assert_equal(model(texts), pack_segments(segments, 16, tokenizer.vocab))


def test_the_folder_keeps_the_contract(folder, capsys):
    """Oracle: export.check, which passes on the Model Garden's own exports, too."""
    check.run(check.Options(saved_model_dir=folder))
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith(("WRONG", "advice"))] == []
    assert lines[-1] == "12 of 12 checks passed."


def test_the_code_of_the_card_runs(folder, tokenizer, run_card):
    """Oracle: the tokenizer and the packing."""
    segments = [tokenizer.tokenize_flat(texts) for texts in (["a question"], ["an answer"])]
    assert_equal(run_card(folder)["inputs"], pack_segments(segments, 64, tokenizer.vocab))


def test_bad_input_is_one_clear_line(folder, vocab_file, tmp_path):
    """Oracle: the line; nothing is written."""
    good = dict(vocab_file=vocab_file, output_dir=str(tmp_path / "out"), do_lower_case=True)
    for changes, message in (
        ({"output_dir": folder}, "not empty"),
        ({"vocab_file": "nowhere"}, "nowhere"),
        ({"max_seq_length": 2}, "--max_seq_length is 2"),
        ({"vocab_file": None}, "give --checkpoint or --vocab_file"),
    ):
        with one_line(message):
            preprocessor.run(preprocessor.Options(**good | changes))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a.onnx", "b.tflite"])
def test_a_folder_has_no_name_of_a_file(name, tmp_path):
    """Oracle: `load_predictor` reads files with these endings as ONNX and LiteRT models."""
    with pytest.raises(ValueError, match=f"{name} names a file, but a SavedModel is a folder: "):
        saved_models.check_output(str(tmp_path / name))

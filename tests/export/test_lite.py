"""LiteRT models, and all classifiers in single files, against the Keras models they came from."""

import dataclasses
import functools
import json
import os
import pathlib
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import calls_of, one_line, save_run

from bert_tf import predict
from bert_tf.config import EMBEDDING, BertConfig, Head, ModelSpec
from bert_tf.finetuning.task import make_model
from bert_tf.inference import single_file
from bert_tf.inference.predictor import open_predictor
from bert_tf.inference.single_file import CLASSIFIER, LiteFile, OnnxFile, open_single_file
from bert_tf.inference.text_embedder import load_embedder
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.task_model import BertTaskModel
from bert_tf.runs.run import Run
from bert_tf.text.bert_preprocessor import BertPreprocessor, pack_segments
from bert_tf.text.tokenizer import WordPieceTokenizer
from export import lite, lite_model, onnx, portable
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

VOCAB = Vocabulary((*SPECIAL_TOKENS, "a", "##b"))
CONFIG = BertConfig(400, 64, 1, 2, 128, max_position_embeddings=20, initializer_range=0.1)


def save(folder: str, model: keras.Model, head: Head | None = None) -> str:
    return save_run(folder, model, VOCAB if head else None, head=head)


@pytest.fixture(scope="module")
def pretrainer() -> BertPretrainer:
    keras.utils.set_random_seed(0)
    return BertPretrainer(dataclasses.replace(CONFIG, num_hidden_layers=2))


@pytest.mark.parametrize(
    ("quantize", "error", "size"),
    [("none", 1e-5, 1.0), ("float16", 5e-3, 0.55), ("int8", 0.2, 0.4)],
)
@pytest.mark.slow
def test_an_encoder_computes_what_the_model_computes(
    pretrainer, tmp_path, capsys, quantize, error, size
):
    """Oracles: the Keras model, which has the exact GELU; the size of its weights."""
    run, file = save(f"{tmp_path}/run", pretrainer), f"{tmp_path}/encoder.tflite"
    lite.run(lite.Options(checkpoint=run, output_file=file, quantize=quantize))
    inputs = portable.random_inputs(400, 20, seed=9)
    found = LiteFile(pathlib.Path(file).read_bytes()).run(inputs)
    expected = pretrainer.encoder(inputs)
    for name in ("pooled_output", "sequence_output"):
        np.testing.assert_allclose(found[name], expected[name], atol=error)
    weights = 4 * pretrainer.encoder.count_params()
    assert os.path.getsize(file) < size * weights + 30_000  # and the graph
    printed = capsys.readouterr().out
    assert f"Wrote the encoder of {run}/ckpt-1 to {file}: " in printed
    assert f"its weights are {weights / 1e6:.2f} MB in float32." in printed
    measured = printed.split("random inputs: pooled_output ")[1].split(",")[0]
    assert float(measured) < error


@pytest.mark.parametrize("form", [LiteFile, OnnxFile])
@pytest.mark.parametrize(
    ("head", "outputs", "name", "function", "pairs"),
    [
        (Head("classifier", ("no", "yes", "maybe")), 3, "probabilities", tf.nn.softmax, True),
        (Head("classifier", ("a", "b"), multi_label=True), 2, "probabilities", tf.sigmoid, False),
        (Head("classifier", mean=5.0, deviation=2.0), 1, "value", tf.identity, True),
    ],
)
@pytest.mark.slow
def test_a_classifier_and_its_text_side(
    tmp_path, capsys, head, outputs, name, function, pairs, form
):
    """Oracles: the Keras model; vocabulary, casing and labels of the run."""
    command, ending = (lite, "tflite") if form is LiteFile else (onnx, "onnx")
    if form is OnnxFile:
        pytest.importorskip("onnx")
    keras.utils.set_random_seed(0)
    model = BertTaskModel(CONFIG, outputs, mean=head.mean, deviation=head.deviation)
    path = f"{tmp_path}/classifier.{ending}"
    run = save(f"{tmp_path}/run", model, head)
    command.run(command.Options(checkpoint=run, output_file=path, max_seq_length=8, pairs=pairs))
    text = "One text. ||| Another." if pairs else "A text."
    expected = f"Next: python -m bert_tf.predict --checkpoint={path} '{text}'"
    assert capsys.readouterr().out.splitlines()[-1] == expected
    inputs, file = portable.random_inputs(400, 8, seed=9), form(pathlib.Path(path).read_bytes())
    found, files = file.run(inputs), dict(file.texts)
    assert found.keys() == {name}
    np.testing.assert_allclose(found[name], function(model(inputs)), atol=1e-5)
    assert files.pop("vocab.txt").splitlines() == list(VOCAB.tokens)
    tokenizer = {"do_lower_case": True, "model_max_length": 8}
    assert json.loads(files.pop("tokenizer_config.json")) == tokenizer
    about = {"labels": [*head.labels], "kind": "classifier", "pairs": pairs}
    about |= {"multi_label": True, "label_separator": ","} if head.multi_label else {}
    assert json.loads(files.pop(CLASSIFIER)) == about
    labels = files.pop("labels.txt", "")
    assert (tuple(labels.splitlines()), files) == (head.labels, {})

    texts, second = ["AB a", "x", "a " * 9], ["ab"] * 3
    segments = [WordPieceTokenizer(VOCAB).tokenize_flat(t) for t in [texts, second][: 1 + pairs]]
    expected = function(model(pack_segments(segments, 8, VOCAB))).numpy()
    lines = tuple(f"{text} ||| ab" for text in texts) if pairs else tuple(texts)
    predict.run(predict.Options(checkpoint=path, texts=lines, json=True, batch_size=2))
    printed = capsys.readouterr()
    warning = f"WARNING: truncated 1 example: {command.__name__} --max_seq_length sets"
    assert warning in printed.err
    for line, text, values in zip(printed.out.splitlines(), texts, expected, strict=True):
        answer = dict(zip(head.labels, values, strict=True)) if head.labels else values
        row = {"text": text} | ({"text_b": "ab"} if pairs else {})
        row[name] = pytest.approx(answer, abs=1e-5)
        if head.multi_label:
            row["labels"] = ",".join(label for label in head.labels if answer[label] >= 0.5)
        elif head.labels:
            row["label"] = max(answer, key=answer.get)
        assert json.loads(line) == row


@pytest.mark.parametrize(
    ("form", "pooling"),
    [(LiteFile, "mean"), (OnnxFile, "mean"), (OnnxFile, "max"), (OnnxFile, "cls")],
)
@pytest.mark.slow
def test_an_embedder_and_its_text_side(tmp_path, capsys, pooling, form):
    """Oracle: `load_embedder` for the same run, also in threads."""
    command, ending = (lite, "tflite") if form is LiteFile else (onnx, "onnx")
    plain = {"cls": dict(normalize=True), "max": dict(outputs=24, activation="tanh"), "mean": {}}
    head = Head(EMBEDDING, pooling=pooling, **plain[pooling])
    file = f"{tmp_path}/embedder.{ending}"
    run = save(f"{tmp_path}/run", make_model(head, CONFIG), head)
    command.run(command.Options(checkpoint=run, output_file=file, max_seq_length=8))
    assert capsys.readouterr().out.startswith("Wrote the embedder of ")
    texts = ["a", "ab b a", "a " * 9]
    expected = load_embedder(run, max_seq_length=8).encode(texts)
    capsys.readouterr()
    predict.run(predict.Options(checkpoint=file, texts=tuple(texts), json=True))
    printed = capsys.readouterr()
    found = [json.loads(line)["embedding"] for line in printed.out.splitlines()]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert f"truncated 1 example: {command.__name__} --max_seq_length" in printed.err
    serve = open_single_file(file).serving
    with ThreadPoolExecutor(8) as pool:
        shared = [*pool.map(lambda text: serve(tf.constant([text]))["embedding"][0], texts * 64)]
    np.testing.assert_allclose(shared, [*expected] * 64, atol=1e-5)


@pytest.mark.parametrize("form", [LiteFile, OnnxFile])
@pytest.mark.slow
def test_a_tagger_and_its_text_side(tmp_path, capsys, form):
    """Oracle: predict on the run itself, also for a text of several windows and an empty one."""
    command, ending = (lite, "tflite") if form is LiteFile else (onnx, "onnx")
    head, file = Head("tagger", ("O", "B-X", "I-X")), f"{tmp_path}/tagger.{ending}"
    run = save(f"{tmp_path}/run", BertTaskModel(CONFIG, 3, "tagger"), head)
    command.run(command.Options(checkpoint=run, output_file=file, max_seq_length=8))
    texts, answers = ("a ab, a", "", "ab a " * 9), []
    for checkpoint, flags in ((run, {"max_seq_length": 8}), (file, {})):
        capsys.readouterr()
        predict.run(predict.Options(checkpoint=checkpoint, texts=texts, json=True, **flags))
        answers.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    expected, found = answers
    assert len(found[2]["words"]) == 18 and len({x["tag"] for x in found[2]["words"]}) > 1
    for row, other in zip(found, expected, strict=True):
        assert row["text"] == other["text"]
        for kind in ("words", "entities"):
            for thing, same in zip(row[kind], other[kind], strict=True):
                assert thing.pop("probability") == pytest.approx(same.pop("probability"), abs=1e-5)
                assert thing == same


@pytest.mark.parametrize("task", ["sst2", "csv"])
@pytest.mark.slow
def test_metrics_on_the_dev_set(tmp_path, capsys, task):
    """Oracle: the predictions of the Keras model."""
    texts, labels = ["a", "b a", "a b b", "b", "a a"], [0, 1, 1, 0, 1]
    pairs = [*zip(texts, labels, strict=True)]
    for split in ("train", "dev"):
        lines = ["sentence\tlabel", *(f"{text}\t{label}" for text, label in pairs)]
        (tmp_path / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    run, flags, names = Run(f"{tmp_path}/run"), {"data_dir": str(tmp_path)}, ("no", "yes")
    if task == "csv":
        files = {f"{split}_file": f"{tmp_path}/{split}.tsv" for split in ("train", "dev")}
        flags, names = files | {"label_type": "number", "text_column": "sentence"}, ()
    model, head = BertTaskModel(CONFIG, len(names) or 1), Head("classifier", names)
    flags |= dict(task=task, output_dir=run.path, max_seq_length=8, do_train=True, finished=True)
    run.write(ModelSpec(CONFIG, VOCAB, True), flags)
    run.write_head(head)
    save(run.file("best"), model, head)
    file = f"{tmp_path}/classifier.tflite"
    lite.run(lite.Options(checkpoint=run.path, output_file=file, evaluate=True))
    printed = capsys.readouterr().out
    found = model(BertPreprocessor(VOCAB, True, 8)(tf.constant(texts))).numpy()
    if task == "sst2":
        name, value = "accuracy", np.mean(found.argmax(-1) == labels)
    else:
        name, value = "pearson", np.corrcoef(found, labels)[0, 1]
    assert "On the dev set, 5 examples, with the original's in parentheses: " in printed
    assert f"{name} {value:.4f} ({value:.4f})" in printed
    with pytest.raises(ValueError, match="holds no fine-tuning run"):
        new = f"{tmp_path}/new.tflite"
        lite.run(lite.Options(checkpoint=run.file("best"), output_file=new, evaluate=True))


@pytest.fixture(scope="module")
def digits() -> bytes:
    """A model whose value has the digits of the ids and, after the point, of the mask."""

    def function(inputs):
        places = tf.constant([[1000.0, 100.0, 10.0, 1.0]])
        ids, mask = (tf.cast(inputs[n], tf.float32) for n in ("input_word_ids", "input_mask"))
        return {"value": tf.reduce_sum((ids + mask / 1e4) * places, axis=1)}

    return lite_model.to_lite(function, [], 4)


def test_texts_are_padded_with_the_id_of_pad(digits):
    """Oracle: the digits by hand. MobileBERT's outputs depend on what follows a text."""
    inputs = {"input_word_ids": [[2, 3], [4, 5]], "input_mask": [[1, 1], [1, 0]]}
    inputs = {name: tf.constant(values) for name, values in inputs.items()}
    inputs["input_type_ids"] = inputs["input_mask"]
    file = LiteFile(lite_model.with_files(digits, {}))
    model = single_file.FileModel(file, Head("classifier"), pad_id=7)
    np.testing.assert_allclose(model(inputs), [2377.11, 4577.10], atol=1e-3)


def test_a_comparison_names_the_worst_case_and_both_models(monkeypatch):
    """Oracles: the largest of four differences; the metric of each model, by hand."""
    outputs = iter([{"x": np.full(2, value)} for value in (1.0, -3.0, 2.0, 0.0)])
    zeros = mock.Mock(return_value={"x": np.zeros(2)})
    assert portable.largest_differences(zeros, lambda _: next(outputs), 9, 4) == {"x": 3.0}
    monkeypatch.setattr(portable, "scores", lambda *given: {"accuracy": float(given[2]({}))})
    task = SimpleNamespace(dev_set="the dev set")
    source = SimpleNamespace(task=task, function=lambda inputs: tf.constant(0.75))
    assert "accuracy 0.5000 (0.7500)" in portable._evaluation(source, range(5), lambda _: 0.5)


def test_a_place_that_can_only_be_read_is_refused_first(monkeypatch):
    """Oracle: nothing is opened or computed."""
    opened = calls_of(monkeypatch, portable, "_open")
    with one_line("hf:a/b/new.tflite can only be read: name an output on a disk"):
        lite.run(lite.Options(checkpoint="none", output_file="hf:a/b/new.tflite"))
    assert not opened


def test_what_cannot_be_exported(pretrainer, tmp_path):
    """Oracle: one line that says what to do; no file is written."""
    run = save(f"{tmp_path}/run", pretrainer)

    def refuse(message: str, **flags):
        flags = {"checkpoint": run, "output_file": f"{tmp_path}/new.tflite"} | flags
        with pytest.raises((ValueError, OSError), match=message):
            lite.run(lite.Options(**flags))
        assert not os.path.exists(f"{tmp_path}/new.tflite")

    refuse("new must end in .tflite", output_file=f"{tmp_path}/new")
    (tmp_path / "old.tflite").touch()
    refuse("old.tflite exists: remove it or name", output_file=f"{tmp_path}/old.tflite")
    refuse("is not a fine-tuned model: give a run folder", pairs=True)
    refuse("max_seq_length 21 is more than the max_position_embeddings 20", max_seq_length=21)
    span = save(f"{tmp_path}/span", BertTaskModel(CONFIG, 2, "span"), Head("span"))
    refuse("is a model for squad, but only models", checkpoint=span)


def test_what_predict_cannot_read(digits, tmp_path):
    """Oracle: one line that says what to do."""
    file = tmp_path / "model.tflite"
    with pytest.raises(OSError, match=r"cannot read .*model.tflite: "):
        open_single_file(str(file))
    about = {CLASSIFIER: '{"labels": [], "pairs": false}'}
    text = {
        "vocab.txt": "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n",
        "tokenizer_config.json": '{"do_lower_case": true, "model_max_length": 4}',
    }

    whole, with_files = about | text, functools.partial(lite_model.with_files, digits)

    def with_texts(name: str, **values) -> bytes:
        return with_files(whole | {name: json.dumps(json.loads(whole[name]) | values)})

    for data, message in [
        (with_files({"vocab.txt": ""}), "is not a classifier, tagger or embedder"),
        (with_files(about), "lacks its vocabulary or casing, as the checkpoint"),
        (with_files({CLASSIFIER: '{"pairs": true}'}), "write it .it has no 'lab"),
        (with_files(about | text | {"tokenizer_config.json": "{}"}), "has no 'model_max_length'"),
        (with_files(whole)[:-9], "model.tflite is damaged, or export.lite"),
        (with_texts(CLASSIFIER, labels="ab"), "labels is 'ab', not a list"),
        (with_texts(CLASSIFIER, labels=[], label_separator=1), "label_separator is 1, not a str"),
        (with_texts("tokenizer_config.json", model_max_length=1e9), "is 1000000000.0, not an int"),
        (with_texts("tokenizer_config.json", do_lower_case="no"), "lower_case is 'no', not true"),
        (with_files({"labels.txt": " " * (1 << 27)}), "archive is too large"),
        (lite_model.with_files(b"TFL3", whole), "model.tflite is damaged, or export.lite"),
    ]:
        file.write_bytes(data)
        with pytest.raises(ValueError, match=message):
            open_single_file(str(file))
    for flag in ({"max_seq_length": 8}, {"do_lower_case": False}, {"pairs": True}):
        with pytest.raises(ValueError, match=f"--{[*flag][0]} has no effect, .* states its own"):
            open_predictor(predict.Options(checkpoint=str(file), **flag))

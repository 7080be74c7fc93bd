"""The SavedModel of a classifier of pairs, compared with the model on packed inputs."""

import contextlib
import dataclasses
import io
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import one_line, save_run, without_tracing
from tensorflow.python.tools import saved_model_cli

from bert_tf.config import BertConfig
from bert_tf.finetuning.fine_tuned import open_fine_tuned
from bert_tf.finetuning.serving import TextModule
from bert_tf.finetuning.tasks.classification import MultiLabelTask
from bert_tf.inference.inference_options import PredictOptions
from bert_tf.inference.models import with_parts
from bert_tf.inference.predictor import open_predictor
from bert_tf.layers.padding import Tokens
from bert_tf.models.task_model import BertTaskModel
from bert_tf.runs.run import Run
from bert_tf.text.bert_preprocessor import pack_segments
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.weights.checkpoint import Head
from bert_tf.weights.formats import huggingface
from bert_tf.weights.opening import open_checkpoint
from export import check, classifier
from export.checks import serving_points as serving
from export.checks.examining import examine
from export.checks.points import Subject
from tfrecords.vocabulary import Vocabulary

VOCAB = Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"))
CONFIG = BertConfig(15, 16, 1, 2, 32, max_position_embeddings=32, initializer_range=0.3)


def packed(length: int, *texts: list[str]) -> dict[str, tf.Tensor]:
    segments = [WordPieceTokenizer(VOCAB).tokenize_flat(x) for x in texts]
    return pack_segments(segments, length, VOCAB)


TEXTS = ["a b", "C", "", "a " * 40], ["c", "d é zz", "", "b " * 40]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> SimpleNamespace:
    """A classifier of pairs whose classes have no names: the model, its folder and the output."""
    folder, model = tmp_path_factory.mktemp("pairs"), BertTaskModel(CONFIG, 3)
    # So that the labels differ.
    model.head.dense_bias.assign(-tf.reduce_mean(model(packed(12, *TEXTS)), axis=0))
    run = save_run(folder / "run", model, VOCAB, head=Head("classifier"))
    flags = dict(checkpoint=run, output_dir=f"{folder}/classifier/", pairs=True, max_seq_length=12)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        classifier.run(classifier.Options(**flags))
    assert {path.name for path in folder.iterdir()} == {"run", "classifier"}
    return SimpleNamespace(model=model, folder=f"{folder}/classifier", printed=printed.getvalue())


@pytest.mark.slow
def test_classifies_pairs_of_any_length(pairs):
    """Oracle: the model."""
    texts_a, texts_b = TEXTS
    expected = tf.nn.softmax(pairs.model(packed(12, *TEXTS))).numpy()
    labels = [f"LABEL_{index}" for index in expected.argmax(axis=-1)]
    assert len({*labels}) > 1
    loaded = tf.saved_model.load(pairs.folder)
    outputs = loaded(texts_a, texts_b)
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)
    assert [x.decode() for x in outputs["label"].numpy()] == labels
    single = loaded(texts_a[1], texts_b[1])
    np.testing.assert_allclose(single["probabilities"], expected[1], atol=1e-5)
    assert single["label"] == labels[1]
    signature = loaded.signatures["serving_default"]
    outputs = signature(text=tf.constant(texts_a[:1]), text_b=tf.constant(texts_b[:1]))
    np.testing.assert_allclose(outputs["probabilities"], expected[:1], atol=1e-5)
    empty = tf.constant([], tf.string)
    assert loaded(empty, empty)["probabilities"].shape == (0, 3)
    how = dict(pairs=True, apart=True, outputs=lambda x, y: {"product": x * y})
    apart = TextModule(pairs.model, WordPieceTokenizer(VOCAB), 12, **how)
    for unequal in ((texts_a, texts_b[:1]), (texts_a[:1], texts_b)):
        for call in (loaded, apart.serving):
            with pytest.raises(tf.errors.InvalidArgumentError, match="inputs have different"):
                call(*map(tf.constant, unequal))
    with pytest.raises(tf.errors.InvalidArgumentError, match="the inputs have different shapes"):
        loaded([texts_a[:2]], [[text] for text in texts_b[:2]])


def test_padding_is_skipped(tmp_path, monkeypatch):
    """Oracles: the model, which computes padding; how many tokens are taken out of a batch."""
    model, folder, counts = BertTaskModel(CONFIG, 2), str(tmp_path / "1"), []
    run = save_run(tmp_path / "run", model, VOCAB, head=Head("classifier"))
    pack = Tokens.pack

    def record(tokens, x):
        packed = pack(tokens, x)
        counts.append(packed.shape[0])
        return packed

    monkeypatch.setattr(Tokens, "pack", record)
    classifier.run(classifier.Options(checkpoint=run, output_dir=folder))
    assert counts
    counts.clear()
    predictor = open_predictor(PredictOptions(checkpoint=run))
    texts = ["a b c d", "e", ""]
    with without_tracing():
        answers, _ = predictor.predict([{"text": text} for text in texts])
    # [CLS] and [SEP] belong to each text.
    assert set(counts) == {6 + 3 + 2}
    expected = tf.nn.softmax(model(packed(32, texts))).numpy()
    found = tf.saved_model.load(folder)
    np.testing.assert_allclose(found(texts)["probabilities"], expected, atol=1e-5)
    for answer, row in zip(answers, expected, strict=True):
        np.testing.assert_allclose(list(answer["probabilities"].values()), row, atol=1e-5)
    assert found(tf.constant([], tf.string))["probabilities"].shape == (0, 2)


@pytest.mark.parametrize(
    ("kind", "size", "labels", "inputs", "outputs"),
    [
        ("classifier", 2, (), [["a b"]], {"label", "probabilities"}),
        ("classifier", 1, ("LABEL_0",), [["a b"]], {"value"}),
        ("tagger", 3, ("O", "B-x", "I-x"), [["a b", "a"]], {"tag", "probability", "entity"}),
        ("span", 2, (), [["a", "b"], ["a b", "b a b"]], {"text", "start", "end", "score"}),
        ("multiple_choice", 1, (), [["a"], [["a b", "b"]]], {"index", "probabilities"}),
    ],
)
@pytest.mark.slow
def test_heads_and_precisions_of_other_programs(
    kind, size, labels, inputs, outputs, tmp_path, run_card
):
    """Oracles: the task with the converted model; stored types; export.check; the card's code."""
    config = dataclasses.replace(CONFIG, max_position_embeddings=128)
    model, other = BertTaskModel(config, size, kind), tmp_path / "other"
    run = save_run(tmp_path / "run", model, VOCAB, head=Head(kind, labels))
    other.mkdir()
    # Without the pooler that transformers' models lack if their heads do not read it.
    parts = {"encoder", "head", *["pooler"] * Head(kind).reads_pooler}
    huggingface.write(with_parts(open_checkpoint(run), parts), str(other))
    _, task, length = open_fine_tuned(str(other), None, None, pairs=False)
    module = task.serving(model, WordPieceTokenizer(VOCAB), length)
    inputs = [tf.constant(x) for x in inputs]
    with without_tracing():
        expected = module.__call__(*inputs)
    assert expected.keys() >= outputs
    # A head does not decide how its weights are stored.
    tolerances = {"float32": 1e-6}
    if "label" in outputs:
        tolerances |= {"int8": 0.03, "bfloat16": 0.03}
    for precision, tolerance in tolerances.items():
        folder = str(tmp_path / precision)
        flags = dict(checkpoint=str(other), output_dir=folder, precision=precision)
        classifier.run(classifier.Options(**flags))
        model = run_card(folder)["model"]
        found = model(*inputs)
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            assert found[name].dtype == values.dtype
            if values.dtype == tf.float32:
                np.testing.assert_allclose(found[name], values, atol=tolerance)
            elif precision == "float32":
                assert found[name].numpy().tolist() == values.numpy().tolist()
        reader = tf.train.load_checkpoint(f"{folder}/variables/variables")
        types = {x.name for x in reader.get_variable_to_dtype_map().values()}
        # The vocabulary has strings and integers; in 8 bits, biases and scales are float32.
        assert types - {"string", "int64"} == {precision, *["float32"] * (precision == "int8")}
        # One more copy on disk would take seconds; that of a classifier of pairs is examined.
        points = [point for point in serving.POINTS if point.name != "predictor_moves"]
        assert "WRONG" not in {result for result, _ in examine(Subject(folder, model), points)}
    assert keras.config.dtype_policy().name == "float32"


def test_flags_state_what_a_model_of_another_program_does_not(tmp_path):
    """Oracle: the model that was converted, on the tokens of its vocabulary and casing."""
    other, model = tmp_path / "other", BertTaskModel(CONFIG, 2)
    run = save_run(tmp_path / "run", model, VOCAB, head=Head("classifier", ("x", "y")))
    other.mkdir()
    huggingface.write(open_checkpoint(run), str(other))
    (other / "vocab.txt").rename(tmp_path / "words.txt")
    (other / "tokenizer_config.json").unlink()
    flags = dict(checkpoint=str(other), output_dir=str(tmp_path / "a [1]"))
    with pytest.raises(ValueError, match=r"finds no checkpoints in folders with \[ in their"):
        classifier.run(classifier.Options(**flags))
    flags["output_dir"] = str(tmp_path / "1")
    with pytest.raises(ValueError, match="comes without a vocabulary: give --vocab_file"):
        classifier.run(classifier.Options(**flags))
    flags["vocab_file"] = str(tmp_path / "words.txt")
    classifier.run(classifier.Options(**flags))
    found, expected = tf.saved_model.load(f"{tmp_path}/1")(["A b"]), model(packed(32, ["A b"]))
    np.testing.assert_allclose(found["probabilities"], tf.nn.softmax(expected), atol=1e-5)


def test_what_cannot_be_exported(tmp_path):
    """Oracle: the line."""
    run = Run(save_run(tmp_path / "run", BertTaskModel(CONFIG, 3), VOCAB))

    def refuse(match: str, head: Head | None, **changes):
        flags = dict(checkpoint=run.path, output_dir=f"{tmp_path}/out", pairs=True)
        if head:
            run.write_head(head)
        with one_line(match):
            classifier.run(classifier.Options(**flags | changes))

    refuse("is not a fine-tuned model: give a run folder of run_finetuning", None)
    refuse("--pairs is only for classifiers, but .*run is not one: omit it", Head("tagger"))
    for kind in ("classifier", "tagger"):
        match = r"kernel has shape \(16, 3\) there but \(16, 2\) in"
        refuse(match, Head(kind, ("a", "b")), pairs=False, precision="bfloat16")
        assert keras.config.dtype_policy().name == "float32"
    run.write_head(Head("classifier", ("a", "b", "c"), multi_label=True))
    _, task, _ = open_fine_tuned(run.path, None, None, pairs=True)
    assert isinstance(task, MultiLabelTask) and task.labels == ("a", "b", "c")
    refuse("max_seq_length 33 is more than", Head("classifier"), max_seq_length=33)


@pytest.mark.slow
def test_a_converted_classifier_is_exported(pairs, run_card, capsys, monkeypatch, one_process):
    """Oracles: the model, for the card's code and saved_model_cli; export.check."""
    assert f"Next: python -m export.check --saved_model_dir={pairs.folder}" in pairs.printed
    check.run(check.Options(saved_model_dir=pairs.folder))
    advice = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("ok")]
    assert len(advice) == 2, advice
    outputs = run_card(pairs.folder)["outputs"]
    expected = tf.nn.softmax(pairs.model(packed(12, ["a text"], ["another"])))
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)
    label = f"LABEL_{np.argmax(expected)}"
    assert outputs["label"][0] == label
    command = ["saved_model_cli", "run", "--tag_set=serve", "--signature_def=serving_default"]
    command += [f"--dir={pairs.folder}", '--input_exprs=text=["a text"];text_b=["another"]']
    monkeypatch.setattr("sys.argv", command)
    capsys.readouterr()
    with pytest.raises(SystemExit):
        saved_model_cli.main()
    assert f"Result for output key label:\n[b'{label}']" in capsys.readouterr().out

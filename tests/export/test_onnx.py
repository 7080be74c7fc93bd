"""ONNX models, run by ONNX Runtime, against the Keras models they were made from."""

import dataclasses
import os
import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import save_run

from bert_tf import predict
from bert_tf.config import BertConfig, Head, MobileBertConfig
from bert_tf.inference.single_file import open_single_file
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.task_model import BertTaskModel
from export import onnx, portable
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

theirs = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

VOCAB = Vocabulary((*SPECIAL_TOKENS, "a", "##b"))
CONFIG = BertConfig(400, 64, 2, 2, 128, max_position_embeddings=20, initializer_range=0.1)
CONFIGS = {
    "bert": CONFIG,
    "albert": dataclasses.replace(CONFIG, num_hidden_groups=1, embedding_size=16),
    "pruned": dataclasses.replace(CONFIG, pruned_heads={1: [0]}),
    "gelu_new": dataclasses.replace(CONFIG, hidden_act="gelu_new"),
    "tanh": dataclasses.replace(CONFIG, hidden_act="tanh"),
    "relu": dataclasses.replace(CONFIG, hidden_act="relu", classifier_activation=False),
}


def export(checkpoint: str, file: pathlib.Path, **flags) -> onnxruntime.InferenceSession:
    onnx.run(onnx.Options(checkpoint=checkpoint, output_file=str(file), **flags))
    theirs.checker.check_model(str(file))
    return onnxruntime.InferenceSession(str(file))


def batch(rows: int, length: int, seed: int) -> dict[str, np.ndarray]:
    """Rows of the encoder's inputs, with padding at the end of some."""
    parts = [portable.random_inputs(400, length, seed + row) for row in range(rows)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def run(session, inputs) -> dict[str, np.ndarray]:
    """The outputs by name; the names of the inputs are those of transformers."""
    names = ("input_word_ids", "input_mask", "input_type_ids")
    input_ids, mask, types = (inputs[name].astype(np.int64) for name in names)
    outputs = [output.name for output in session.get_outputs()]
    feed = {"input_ids": input_ids, "attention_mask": mask, "token_type_ids": types}
    return dict(zip(outputs, session.run(None, feed), strict=True))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.slow
def test_an_encoder_computes_what_the_model_computes(name, tmp_path, capsys):
    """Oracle: the Keras model, for batches of any size and length."""
    keras.utils.set_random_seed(0)
    model = BertPretrainer(CONFIGS[name])
    for weight in model.weights:
        if weight.path.endswith(("bias", "beta")):
            weight.assign(keras.random.normal(weight.shape, stddev=0.1))
    session = export(save_run(f"{tmp_path}/run", model, VOCAB), tmp_path / "encoder.onnx")
    names = {"last_hidden_state": "sequence_output", "pooler_output": "pooled_output"}
    for rows, length in ((1, 20), (3, 7)):
        inputs = batch(rows, length, seed=9)
        found, expected = run(session, inputs), model.encoder(inputs)
        assert found.keys() == names.keys()
        for name, values in found.items():
            np.testing.assert_allclose(values, expected[names[name]], atol=1e-5)
    for name, x in inputs.items():
        for other in (x[:1, :1], x[:0], x[:, :0], x.T):
            # ONNX Runtime broadcast the first, and leaves out empty ones where it joins tensors.
            with pytest.raises(Exception, match="inputs_must_have_one_shape"):
                run(session, inputs | {name: other})
    printed = capsys.readouterr().out
    measured = printed.split("random inputs: pooled_output ")[1].split(",")[0]
    assert float(measured) < 1e-5


def test_int8_is_smaller_and_close(tmp_path):
    """Oracles: the Keras model, loosely; the size of its weights."""
    model, file = BertPretrainer(CONFIG), tmp_path / "encoder.onnx"
    checkpoint = save_run(f"{tmp_path}/run", model, VOCAB)
    session, inputs = export(checkpoint, file, quantize="int8"), batch(3, 20, seed=9)
    found, expected = run(session, inputs), model.encoder(inputs)
    difference = np.abs(found["last_hidden_state"] - expected["sequence_output"])
    assert 1e-4 < difference[inputs["input_mask"] > 0].max() < 0.3
    assert os.path.getsize(file) < 0.3 * 4 * model.encoder.count_params() + 40_000  # and the graph


def test_logits_of_a_classifier(tmp_path):
    """Oracle: the Keras model. tests/export/test_lite.py compares the rest."""
    model = BertTaskModel(CONFIG, 3)
    head = Head("classifier", ("no", "yes", "maybe"))
    folder, inputs = save_run(f"{tmp_path}/run", model, VOCAB, head=head), batch(3, 8, seed=9)
    found = run(export(folder, tmp_path / "some.onnx"), inputs)
    np.testing.assert_allclose(found["logits"], model(inputs), atol=1e-5)
    np.testing.assert_allclose(found["probabilities"], tf.nn.softmax(model(inputs)), atol=1e-5)


def test_what_cannot_be_exported(tmp_path):
    """Oracle: one line that says what to do; no file is written."""
    sizes = dict(embedding_size=16, intra_bottleneck_size=32, num_feedforward_networks=2)
    mobile = MobileBertConfig(400, 64, 1, 2, 80, "relu", max_position_embeddings=20, **sizes)
    for config, message in (
        (mobile, "mobilebert encoders cannot be exported to ONNX: use export.encoder"),
        (dataclasses.replace(CONFIG, is_decoder=True), "left-to-right encoders cannot be"),
    ):
        folder = save_run(f"{tmp_path}/{message}", BertPretrainer(config), VOCAB)
        with pytest.raises(ValueError, match=message):
            export(folder, tmp_path / "new.onnx")
        assert not os.path.exists(tmp_path / "new.onnx")
    with pytest.raises(ValueError, match="new must end in .onnx"):
        onnx.Options(checkpoint="run", output_file="new")


def test_what_predict_cannot_read(tmp_path):
    """Oracle: one line that says what to do."""
    encoder = save_run(f"{tmp_path}/run", BertPretrainer(CONFIG), VOCAB)
    file = tmp_path / "encoder.onnx"
    export(encoder, file)
    with pytest.raises(ValueError, match="encoder.onnx is not a classifier, tagger or embedder of"):
        predict.run(predict.Options(checkpoint=str(file), texts=("a",)))
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match="encoder.onnx is damaged, or export.onnx did not"):
        predict.run(predict.Options(checkpoint=str(file), texts=("a",)))
    file.write_bytes(data)
    with pytest.raises(ValueError, match="--pairs has no effect, as .*onnx states its"):
        predict.run(predict.Options(checkpoint=str(file), pairs=True, texts=("a",)))


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    """Oracle: the package in setup.cfg; the file is not called damaged."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    (tmp_path / "model.onnx").touch()
    with pytest.raises(ValueError, match="^ONNX models need onnxruntime: pip install onnxruntime$"):
        open_single_file(f"{tmp_path}/model.onnx")


def test_shared_weights_are_stored_once(tmp_path):
    """Oracle: the number of weights of the Keras model."""
    from export.onnx_model import make_onnx

    model = BertEncoder(CONFIGS["albert"])
    found = sum(np.prod(x.dims) for x in make_onnx(model).graph.initializer if x.data_type == 1)
    assert found == pytest.approx(model.count_params(), abs=10)

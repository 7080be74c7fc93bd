"""export.check, on models that are wrong in one way each."""

import functools
import types

import numpy as np
import pytest
import tensorflow as tf
from support import one_line

from bert_tf.text.bert_preprocessor import pack_segments
from bert_tf.text.tokenizer import WordPieceTokenizer
from export import check
from export.checks import encoder_points as encoder
from export.checks import preprocessor_points as preprocessors
from export.checks import serving_points as serving
from export.checks.examining import examine
from export.checks.points import Subject
from export.preprocessor_module import PreprocessorModule
from tfrecords.vocabulary import Vocabulary, write_vocab

VOCAB = Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg,"))


def wrong(subject: Subject, points) -> dict[str, str]:
    names = {point.expected: point.name for point in points}
    found = {}
    for result, line in examine(subject, points):
        expected, _, problem = line.partition(". Found: ")
        if result == "WRONG":
            found[names[expected]] = problem
    return found


class Encoder:
    """The outputs of an encoder that reads nothing but its own table; `change` spoils them."""

    def __init__(self, change=lambda outputs, training: {}):
        self.table = tf.Variable(np.random.default_rng(0).normal(size=(5, 4)), dtype=tf.float32)
        self.variables = self.trainable_variables = [self.table]
        self.regularization_losses = []
        self.change = change

    def __call__(self, inputs, training=False):
        x = tf.gather(self.table, inputs["input_word_ids"])
        pooled = x[:, 0]
        outputs = {"pooled_output": pooled, "default": pooled, "sequence_output": x}
        outputs["encoder_outputs"] = [2 * x, x]
        return outputs | self.change(outputs, training)


def both_constant(outputs, _):
    return {n: tf.stop_gradient(outputs[n]) for n in ("pooled_output", "sequence_output")}


def failing_in_training(_, training):
    return {"default": 1 // 0} if training else {}


@pytest.mark.parametrize(
    "point, found, change",
    [
        ("outputs", "no", lambda x, _: x.clear() or {}),
        ("outputs", "is a EagerTensor", lambda x, _: {"encoder_outputs": x["default"]}),
        ("outputs", "'float64')", lambda x, _: {"default": tf.cast(x["default"], "double")}),
        ("aliases", "difference of 1", lambda x, _: {"default": x["default"] + 1}),
        ("aliases", "difference", lambda x, _: {"encoder_outputs": x["encoder_outputs"][::-1]}),
        ("padding", "difference", lambda x, _: {"pooled_output": x["sequence_output"][:, -1]}),
        ("training", "difference", lambda *_: {"default": tf.random.normal((2, 4))}),
        ("training", "ZeroDivisionError", failing_in_training),
        ("gradients", "without a gradient", both_constant),
    ],
)
def test_a_wrong_encoder(point, found, change):
    """Oracle: what was spoilt, which is not wrong otherwise."""
    points = [p for p in encoder.POINTS if p.name == point]
    assert not wrong(Subject("", Encoder()), points)
    assert found in wrong(Subject("", Encoder(change)), points)[point]


def test_a_signature_with_other_outputs():
    """Oracle: the outputs of the model, under any name, or twice as large."""
    model, points = Encoder(), [p for p in encoder.POINTS if p.name == "encoder_serving"]
    for factor, found in ((1, {}), (2, {"encoder_serving": "no output that equals pooled_output"})):
        model.signatures = {
            "serving_default": lambda factor=factor, **inputs: {
                "a": factor * model(inputs)["pooled_output"],
                "b": model(inputs)["sequence_output"],
            }
        }
        assert wrong(Subject("", model), points) == found


def test_wrong_variables(tmp_path):
    """Oracle: the lists, by hand."""
    model, points = Encoder(), encoder.POINTS
    model.trainable_variables = [tf.Variable(1.0, name="stray")]
    assert "stray:0 in trainable" in wrong(Subject("", model), points)["variable_lists"]
    model.mlm = types.SimpleNamespace(trainable_variables=[], variables=model.variables)
    found = wrong(Subject("", model), encoder.points(Subject("", model)))
    assert found["mlm_variables"].startswith("1 variables of the encoder that mlm does not share: ")
    checkpoint = tf.train.Checkpoint(a=tf.Variable(tf.zeros(600)), b=tf.Variable(tf.zeros(600)))
    checkpoint.write(f"{tmp_path}/variables/variables")
    found = wrong(Subject(str(tmp_path), model), points)["stored_once"]
    assert found.startswith("4,8") and found.endswith("weights on disk, but 80 bytes of variables")


def test_a_masked_lm_head_that_cannot_be_trained():
    """Oracle: the variable that no output depends on; nothing is wrong without it."""
    model = Encoder()

    def mlm(inputs, training):
        outputs = model(inputs, training)
        return {"mlm_logits": outputs["sequence_output"], "pooled_output": outputs["pooled_output"]}

    model.mlm, mlm.trainable_variables = mlm, [model.table]
    points = encoder.points(Subject("", model))
    assert "mlm_training" not in wrong(Subject("", model), points)
    mlm.trainable_variables.append(tf.Variable(1.0, name="unused"))
    found = wrong(Subject("", model), points)
    assert found["mlm_training"] == "unused:0 without a gradient"


@pytest.fixture(scope="module")
def preprocessor(tmp_path_factory) -> Subject:
    """Not saved, which makes no difference to most points."""
    folder = tmp_path_factory.mktemp("preprocessor")
    path = str(folder / "assets" / "vocab.txt")
    write_vocab(path, VOCAB)
    model = PreprocessorModule(WordPieceTokenizer(VOCAB), 8)
    model.bert_pack_inputs = functools.partial(pack_segments, vocab=VOCAB)
    return Subject(str(folder), model)


def one_type(segments, seq_length):
    packed = pack_segments(segments, seq_length, VOCAB)
    return packed | {"input_type_ids": tf.zeros_like(packed["input_mask"])}


def second_cut_only(segments, seq_length):
    segments = [x if x.shape.rank == 2 else x.merge_dims(1, 2) for x in segments]
    return pack_segments(
        [segments[0], *(x[:, : seq_length - 6] for x in segments[1:])], seq_length, VOCAB
    )


@pytest.mark.parametrize(
    "point, found, pack",
    [
        ("packs", "(3, 2) tokens and seq_length=16, input_type_ids is", one_type),
        ("packs", "(2, 9) tokens and seq_length=10", second_cut_only),
        ("any_length", "shapes", lambda segments, **_: pack_segments(segments, 8, VOCAB)),
    ],
)
def test_wrong_packing(preprocessor, point, found, pack, monkeypatch):
    """Oracle: what was spoilt, which is not wrong otherwise."""
    points = [p for p in preprocessors.POINTS if p.name == point]
    assert not wrong(preprocessor, points)
    monkeypatch.setattr(preprocessor.model, "bert_pack_inputs", pack)
    assert found in wrong(preprocessor, points)[point]


def test_a_tokenizer_with_another_vocabulary(preprocessor, tmp_path):
    """Oracle: the order of the tokens in assets."""
    other = Vocabulary((*VOCAB.tokens[:5], "x", *VOCAB.tokens[5:]))
    write_vocab(f"{tmp_path}/assets/vocab.txt", other)
    points = [p for p in preprocessors.POINTS if p.name in ("words", "special_tokens")]
    found = wrong(Subject(str(tmp_path), preprocessor.model), points)
    assert found["words"] == "other tokens for x, a, b"
    assert "vocab_size is 13, not 14" in found["special_tokens"]


def test_a_model_that_cannot_be_served(tmp_path):
    """Oracle: the function of the signature, by hand."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def serve(text):
        length = tf.cast(tf.strings.length(text), tf.float32)
        share = length / tf.reduce_sum(length)
        return {"share": tf.py_function(lambda x: x, [share], tf.float32)}

    model = tf.Module()
    model.signatures = {"serving_default": serve.get_concrete_function()}
    found = wrong(Subject(str(tmp_path), model), serving.POINTS)
    assert found["independent_rows"] == "share depends on the other texts of the batch"
    assert found["python_functions"] == "EagerPyFunc operations"
    two = tf.function(lambda text: text, input_signature=[tf.TensorSpec([2], tf.string, "text")])
    model.signatures = {"serving_default": two.get_concrete_function()}
    found = wrong(Subject(str(tmp_path), model), serving.POINTS)
    assert found["batches"] == "text of shape (2,)"


def test_other_folders_are_one_clear_line(tmp_path):
    """Oracle: the line."""
    (tmp_path / "served" / "3").mkdir(parents=True)
    (tmp_path / "served" / "3" / "saved_model.pb").write_bytes(b"\xff" * 9)
    module, number = tf.Module(), tf.TensorSpec([], tf.float32, "number")
    module.half = tf.function(lambda x: x / 2, input_signature=[number])
    tf.saved_model.save(module, str(tmp_path / "half"), signatures=module.half)
    for name, message in (
        ("nowhere", "nowhere holds no saved_model.pb: give"),
        ("served/3", "cannot load .*served/3"),
        ("half", "not an encoder, .* from text to predictions: its inputs are number"),
    ):
        with one_line(message):
            check.run(check.Options(saved_model_dir=f"{tmp_path}/{name}"))

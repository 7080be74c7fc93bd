"""The exported encoder, against the Keras model it was made from."""

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
import tf_keras
from support import int32_only, one_line, save_run, two_replicas

from bert_tf.config import BertConfig
from bert_tf.models.bert_encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from export import check, encoder, saved_models
from export.encoder_module import EncoderModule, quantize
from tfrecords.vocabulary import Vocabulary

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
# More rows than the vocabulary has, which is fine.
CONFIG = BertConfig(40, 16, 1, 2, 32, max_position_embeddings=24)
MOBILE = dict(hidden_act="relu", embedding_size=4, intra_bottleneck_size=8)
MOBILE |= dict(num_feedforward_networks=1, key_query_shared_bottleneck=True)


@pytest.fixture(scope="module")
def model() -> BertPretrainer:
    """A model with weights that are nowhere 0 or 1."""
    keras.utils.set_random_seed(0)
    model = BertPretrainer(CONFIG)
    random = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(weight + random.normal(0, 0.3, weight.shape))
    return model


@pytest.fixture(scope="module")
def run_folder(model, tmp_path_factory) -> pathlib.Path:
    vocab = Vocabulary(tuple(VOCAB))
    return pathlib.Path(save_run(tmp_path_factory.mktemp("run"), model, vocab, step=7))


@pytest.fixture(scope="module")
def printed(run_folder) -> str:
    """What the command prints; it exports in float32, whatever the policy."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        export(run_folder, run_folder / "encoder")
    keras.config.set_dtype_policy("float32")
    return output.getvalue()


@pytest.fixture(scope="module")
def folder(printed, run_folder) -> str:
    return str(run_folder / "encoder")


@pytest.fixture(scope="module")
def loaded(folder):
    return hub.load(folder)


def export(run_folder, output, **flags) -> str:
    encoder.run(encoder.Options(checkpoint=str(run_folder), output_dir=str(output), **flags))
    return str(output)


def make_inputs(batch: int = 3, length: int = 11) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    lengths = random.integers(3, length + 1, (batch, 1))
    mask = np.arange(length) < lengths
    ids = random.integers(0, CONFIG.vocab_size, (batch, length)) * mask
    types = (np.arange(length) >= lengths // 2) & mask
    values = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": types}
    return {name: value.astype(np.int32) for name, value in values.items()}


def assert_equal(actual, expected):
    tf.nest.assert_same_structure(actual, expected)
    for a, b in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def keras_layer_model(handle, names, **kwargs):
    inputs = {name: tf_keras.Input([None], dtype=tf.int32, name=name) for name in names}
    return tf_keras.Model(inputs, hub.KerasLayer(handle, **kwargs)(inputs))


@pytest.mark.slow
def test_keras_layer_gives_the_outputs_of_the_keras_model(loaded, model):
    layer = keras_layer_model(loaded, make_inputs())
    for shape in [(3, 11), (1, 24)]:
        inputs = make_inputs(*shape)
        outputs, expected = layer(inputs), model.encoder(inputs)
        del expected["embeddings"]
        assert len(outputs["encoder_outputs"]) == CONFIG.num_hidden_layers
        assert_equal(outputs, expected | {"default": expected["pooled_output"]})
    tensors = {name: tf.constant(value) for name, value in inputs.items()}
    served = loaded.signatures["serving_default"](**tensors)
    assert_equal(served, {name: outputs[name] for name in served})


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
@pytest.mark.slow
def test_a_list_of_inputs_gives_a_list_of_outputs(loaded, dtype):
    """Oracle: the outputs and gradients for a dict; the code of notebooks of 2020."""
    inputs = {name: tf.constant(x, dtype) for name, x in make_inputs().items()}
    layer = hub.KerasLayer(loaded, trainable=True)
    symbolic = [tf_keras.Input([None], dtype=dtype, name=name) for name in inputs]
    pooled_output, sequence_output = layer(symbolic)
    model = tf_keras.Model(symbolic, [pooled_output, sequence_output])
    with tf.GradientTape(persistent=True) as tape:
        listed, named = model([*inputs.values()]), layer(inputs)
        named = [named["pooled_output"], named["sequence_output"]]
        losses = [tf.reduce_sum(x**2) + tf.reduce_sum(y**2) for x, y in (listed, named)]
    assert_equal(listed, named)
    gradients = (tape.gradient(loss, layer.trainable_weights) for loss in losses)
    assert_equal(*([*map(tf.convert_to_tensor, found)] for found in gradients))


def test_mlm_gives_the_logits_of_the_pretrainer(loaded, model):
    inputs = make_inputs() | {"masked_lm_positions": np.array([[1, 2], [0, 3], [4, 4]], np.int32)}
    outputs = keras_layer_model(loaded.mlm, inputs)(inputs)
    expected = model(inputs)
    del expected["next_sentence_logits"], expected["embeddings"]
    assert_equal(outputs, expected)


def test_ids_may_be_int64(loaded, model):
    """Oracle: the outputs and gradients for int32; in each place, and through a layer."""
    inputs = make_inputs() | {"masked_lm_positions": np.array([[1], [0], [4]], np.int32)}
    wide = {name: tf.constant(x, tf.int64) for name, x in inputs.items()}
    positions, logits = wide.pop("masked_lm_positions"), model(inputs)["mlm_logits"]
    for mlm in (inputs | wide, wide | {"masked_lm_positions": positions}):
        assert_equal(loaded.mlm(mlm)["mlm_logits"], logits)
    layer = hub.KerasLayer(loaded, trainable=True)
    gradients = []
    del inputs["masked_lm_positions"]
    for given in (inputs, wide, inputs | {"input_word_ids": wide["input_word_ids"]}):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(given, training=False)["sequence_output"] ** 2)
        gradients.append(tape.gradient(loss, layer.trainable_weights))
    for found in gradients[1:]:
        for a, b in zip(found, gradients[0], strict=True):
            np.testing.assert_array_equal(tf.convert_to_tensor(a), tf.convert_to_tensor(b))
    symbolic = {name: tf_keras.Input([None], dtype=tf.int64, name=name) for name in wide}
    found = tf_keras.Model(symbolic, layer(symbolic)["default"])(wide)
    assert_equal(found, model.encoder(inputs)["pooled_output"])


def test_root_has_the_variables_of_the_encoder_and_mlm_five_more(loaded, model):
    names = {variable.path for variable in model.encoder.trainable_variables}
    assert {v.name.removesuffix(":0") for v in loaded.trainable_variables} == names
    head = {variable.path for variable in model.masked_lm.trainable_variables}
    assert len(head) == 5
    mlm = {v.name.removesuffix(":0") for v in loaded.mlm.trainable_variables}
    assert mlm == names | head
    assert not head & {v.name.removesuffix(":0") for v in loaded.variables}
    # The states of the dropouts' generators.
    assert len(loaded.variables) == len(model.encoder.variables) > len(names)
    assert list(loaded.regularization_losses) == []
    assert bool(loaded.do_lower_case) and not loaded.do_lower_case.trainable
    path = loaded.vocab_file.asset_path.numpy().decode()
    assert pathlib.Path(path).read_text().split() == VOCAB


def test_weights_of_the_keras_layer_can_be_saved(folder, loaded, tmp_path):
    # HDF5 refuses two weights of one name.
    inputs = make_inputs()
    classifier = keras_layer_model(loaded, inputs, trainable=True)
    classifier.save_weights(str(tmp_path / "weights.h5"))
    other = keras_layer_model(folder, inputs, trainable=True)
    other.trainable_weights[0].assign_add(tf.ones_like(other.trainable_weights[0]))
    other.load_weights(str(tmp_path / "weights.h5"))
    assert_equal(other(inputs), classifier(inputs))


@pytest.fixture(scope="module")
def preprocessor_dir(printed, run_printed, run_folder) -> str:
    """What the command writes that the encoder's prints."""
    folder = str(run_folder / "preprocessor")
    run_printed(printed.splitlines()[-1], output_dir=folder)
    return folder


@pytest.fixture
def mixed_float16():
    tf_keras.mixed_precision.set_global_policy("mixed_float16")
    yield
    tf_keras.mixed_precision.set_global_policy("float32")


@pytest.mark.slow
def test_replicas_fine_tune_on_text_in_mixed_precision(
    folder, preprocessor_dir, tmp_path, mixed_float16
):
    """Oracles: the loss falls, and every weight changes; the outputs of the saved model."""
    tf_keras.utils.set_random_seed(0)
    texts, labels = tf.constant(["b a", "c a", "b c", "a b"] * 4), tf.constant([1, 0, 1, 0] * 4)
    with two_replicas().scope():
        text = tf_keras.Input([], dtype=tf.string)
        encode = hub.KerasLayer(folder, trainable=True)
        outputs = encode(hub.KerasLayer(preprocessor_dir)(text))
        logits = tf_keras.layers.Dense(2, dtype="float32")(outputs["pooled_output"])
        classifier = tf_keras.Model(text, logits)
        loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        classifier.compile(tf_keras.optimizers.Adam(1e-2), loss)
    before = [weight.numpy() for weight in encode.trainable_weights]
    data = tf.data.Dataset.from_tensor_slices((texts, labels)).batch(16).repeat()
    losses = classifier.fit(data, epochs=4, steps_per_epoch=5, verbose=0).history["loss"]
    assert losses[-1] < 0.8 * losses[0]
    for weight, old in zip(encode.trainable_weights, before, strict=True):
        assert not np.array_equal(weight, old), weight.name

    path = str(tmp_path / "model.keras")
    classifier.save(path)
    again = tf_keras.models.load_model(path, custom_objects={"KerasLayer": hub.KerasLayer})
    assert_equal(again(texts, training=False), classifier(texts, training=False))


@pytest.mark.slow
def test_the_pair_loads_without_our_packages(folder, preprocessor_dir, model, tmp_path):
    """Oracle: the model. The process has a Turkish locale, where I is dotless."""
    program = f"""
import sys
sys.modules.update(matplotlib=None, sklearn=None)  # which Keras would import without using them
import tensorflow, tensorflow_text
import tensorflow_hub as hub
inputs = hub.load({preprocessor_dir!r})(["A I.", "\\u0130 c"])
outputs = hub.load({folder!r})(inputs)
assert not {{"bert_tf", "export", "tfrecords"}} & set(sys.modules)
print(outputs["pooled_output"].numpy().tolist())
"""
    environment = os.environ | {"LC_ALL": "tr_TR.UTF-8"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # The length is the most that this encoder takes, which is less than 128.
    ids = np.pad([[2, 5, 13, 1, 3], [2, 13, 7, 3, 0]], [(0, 0), (0, 24 - 5)])
    inputs = {"input_word_ids": ids, "input_mask": ids > 0, "input_type_ids": np.zeros_like(ids)}
    expected = model.encoder(inputs)["pooled_output"]
    assert_equal(np.array(json.loads(done.stdout)), expected.numpy())


@pytest.mark.slow
def test_the_folder_keeps_the_contract_where_it_is_moved(folder, tmp_path, capsys, one_process):
    """Oracle: export.check, which passes on the Model Garden's own exports, also once moved."""
    moved = str(shutil.copytree(folder, tmp_path / "moved"))
    check.run(check.Options(saved_model_dir=moved))
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith(("WRONG", "advice"))] == []
    assert lines[-1] == "20 of 20 checks passed."


@pytest.mark.slow
def test_the_contract_of_a_mobilebert(run_folder, tmp_path, capsys, one_process):
    """Oracle: export.check without the point on padding, which a MobileBERT reads."""
    model = BertPretrainer(BertConfig.from_dict(CONFIG.to_dict() | MOBILE))
    output = str(tmp_path / "mobile")
    with int32_only():
        encoder.export_encoder(model, f"{run_folder}/vocab.txt", output, do_lower_case=True)
    check.run(check.Options(saved_model_dir=output))
    assert capsys.readouterr().out.endswith("19 of 19 checks passed.\n")


def test_the_folder_describes_itself(folder, run_folder, run_card):
    """Oracle: the run's bert_config.json; the card's code runs."""
    copy = pathlib.Path(folder, "assets.extra", "bert_config.json").read_text()
    assert copy == (run_folder / "bert_config.json").read_text()
    assert run_card(folder)["outputs"]["pooled_output"].shape == [1, 16]
    assert "\n# encoder: uncased BERT encoder\n" in pathlib.Path(folder, "README.md").read_text()


def stored(folder: str, *types) -> list[np.ndarray]:
    """Returns the values of these types in the variables file."""
    reader = tf.train.load_checkpoint(f"{folder}/variables/variables")
    tensors = (reader.get_tensor(key) for key in reader.get_variable_to_shape_map())
    return [x for x in tensors if getattr(x, "dtype", None) in types]


def test_half_the_size_for_serving(model, loaded, tmp_path):
    """Oracle: the export in float32; the variables file has each variable once."""
    run = save_run(tmp_path / "run", model.encoder, Vocabulary(tuple(VOCAB)))
    with int32_only():
        output = export(run, tmp_path / "half", precision="float16")
    outputs, expected = hub.load(output)(make_inputs()), loaded(make_inputs())
    assert {x.dtype for x in tf.nest.flatten(outputs)} == {tf.float32}
    difference = np.abs(outputs["sequence_output"] - expected["sequence_output"]).max()
    assert 0 < difference < 0.02
    halves, wholes = stored(output, np.float16), loaded.trainable_variables
    assert len(halves) == len(wholes) and not stored(output, np.float32)
    assert sum(x.size for x in halves) == sum(np.prod(x.shape) for x in wholes)


@pytest.mark.slow
def test_a_quarter_of_the_size(model, run_folder, tmp_path):
    """Oracles: no error above half a scale; a float32 model with the stored values."""
    matrix = np.random.default_rng(0).normal(size=[8, 5]).astype(np.float32)
    matrix[:, 2] = 0
    for axis in (0, 1):
        values, scale = quantize(matrix, axis)
        assert values.dtype == np.int8 and np.abs(values).max() == 127
        assert scale.shape == ((8, 1) if axis == 0 else (1, 5))
        assert np.all(np.abs(values * scale - matrix) <= scale * 0.5001)
    with int32_only():
        output = export(run_folder, tmp_path / "quarter", precision="int8")
    rounded, inputs = BertPretrainer(CONFIG), make_inputs()
    for weight, exact in zip(rounded.weights, model.weights, strict=True):
        value = exact.numpy()
        if value.ndim == 2:
            value, scale = quantize(value, int("embeddings" not in weight.path))
            value = value * scale
        weight.assign(value)
    outputs, expected = hub.load(output)(inputs), rounded.encoder(inputs)
    assert_equal(outputs["sequence_output"], expected["sequence_output"])
    weights = (*model.encoder.weights, *model.masked_lm.weights)
    matrices = sum(np.prod(weight.shape) for weight in weights if len(weight.shape) == 2)
    assert sum(x.size for x in stored(output, np.int8)) == matrices
    assert max(x.size for x in stored(output, np.float32)) <= 96


def test_an_encoder_without_the_heads_of_pretraining(tmp_path, monkeypatch):
    """Oracle: the encoder, of two layers. Models of other programs may have no such heads."""
    model = BertEncoder(dataclasses.replace(CONFIG, num_hidden_layers=2))
    folder = save_run(tmp_path / "run", model, Vocabulary(tuple(VOCAB)))
    monkeypatch.setattr(saved_models, "save_model", save := mock.Mock())
    export(folder, tmp_path / "encoder")
    module, inputs = save.call_args.args[0], make_inputs()
    assert not hasattr(module, "mlm")
    expected = model(inputs)
    del expected["embeddings"]
    assert_equal(module.__call__(inputs), expected | {"default": expected["pooled_output"]})


@pytest.mark.parametrize(
    ("changes", "int8"),
    [({"embedding_size": 8, "is_decoder": True}, True), (MOBILE, False)],
    ids=["int8-albert-decoder", "mobilebert"],
)
@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated:UserWarning")
@pytest.mark.slow
def test_a_model_with_heads_of_its_own_becomes_a_litert_model(run_folder, tmp_path, changes, int8):
    """Oracle: the tf_keras model, for several batch sizes and lengths."""
    # Graphs without dropout are smaller.
    still = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.3)
    config = BertConfig.from_dict(CONFIG.to_dict() | still | changes)
    folder, vocab = str(tmp_path / "encoder"), Vocabulary(tuple(VOCAB))
    with int32_only():
        module = EncoderModule(BertEncoder(config), vocab, do_lower_case=True, int8=int8)
    tf.saved_model.save(module, folder)
    inputs = {name: tf_keras.Input([None], dtype=tf.int32, name=name) for name in make_inputs()}
    outputs = hub.KerasLayer(folder)(inputs)
    heads = {
        "text": tf_keras.layers.Dense(3, name="text")(outputs["pooled_output"]),
        "tokens": tf_keras.layers.Dense(2, name="tokens")(outputs["sequence_output"]),
    }
    model = tf_keras.Model(inputs, heads)
    model.save(str(tmp_path / "model"), save_format="tf")
    converted = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / "model")).convert()
    run = tf.lite.Interpreter(model_content=converted).get_signature_runner()
    for shape in [(1, 24), (3, 11)]:
        assert_equal(run(**make_inputs(*shape)), model(make_inputs(*shape)))


def test_compiles_with_xla(loaded, model):
    """Oracle: the model."""
    inputs = make_inputs()
    compiled = tf.function(lambda inputs: loaded(inputs)["sequence_output"], jit_compile=True)
    assert_equal(compiled(inputs), model.encoder(inputs)["sequence_output"])


def test_too_long_a_sequence_is_said(loaded):
    """Oracle: the number of positions."""
    inputs = make_inputs(1, CONFIG.max_position_embeddings + 1)
    tensors = {name: tf.constant(value) for name, value in inputs.items()}
    for call in (lambda: loaded(inputs), lambda: loaded.signatures["serving_default"](**tensors)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="at most 24"):
            call()


@pytest.mark.parametrize(
    ("name", "shape", "value"),
    [
        ("input_mask", (1, 1), 1),
        ("input_mask", (0, 0), 1),
        ("input_type_ids", (3, 1), 0),
        ("masked_lm_positions", (1, 2), 0),
        ("masked_lm_positions", (3, 2), -1),
        ("input_word_ids", (3, 11), -1),
    ],
)
def test_inputs_of_other_shapes_or_values_are_said(loaded, name, shape, value):
    """Oracle: the input's name. These broadcast, counted from the end or ended the process."""
    inputs = make_inputs() | {name: np.full(shape, value, np.int32)}
    call = loaded.mlm if name == "masked_lm_positions" else loaded
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{name} (does not|has a neg)"):
        call(inputs)


def test_bad_input_is_one_clear_line(run_folder, model, folder, tmp_path):
    """Oracle: the line; nothing is written."""

    big, out = str(tmp_path / "big.txt"), str(tmp_path / "out")
    pathlib.Path(big).write_text("\n".join([*VOCAB, *(f"word{i}" for i in range(20))]))
    for changes, message in (
        ({"output": folder}, "not empty"),
        ({"run_folder": tmp_path}, "no checkpoint"),
        ({"run_folder": run_folder / "ckpt-8"}, "no checkpoint"),
        ({"vocab_file": "nowhere"}, "nowhere"),
        ({"vocab_file": big}, "vocabulary: .*big.txt says 51 tokens"),
        ({"do_lower_case": False}, "do_lower_case: .*says False, but .*says True"),
    ):
        with one_line(message):
            export(**{"run_folder": run_folder, "output": out} | changes)
    with one_line("has 51 tokens, more than the vocab_size 40"):
        encoder.export_encoder(model, big, out, do_lower_case=True)
    assert not list(tmp_path.glob("out*")) and not list(run_folder.glob("*.tmp-*"))

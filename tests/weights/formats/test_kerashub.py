import dataclasses
import json
import os
import shutil

import h5py
import keras
import keras_hub
import numpy as np
import pytest
from checkpoints import assert_equal, assert_refused, pretrainer, values, written
from support import assert_same_tensors

from bert_tf.config import Head
from bert_tf.weights.formats import kerashub
from bert_tf.weights.opening import open_checkpoint
from tfrecords.vocabulary import Vocabulary

VOCAB = "[PAD] [UNK] [CLS] [SEP] [MASK] a b cafe ##s e f g".split()
INPUTS = {
    "token_ids": np.array([[2, 5, 6, 3, 0], [2, 7, 8, 9, 3]]),
    "padding_mask": np.array([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]),
    "segment_ids": np.array([[0, 0, 1, 1, 0], [0, 0, 0, 0, 0]]),
}
POSITIONS = {"mask_positions": np.array([[1, 2], [2, 3]])}
pytestmark = pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")


@pytest.fixture(scope="module")
def models():
    """KerasHub's models by the names of their presets, with weights that matter."""
    keras.utils.set_random_seed(1)
    backbone = keras_hub.models.BertBackbone(12, 2, 2, 8, 16, max_sequence_length=10)
    tokenizer = keras_hub.models.BertTokenizer(VOCAB, lowercase=True)
    preprocessor = keras_hub.models.BertMaskedLMPreprocessor(tokenizer, sequence_length=10)
    masked_lm = keras_hub.models.BertMaskedLM(backbone, preprocessor=preprocessor)
    classifier = keras_hub.models.BertTextClassifier(backbone, num_classes=3)
    values = np.random.default_rng(1)
    for variable in masked_lm.weights:
        # Small inputs of the head's normalization, so that its epsilon matters.
        scale = 0.002 if "mlm_head/intermediate_dense" in variable.path else 0.5
        variable.assign(values.normal(scale=scale, size=variable.shape))
    return {"masked_lm": masked_lm, "classifier": classifier, "backbone": backbone}


@pytest.fixture(scope="module")
def presets(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("presets")
    for name, model in models.items():
        model.save_to_preset(str(folder / name))
    return folder


@pytest.fixture
def preset(presets, tmp_path):
    """A copy of the preset of a masked LM, to damage."""
    return shutil.copytree(presets / "masked_lm", tmp_path / "preset")


class TestReading:
    def test_outputs(self, models, presets):
        """Oracle: KerasHub's own outputs of every layer, and the vocabulary it was given."""
        checkpoint = open_checkpoint(str(presets / "masked_lm"))
        assert checkpoint.spec.vocab == Vocabulary(tuple(VOCAB))
        assert checkpoint.spec.lower_case is True
        theirs = models["backbone"]
        positions = {"masked_lm_positions": POSITIONS["mask_positions"]}
        ours = pretrainer(checkpoint)(INPUTS | positions)
        layers = keras.Model(theirs.input, [layer.output for layer in theirs.transformer_layers])
        for mine, expected in zip(ours["encoder_outputs"], layers(INPUTS), strict=True):
            np.testing.assert_allclose(mine, expected, atol=1e-5)
        expected = {"pooled_output": theirs(INPUTS)["pooled_output"]}
        expected["mlm_logits"] = models["masked_lm"](INPUTS | POSITIONS)
        for name, array in expected.items():
            np.testing.assert_allclose(ours[name], array, atol=1e-5)

    def test_bfloat16(self, models, tmp_path):
        """Oracle: KerasHub's variables."""
        backbone = keras_hub.models.BertBackbone(12, 1, 2, 8, 16, dtype="bfloat16")
        backbone.save_to_preset(str(tmp_path))
        read = open_checkpoint(str(tmp_path)).tensors["encoder/pooler/dense_kernel"].read()
        kernel = keras.ops.convert_to_numpy(backbone.pooled_dense.kernel)
        assert read.dtype == np.float32
        np.testing.assert_array_equal(read, kernel.astype(np.float32))

    def test_names_of_earlier_versions(self, models, preset):
        """Oracle: Keras, which still loads a file with such names, and the usual names."""
        before = values(preset)
        with h5py.File(preset / "model.weights.h5", "a") as file:
            for index in ("", "_1"):
                group = file[f"layers/transformer_encoder{index}/_self_attention_layer"]
                for name in ("query", "key", "value", "output"):
                    group.move(f"{name}_dense", f"_{name}_dense")
            file.move("layers", "_layer_checkpoint_dependencies")
        backbone = keras_hub.models.BertBackbone.from_preset(str(preset), load_weights=False)
        backbone.load_weights(preset / "model.weights.h5")
        for mine, expected in zip(backbone.weights, models["backbone"].weights, strict=True):
            np.testing.assert_array_equal(mine, expected)
        assert_equal(values(preset), before)

    def test_classifier(self, models, presets):
        """Oracle: KerasHub's variable."""
        checkpoint = open_checkpoint(str(presets / "classifier"))
        assert checkpoint.head == Head("classifier")
        kernel = checkpoint.tensors["task_model/head/dense_kernel"].read()
        np.testing.assert_array_equal(kernel, models["classifier"].output_dense.kernel)


class TestWriting:
    @pytest.mark.parametrize("name", ["masked_lm", "classifier", "backbone"])
    def test_kerashub_loads_it(self, models, presets, name, tmp_path):
        """Oracle: the outputs of KerasHub's model that the weights are from."""
        checkpoint = open_checkpoint(str(presets / name))
        folder = written(kerashub, checkpoint, tmp_path / "written")
        inputs = INPUTS | (POSITIONS if name == "masked_lm" else {})
        loaded = type(models[name]).from_preset(folder)
        theirs, ours = models[name](inputs), loaded(inputs)
        for first, second in zip(keras.tree.flatten(theirs), keras.tree.flatten(ours), strict=True):
            np.testing.assert_allclose(first, second, atol=1e-5)
        again = open_checkpoint(folder)
        assert_same_tensors(checkpoint.tensors, again.tensors)
        assert (again.spec, again.head) == (checkpoint.spec, checkpoint.head)

    def test_tokenizer(self, presets, tmp_path):
        """Oracle: BERT's rules: lower-casing removes accents, and punctuation is a token."""
        checkpoint = open_checkpoint(str(presets / "masked_lm"))
        folder = written(kerashub, checkpoint, tmp_path / "written")
        tokenizer = keras_hub.models.BertTokenizer.from_preset(folder)
        assert tokenizer("A Cafés, g").tolist() == [5, 7, 8, 1, 11]
        preprocessor = keras_hub.models.BertMaskedLMPreprocessor.from_preset(folder)
        assert preprocessor.sequence_length == 10

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"hidden_act": "relu"}, "hidden_act is 'relu', but .* 'gelu_new': use --to=run"),
            ({"layer_norm_eps": 1e-5}, "layer_norm_eps is 1e-05, but .* can only have 1e-12"),
            ({"is_decoder": True}, "is_decoder is True, but KerasHub's BERT can only have None"),
            ({"masked_lm_act": None}, "masked_lm_act is 'gelu_new', but .* can only have 'gelu'"),
            ({"masked_lm_layer_norm_eps": None}, "layer_norm_eps is 1e-12, but .* 1e-05"),
        ],
    )
    def test_refuses_what_kerashub_does_not_compute(self, presets, changes, message, tmp_path):
        """Oracle: the source of keras_hub 0.32, whose models have no such arguments."""
        checkpoint = open_checkpoint(str(presets / "masked_lm"))
        config = dataclasses.replace(checkpoint.spec.config, **changes)
        spec = dataclasses.replace(checkpoint.spec, config=config)
        with pytest.raises(ValueError, match=message):
            kerashub.write(dataclasses.replace(checkpoint, spec=spec), str(tmp_path))
        assert not os.listdir(tmp_path)


def config(**changes):
    """Changes arguments of the backbone; None removes one."""

    def change(content: bytes) -> bytes:
        values = json.loads(content)
        values["config"] = {k: x for k, x in (values["config"] | changes).items() if x is not None}
        return json.dumps(values).encode()

    return change


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("config.json", lambda x: x.replace(b"BertB", b"RobertaB"), "preset holds RobertaBackbone"),
        ("config.json", lambda _: b'{"x": 1}', "config.json is .*.it has no 'class_name'"),
        ("tokenizer.json", config(lowercase="no"), "config.lowercase is 'no', not true or false"),
        ("config.json", lambda _: b"{", "config.json is damaged"),
        ("config.json", config(num_heads=None), "config.json: num_heads is missing"),
        ("config.json", config(num_layers=-1), "json: num_hidden_layers must be a positive int"),
        ("config.json", config(num_layers=3), "lacks: layers/transformer_encoder_2"),
        ("model.weights.h5", lambda x: x[:-5000], "model.weights.h5 is damaged or incomplete"),
        ("assets/tokenizer/vocabulary.txt", lambda x: x + b"more\n", "has 13 tokens, more than"),
    ],
)
def test_bad_files(preset, file, change, message):
    (preset / file).write_bytes(change((preset / file).read_bytes()))
    assert_refused(preset, message)


BIAS = "layers/dense/vars/1"


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("more", dict(shape=(10**9, 10**3), dtype="f4", chunks=(1, 1000)), "more are not all in"),
        ("more", dict(data=h5py.Empty("f4")), "more are not all in"),
        (BIAS, dict(shape=(8,), dtype="f4", external=[("/secret", 0, 32)]), "1 are not all in"),
        (f"task/{BIAS}", dict(data=1.0), r"task/layers/dense/vars/1 \[\], expected \[0\]"),
    ],
)
def test_bad_weights(preset, name, values, message):
    kind = "task" if name.startswith("task/") else "model"
    with h5py.File(preset / f"{kind}.weights.h5", "a") as file:
        file.pop(name, None)
        file.create_dataset(name.removeprefix("task/"), **values)
    assert_refused(preset, message)


class TestDownload:
    def test_preset(self, presets, monkeypatch):
        """Oracle: KerasHub's list of presets."""
        handle = keras_hub.models.BertBackbone.presets["bert_tiny_en_uncased"]["kaggle_handle"]
        folders = {handle.removeprefix("kaggle://"): str(presets / "backbone")}
        monkeypatch.setattr("kagglehub.model_download", folders.__getitem__)
        assert open_checkpoint("keras:bert_tiny_en_uncased").path == str(presets / "backbone")

    def test_unknown(self):
        """Oracle: the message of kagglehub, which sends no request."""
        assert_refused("keras:bert_huge", "cannot download keras:bert_huge: Invalid model handle")

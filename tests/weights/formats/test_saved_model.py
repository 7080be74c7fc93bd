"""SavedModels and training checkpoints of the Model Garden, and our exports of encoders."""

import dataclasses
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text as tf_text
from checkpoints import assert_equal, assert_refused, pretrainer
from support import assert_same_tensors, int32_only
from tensorflow.core.protobuf import saved_model_pb2

from bert_tf.config import BertConfig, ModelSpec
from bert_tf.conversion.conversion_options import ConversionOptions
from bert_tf.conversion.converting import convert
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.text.bert_preprocessor import BertPreprocessor, pack_segments
from bert_tf.weights.formats import model_garden
from bert_tf.weights.formats.saved_model import read_preprocessor
from bert_tf.weights.opening import open_checkpoint
from bert_tf.weights.translation import entries
from export import check
from export.encoder import export_encoder
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary, load_vocab, write_vocab

CONFIG = BertConfig(12, 8, 2, 2, 16, hidden_act="gelu_new", max_position_embeddings=10)
# The first published encoders had other names; see TF-Hub's bert_en_uncased_L-12_H-768_A-12/1.
EARLIER_NAMES = {
    "word_embeddings/embeddings": "word_embeddings/embeddings",
    "position_embedding/embeddings": "embedding_postprocessor/position_embeddings",
    "type_embeddings/embeddings": "embedding_postprocessor/type_embeddings",
    "embeddings/layer_norm/": "embedding_postprocessor/layer_norm/",
    "transformer/layer": "encoder/layer",
    "self_attention/attention_output/": "self_attention_output/",
}


@pytest.fixture
def encoder(garden, tmp_path):
    """A copy of the Model Garden's encoder, to damage."""
    return shutil.copytree(garden / "encoder", tmp_path / "encoder")


def change_graph(encoder, change):
    graph = saved_model_pb2.SavedModel.FromString((encoder / "saved_model.pb").read_bytes())
    change(graph.meta_graphs[0])
    (encoder / "saved_model.pb").write_bytes(graph.SerializeToString())


@pytest.mark.parametrize("kind", ["encoder", "training"])
def test_outputs_of_the_model_garden(garden, kind):
    """Oracle: those of the exported functions, and of the model that was trained."""
    checkpoint = open_checkpoint(str(garden / kind))
    assert checkpoint.spec.config == CONFIG
    if kind == "encoder":
        assert checkpoint.spec.vocab.tokens[5:7] == ("a", "b")
        assert checkpoint.spec.lower_case is True
        assert checkpoint.unused == ("do_lower_case",)
    theirs = dict(np.load(garden / f"{kind}.npz"))
    if kind == "training":  # The next-sentence head's pooler is its own.
        del theirs["pooled_output"]
    inputs = {name: x for name, x in theirs.items() if x.dtype == np.int32}
    ours = pretrainer(checkpoint)(inputs)
    ours |= {f"layer_{index}": layer for index, layer in enumerate(ours["encoder_outputs"])}
    ours["next_sentence"] = ours["next_sentence_logits"]
    for name in theirs.keys() - inputs.keys():
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-5, err_msg=name)


def test_names_of_the_first_encoders(garden, tmp_path):
    """Oracle: the same weights under the present names."""
    present = open_checkpoint(str(garden / "encoder"))
    theirs = model_garden.variables(str(garden / "encoder/variables/variables"))
    root = tf.train.Checkpoint()
    root.do_lower_case = tf.Variable(False, name="Variable")
    root.variables = []
    for name in theirs.keys() - {"do_lower_case"}:
        if not name.startswith("cls/"):
            value = theirs[name].read()
            for new, old in EARLIER_NAMES.items():
                name = name.replace(new, old)
            root.variables.append(tf.Variable(value, name=f"bert_model/{name}"))
    tf.saved_model.save(root, str(tmp_path))
    checkpoint = open_checkpoint(str(tmp_path))
    same = {name: t for name, t in present.tensors.items() if "masked_lm" not in name}
    assert_same_tensors(checkpoint.tensors, same)
    assert checkpoint.spec.config == CONFIG
    assert (checkpoint.spec.vocab, checkpoint.spec.lower_case) == (None, False)


def test_activation_of_the_model_garden(encoder):
    """Oracle: only the exact form of GELU has the operation Erf."""

    def change(graph):
        graph.graph_def.library.function[0].node_def.add(op="Erf")

    change_graph(encoder, change)
    assert open_checkpoint(str(encoder)).spec.config.hidden_act == "gelu"


@pytest.fixture(scope="module")
def export(garden, tmp_path_factory):
    keras.utils.set_random_seed(1)
    config = dataclasses.replace(CONFIG, num_hidden_layers=1, layer_norm_eps=1e-6)
    model = BertPretrainer(config)
    folder = tmp_path_factory.mktemp("own") / "encoder"
    vocab = str(garden / "encoder/assets/vocab.txt")
    with int32_only():
        export_encoder(model, vocab, str(folder), do_lower_case=False)
    return model, folder


def test_weights_of_an_own_export(export, garden, tmp_path):
    """Oracles: the model that was exported, and its vocabulary; the line about its file."""
    model, folder = export
    checkpoint = open_checkpoint(str(folder))
    expected = {w.path: w.numpy() for w in model.weights if "seed" not in w.path}
    found = {name: tensor.read() for name, tensor in checkpoint.tensors.items()}
    head = [f"pretrainer/next_sentence/dense_{name}" for name in ("kernel", "bias")]
    assert_equal(found, {name: expected[name] for name in expected if name not in head})
    vocab = load_vocab(str(garden / "encoder/assets/vocab.txt"))
    assert checkpoint.spec == ModelSpec(model.config, vocab, lower_case=False)
    assert read_preprocessor(str(folder)) is None
    folder = shutil.copytree(folder, tmp_path / "encoder")
    shutil.rmtree(folder / "assets.extra")
    assert_refused(folder, "does not state its configuration: convert it with")
    assert open_checkpoint(str(folder), model.config).spec == checkpoint.spec


def test_an_own_export_in_8_bits(export, tmp_path, garden):
    """Oracle: the line."""
    vocab = str(garden / "encoder/assets/vocab.txt")
    with int32_only():
        export_encoder(export[0].encoder, vocab, f"{tmp_path}/e", do_lower_case=False, int8=True)
    assert_refused(tmp_path / "e", "is an encoder in 8 bits, which is only for serving: give")


def test_a_configuration_that_contradicts_the_source_is_refused(export, garden, tmp_path):
    """Oracle: the configuration of the export; the operations in the Model Garden's functions,
    which computes the tanh form by the name "gelu"."""
    model, folder = export
    file = str(tmp_path / "c.json")

    def to_run(source, **changes):
        dataclasses.replace(model.config, **changes).to_json_file(file)
        output = str(tmp_path / "run")
        shutil.rmtree(output, ignore_errors=True)
        flags = dict(output_dir=output, bert_config_file=file)
        convert(ConversionOptions(from_=str(source), to="run", **flags))
        return open_checkpoint(output).spec.config

    assert to_run(folder) == model.config
    for act in ("gelu", "relu"):
        with pytest.raises(ValueError, match=f"_config.json, .*hidden_act .gelu_new, not {act}"):
            to_run(folder, hidden_act=act)
    two = dict(num_hidden_layers=2)
    assert to_run(garden / "encoder", hidden_act="gelu", **two).hidden_act == "gelu_new"


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (lambda _: {"tokenize": tf.train.Checkpoint()}, "is a preprocessor: give the SavedM"),
        (lambda _: {"x": tf.Variable(0.0, name="task_model/head/dense_bias")}, "is a fine-tuned"),
        (lambda file: {"sp_model_file": tf.saved_model.Asset(file)}, "with a SentencePiece vocab"),
        (lambda _: {"x": tf.Variable(0.0, name="conv/kernel")}, r"another .* \(it holds conv/ker"),
    ],
)
def test_what_is_no_encoder(garden, tmp_path, attributes, message):
    values = attributes(str(garden / "encoder/assets/vocab.txt"))
    tf.saved_model.save(tf.train.Checkpoint(**values), str(tmp_path))
    assert_refused(tmp_path, message)


def rewritten(file, change):
    return lambda encoder: (encoder / file).write_bytes(change((encoder / file).read_bytes()))


def lead_outside(graph):
    graph.asset_file_def[0].filename = "../../secret.txt"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (rewritten("saved_model.pb", lambda _: b"no protobuf"), "saved_model.pb is damaged or inc"),
        (rewritten("variables/variables.index", lambda x: x[:1000]), "variables is damaged or inc"),
        (rewritten("assets/vocab.txt", lambda x: x + b"more\n"), "more than the vocab_size 12"),
        (lambda e: change_graph(e, lead_outside), "vocabulary ../../secret.txt is not a file in"),
        (lambda e: change_graph(e, lambda g: g.ClearField("object_graph_def")), "of TensorFlow 1"),
        (lambda e: shutil.rmtree(e / "variables"), "is a SavedModel without variables"),
    ],
)
def test_damaged_files(encoder, damage, message):
    damage(encoder)
    assert_refused(encoder, message)


@pytest.mark.slow
def test_the_check_passes(garden, capsys):
    """Oracle: the Model Garden's export, whose signature has no readable names."""
    check.run(check.Options(saved_model_dir=str(garden / "encoder")))
    *lines, last = capsys.readouterr().out.splitlines()
    (advice,) = [line for line in lines if line.startswith(("WRONG", "advice"))]
    assert advice.startswith("advice  the outputs of serving_default are named default, pooled")
    assert last == "19 of 20 checks passed."


def test_download(garden, monkeypatch):
    """Oracle: the URL is handed to TensorFlow Hub."""
    url = "https://tfhub.dev/tensorflow/bert_en_uncased_L-12_H-768_A-12/4"
    monkeypatch.setattr("tensorflow_hub.resolve", {url: str(garden / "encoder")}.__getitem__)
    assert open_checkpoint(f"tfhub:{url}").path == str(garden / "encoder")


@pytest.fixture
def training(garden, tmp_path):
    """A copy of the training checkpoint, to put files beside it."""
    return shutil.copytree(garden / "training", tmp_path / "training")


def test_every_variable_is_accounted_for(garden):
    """Oracles: the variables in the file; its path without the ending, however it is named."""
    path = str(garden / "training/ckpt-1")
    for name in ("", "ckpt-1.index"):
        assert open_checkpoint(str(garden / "training" / name)).path == path
    checkpoint = open_checkpoint(path)
    config = checkpoint.spec.config
    table = entries(model_garden.rows(config), config)
    count = sum(len(entry.theirs) for entry in table)
    in_file = [name for name, _ in tf.train.list_variables(path) if not name.startswith("_CHECK")]
    assert len(checkpoint.unused) + count == len(in_file)
    assert "save_counter" in checkpoint.unused
    assert "pooler_transform/kernel" in checkpoint.unused


def test_files_beside_it(garden, training):
    """Oracle: the vocabulary of the export; "gelu" is the tanh form in the Model Garden."""
    config = dataclasses.replace(CONFIG, hidden_act="gelu", hidden_dropout_prob=0.2)
    config.to_json_file(str(training / "bert_config.json"))
    shutil.copy(garden / "encoder/assets/vocab.txt", training)
    checkpoint = open_checkpoint(str(training))
    assert checkpoint.spec.config == dataclasses.replace(CONFIG, hidden_dropout_prob=0.2)
    assert len(checkpoint.spec.vocab) == 12
    assert checkpoint.stated_casing is None


QUERY = "transformer/layer_0/self_attention/query/kernel"
NEEDED = {
    "word_embeddings/embeddings": (12, 8),
    "position_embedding/embeddings": (10, 8),
    "type_embeddings/embeddings": (2, 8),
    "transformer/layer_0/intermediate/kernel": (8, 16),
    QUERY: (8, 2, 4),
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"another/kernel": (1,)}, "it lacks: embeddings/layer_norm/gamma, .*holds: ano"),
        ({QUERY: (8, 8)}, "do not give a configuration .*bert_config_file"),
    ],
)
def test_bad_variables(tmp_path, changes, message):
    """Oracle: the message says what is missing, or that the heads are unknown."""
    shapes = (NEEDED | changes).items()
    variables = [tf.Variable(np.zeros(shape), name=name) for name, shape in shapes]
    path = tf.train.Checkpoint(model=variables).write(str(tmp_path / "ckpt"))
    with pytest.raises(ValueError, match=message):
        model_garden.open_(path, None)


@pytest.mark.parametrize("size", [-20000, 1000])
def test_a_truncated_file(training, size):
    """Oracle: the message names it; a file that is too small for its shapes is not read at all."""
    file = training / "ckpt-1.data-00000-of-00001"
    file.write_bytes(file.read_bytes()[:size])
    assert_refused(training, "ckpt-1 is damaged or incomplete: download or copy it")
    if size > 0:
        with pytest.raises(OSError, match="ckpt-1 is damaged"):
            open_checkpoint(str(training))


class _GardenPreprocessor(tf.Module):
    """Has the vocabulary and the operations of the Model Garden's preprocessors.

    Source: tensorflow/models official/nlp/modeling/layers/text_layers.py `BertTokenizer`.
    """

    def __init__(self, vocab_file: str, lower_case: bool):
        super().__init__()
        vocab, lookup = load_vocab(vocab_file), tf.lookup.TextFileIndex
        columns = tf.string, lookup.WHOLE_LINE, tf.int64, lookup.LINE_NUMBER
        initializer = tf.lookup.TextFileInitializer(vocab_file, *columns)
        self.table = table = tf.lookup.StaticVocabularyTable(initializer, 1, tf.string)
        tokenizer = tf_text.BertTokenizer(table, token_out_type=tf.int32, lower_case=lower_case)
        self.bert_pack_inputs = tf.Module()

        @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
        def call(sentences):
            return pack_segments([tokenizer.tokenize(sentences)], 24, vocab)

        self.call = call


@pytest.mark.parametrize("lower_case", [False, True])
def test_reads_the_preprocessor_of_another_program(tmp_path, lower_case):
    """Oracles: what the SavedModel was made from, and what it computes; tests/export has ours."""
    vocab = Vocabulary((*SPECIAL_TOKENS, "A", "É", "中", *"abcde", "##b", "##É"))
    write_vocab(f"{tmp_path}/words.txt", vocab)
    module, folder = _GardenPreprocessor(f"{tmp_path}/words.txt", lower_case), tmp_path / "saved"
    tf.saved_model.save(module, str(folder), {"serving_default": module.call})
    saved = read_preprocessor(str(folder))
    assert saved == (vocab, lower_case, 24)
    texts = tf.constant(["A b", "", "ÉÉ 中abc", "a b c d e a b c"])
    expected = module.call(texts)
    for name, values in BertPreprocessor(*saved)(texts).items():
        np.testing.assert_array_equal(values, expected[name])
    change_graph(folder, lambda graph: graph.signature_def.clear())
    with pytest.raises(ValueError, match="does not state the length of its outputs"):
        read_preprocessor(str(folder))

"""Checkpoints of google-research/bert and google-research/albert, against TensorFlow 1's own."""

import dataclasses
import json
import os
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
from checkpoints import assert_equal, assert_refused, of_arrays, written
from support import edit_json

from bert_tf.config import BertConfig, Head, ModelSpec, preset_config
from bert_tf.models.task_model import BertTaskModel
from bert_tf.runs.run import Run
from bert_tf.weights.checkpoint import Checkpoint, load_weights
from bert_tf.weights.formats import google
from bert_tf.weights.opening import open_checkpoint
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary, load_vocab, write_vocab

VOCAB = Vocabulary((*SPECIAL_TOKENS, "a", "##b"))
CONFIG = BertConfig(len(VOCAB), 8, 2, 2, 12, max_position_embeddings=10)


def variables(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """The variables that run_pretraining.py of google-research/bert and albert makes."""
    hidden, inner, vocab = config.hidden_size, config.intermediate_size, config.vocab_size
    width = config.embedding_size or hidden
    dense = {
        "bert/pooler/dense": (hidden, hidden),
        "cls/predictions/transform/dense": (hidden, width),
    }
    norms = {"bert/embeddings/LayerNorm": width, "cls/predictions/transform/LayerNorm": width}
    if config.embedding_size:
        dense["bert/encoder/embedding_hidden_mapping_in"] = (width, hidden)
        block = "bert/encoder/transformer/group_0/inner_group_0"
        network = f"{block}/ffn_1/intermediate"
        norms |= {f"{block}/LayerNorm": hidden, f"{block}/LayerNorm_1": hidden}
        scopes = [(f"{block}/attention_1", network, f"{network}/output")]
    else:
        layers = [f"bert/encoder/layer_{index}" for index in range(config.num_hidden_layers)]
        norms |= {f"{layer}/attention/output/LayerNorm": hidden for layer in layers}
        norms |= {f"{layer}/output/LayerNorm": hidden for layer in layers}
        scopes = [[f"{x}/attention", f"{x}/intermediate", f"{x}/output"] for x in layers]
    for attention, intermediate, output in scopes:
        dense |= {f"{attention}/self/{x}": (hidden, hidden) for x in ("query", "key", "value")}
        dense[f"{attention}/output/dense"] = (hidden, hidden)
        dense |= {f"{intermediate}/dense": (hidden, inner), f"{output}/dense": (inner, hidden)}
    shapes = {
        "bert/embeddings/word_embeddings": (vocab, width),
        "bert/embeddings/token_type_embeddings": (config.type_vocab_size, width),
        "bert/embeddings/position_embeddings": (config.max_position_embeddings, width),
        "cls/predictions/output_bias": (vocab,),
        "cls/seq_relationship/output_weights": (2, hidden),
        "cls/seq_relationship/output_bias": (2,),
    }
    for name, shape in dense.items():
        shapes |= {f"{name}/kernel": shape, f"{name}/bias": shape[1:]}
    for name, size in norms.items():
        shapes |= {f"{name}/beta": (size,), f"{name}/gamma": (size,)}
    return shapes


def random_values(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape).astype("f") for name, shape in shapes.items()}


def save(prefix: str, values: dict[str, np.ndarray], adam: bool = False) -> None:
    """Saves variables as TensorFlow 1 does; with `adam`, as in training, its graph, too."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        created = [v1.get_variable(name, initializer=value) for name, value in values.items()]
        if adam:
            loss = sum(tf.reduce_sum(variable) for variable in created)
            step = v1.train.get_or_create_global_step()
            v1.train.AdamOptimizer().minimize(loss, step, created)
        session.run(v1.global_variables_initializer())
        step = None if prefix.endswith("bert_model.ckpt") else 1000
        v1.train.Saver().save(session, prefix, step, write_meta_graph=adam)


VALUES = random_values(variables(CONFIG))
SQUAD = random_values({"cls/squad/output_weights": (2, 8), "cls/squad/output_bias": (2,)})
CLASSES = random_values({"output_weights": (3, 8), "output_bias": (3,)})
ENCODER = {name: value for name, value in VALUES.items() if name.startswith("bert/")}


SHARED = dict(embedding_size=4, num_hidden_groups=1, classifier_dropout_prob=0.1)
ALBERT = dataclasses.replace(CONFIG, vocab_size=178, hidden_act="gelu_new", **SHARED)
SPIECE = pathlib.Path(__file__).parent / "family" / "AlbertForMaskedLM" / "spiece.model"


def test_an_albert_of_tensorflow_1_travels_in_both_directions(tmp_path):
    """Oracle: the variables of google-research/albert, and the keys of its albert_config.json."""
    folder, values = tmp_path / "albert_base", random_values(variables(ALBERT)) | CLASSES
    folder.mkdir()
    theirs = ALBERT.to_dict() | {"hidden_act": "gelu", "gap_size": 0}
    del theirs["layer_norm_eps"], theirs["classifier_dropout_prob"]
    (folder / "albert_config.json").write_text(json.dumps(theirs))
    (folder / "30k-clean.model").write_bytes(SPIECE.read_bytes())
    save(str(folder / "model.ckpt-best"), values)
    opened = open_checkpoint(str(folder))
    assert (opened.format, opened.head, opened.unused) == ("Google", Head("classifier"), ())
    # Its gelu() is the tanh form, and its create_model() drops 0.1 before the classifier.
    # Its run_classifier.py lower-cases text unless a flag says otherwise.
    spec = ModelSpec(ALBERT, load_vocab(str(SPIECE)), True)
    assert (opened.spec, opened.vocab_file) == (spec, str(folder / "30k-clean.model"))
    again = written(google, opened, tmp_path / "written")
    assert_equal(read_all(again), values)
    assert open_checkpoint(again).spec == spec
    edit_json(folder / "albert_config.json", hidden_act="swish")
    assert_refused(folder, "^.*/albert_config.json: hidden_act 'swish' is not one")


@pytest.fixture
def folder(tmp_path):
    """A folder as Google publishes it, without the checkpoint."""
    path = tmp_path / "uncased_L-2_H-8_A-2"
    path.mkdir()
    Run(str(path)).write(ModelSpec(CONFIG, VOCAB))
    return path


def test_a_checkpoint_of_tensorflow_1_is_read(folder):
    """Oracle: the values given to TensorFlow 1's Saver; QKV joined by hand."""
    prefix = str(folder / "bert_model.ckpt")
    save(prefix, VALUES, adam=True)
    for path in (str(folder), prefix, f"{prefix}.meta", f"{prefix}.data-00000-of-00001"):
        opened = open_checkpoint(path)
        assert (opened.path, opened.format, opened.head) == (prefix, "Google", None)
        assert opened.spec == ModelSpec(CONFIG, VOCAB, True)
    assert opened.vocab_file == str(folder / "vocab.txt")
    assert {"global_step", "bert/pooler/dense/kernel/Adam_1", "beta1_power"} < set(opened.unused)
    assert not set(opened.unused) & VALUES.keys()
    ours = {path: tensor.read() for path, tensor in opened.tensors.items()}
    layer = "bert/encoder/layer_1/attention/self"
    joined = [VALUES[f"{layer}/{name}/kernel"] for name in ("query", "key", "value")]
    np.testing.assert_array_equal(
        ours["encoder/layer_1/attention/qkv_kernel"], np.concatenate(joined, axis=1)
    )
    for path, name in (
        ("encoder/embeddings/word_embeddings", "bert/embeddings/word_embeddings"),
        ("encoder/layer_0/output_kernel", "bert/encoder/layer_0/output/dense/kernel"),
        ("pretrainer/masked_lm/output_bias", "cls/predictions/output_bias"),
    ):
        np.testing.assert_array_equal(ours[path], VALUES[name])
    np.testing.assert_array_equal(
        ours["pretrainer/next_sentence/dense_kernel"],
        VALUES["cls/seq_relationship/output_weights"].T,
    )


def test_the_folder_of_a_tensorflow_1_run_is_read(folder):
    """Oracle: the file `checkpoint` that TensorFlow 1 writes; without it, the last step."""
    save(str(folder / "model.ckpt"), ENCODER | CLASSES)
    save(str(folder / "bert_model.ckpt"), ENCODER)
    # The Saver of the second program knows of one checkpoint only.
    assert open_checkpoint(str(folder)).head is None
    listed = 'model_checkpoint_path: "/elsewhere/{}"'
    (folder / "checkpoint").write_text(listed.format("bert_model.ckpt"))
    assert open_checkpoint(str(folder)).path == str(folder / "bert_model.ckpt")
    (folder / "checkpoint").write_text(listed.format("model.ckpt-2000"))
    assert open_checkpoint(str(folder)).path == str(folder / "model.ckpt-1000")
    (folder / "checkpoint").unlink()
    assert open_checkpoint(str(folder)).path == str(folder / "model.ckpt-1000")


@pytest.mark.parametrize(("kind", "head"), [("classifier", CLASSES), ("span", SQUAD)])
def test_heads_travel_in_both_directions(folder, tmp_path, kind, head):
    """Oracle: run_classifier.py keeps its head at the top, run_squad.py under cls/squad."""
    save(str(folder / "model.ckpt"), ENCODER | head)
    opened = open_checkpoint(str(folder))
    assert opened.head == Head(kind)
    assert_equal(read_all(written(google, opened, tmp_path / "written")), ENCODER | head)


def read_all(folder: str) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(f"{folder}/bert_model.ckpt")
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def test_tensorflow_1_reads_what_is_written(folder, tmp_path):
    """Oracle: TensorFlow 1's Saver; names, shapes and values bit for bit, in Google's order."""
    save(str(folder / "bert_model.ckpt"), VALUES)
    path = written(google, open_checkpoint(str(folder)), tmp_path / "written")
    assert sorted(os.listdir(path)) == [
        "bert_config.json",
        "bert_model.ckpt.data-00000-of-00001",
        "bert_model.ckpt.index",
        "tokenizer_config.json",
        "vocab.txt",
    ]
    data = b"".join(VALUES[name].tobytes() for name in sorted(VALUES))
    prefix, v1 = f"{path}/bert_model.ckpt", tf.compat.v1
    assert pathlib.Path(f"{prefix}.data-00000-of-00001").read_bytes() == data
    with tf.Graph().as_default(), v1.Session() as session:
        found = {name: v1.get_variable(name, value.shape) for name, value in VALUES.items()}
        # `get_assignment_map_from_checkpoint` of google-research/bert.
        names = {name: name for name, _ in tf.train.list_variables(prefix)}
        assert names.keys() == VALUES.keys()
        v1.train.init_from_checkpoint(prefix, names)
        session.run(v1.global_variables_initializer())
        for name, value in session.run(found).items():
            np.testing.assert_array_equal(value, VALUES[name])
        v1.train.Saver().restore(session, prefix)
    # The name of this folder says nothing about the casing.
    assert open_checkpoint(path).spec == ModelSpec(CONFIG, VOCAB, True)


def test_an_archive_opens_like_the_folder_in_it(folder):
    """Oracle: the folder; the name of the archive states the casing; messages name the archive."""
    empty = shutil.make_archive(str(folder), "gztar", folder.parent, folder.name)
    assert_refused(empty, f"^{empty}: no checkpoint found")
    (folder / "tokenizer_config.json").unlink()
    save(str(folder / "bert_model.ckpt"), VALUES)
    # macOS adds such files to archives.
    for file in [*folder.iterdir()]:
        (folder / f"._{file.name}").write_bytes(b"Mac OS X")
    path = shutil.make_archive(str(folder), "zip", folder)
    shutil.rmtree(folder)
    opened = open_checkpoint(path)
    assert (opened.path, opened.format) == (path, "Google")
    assert opened.spec == ModelSpec(CONFIG, VOCAB, True)
    word_embeddings = opened.tensors["encoder/embeddings/word_embeddings"].read()
    np.testing.assert_array_equal(word_embeddings, VALUES["bert/embeddings/word_embeddings"])


@pytest.mark.parametrize("name", ["uncased_L-8_H-512_A-8", "chinese_L-12_H-768_A-12"])
def test_published_checkpoints_have_the_names_and_shapes_of_the_table(shared_data, tmp_path, name):
    """Oracle: the index files of two published checkpoints, before a file of zeros."""
    source = shared_data / "weights" / "google_checkpoint_index"
    prefix = tmp_path / name / "bert_model.ckpt"
    prefix.parent.mkdir()
    shutil.copy(source / f"{name}.bert_model.ckpt.index", f"{prefix}.index")
    shutil.copy(source / f"{name}.bert_config.json", prefix.parent / "bert_config.json")
    rows = (source / f"{name}.variables.tsv").read_text().splitlines()[1:]
    with open(f"{prefix}.data-00000-of-00001", "wb") as file:
        file.truncate(sum(int(row.split("\t")[4]) for row in rows))
    opened = open_checkpoint(str(prefix.parent))
    assert opened.spec.lower_case is True
    shapes = variables(opened.spec.config)
    assert [row.split("\t")[:2] for row in rows] == [
        [name, ",".join(map(str, shapes[name]))] for name in sorted(shapes)
    ]
    with pytest.raises(OSError, match="bert_model.ckpt is damaged or incomplete: download or copy"):
        opened.tensors["encoder/pooler/dense_bias"].read()


def test_real_bert_tiny_gives_its_reference_outputs(shared_data, tmp_path):
    """Oracle: the outputs of the published weights in another implementation."""
    weights = dict(np.load(shared_data / "weights/bert_tiny_sst2_encoder.npz"))
    reference = np.load(shared_data / "weights/bert_tiny_sst2_encoder_reference.npz")
    config = preset_config("tiny", 30)
    embeddings = {name: shape for name, shape in variables(config).items() if "embedd" in name}
    config.to_json_file(str(tmp_path / "bert_config.json"))
    save(str(tmp_path / "model.ckpt"), random_values(embeddings) | weights)
    opened = open_checkpoint(str(tmp_path))
    model = BertTaskModel(config, 2)
    load_weights(opened.path, opened.tensors, model.weights)
    x = reference["embedding_output"][None]
    for index, block in enumerate(model.encoder.blocks):
        x = block(x, np.ones((1, 1, 1, x.shape[1]), bool))
        np.testing.assert_allclose(x[0], reference[f"layer_{index}_output"], atol=1e-5)
    pooled = model.encoder.pooler(x)
    np.testing.assert_allclose(pooled[0], reference["pooled_output"], atol=1e-5)
    np.testing.assert_allclose(model.head(pooled)[0], reference["logits"], atol=1e-5)


@pytest.mark.parametrize("form", ["gelu", "gelu_new"])
def test_the_form_of_gelu_is_stated(tmp_path, form):
    """Oracle: round trip; google-research/bert knows one name only."""
    config = dataclasses.replace(CONFIG, hidden_act=form)
    google.write(made_up(config), str(tmp_path))
    values = json.loads((tmp_path / "bert_config.json").read_text())
    assert values["hidden_act"] == "gelu" and values["gelu_approximate"] is (form == "gelu_new")
    opened = open_checkpoint(str(tmp_path))
    assert opened.spec.config == config
    edit_json(tmp_path / "bert_config.json", gelu_approximate=None)
    assert open_checkpoint(str(tmp_path)).spec.config.hidden_act == "gelu"


def made_up(config: BertConfig, head: Head | None = None) -> Checkpoint:
    """Returns a checkpoint without weights beyond the encoder's, all zero."""
    shapes = variables(config).items()
    theirs = {name: np.zeros(shape, "f") for name, shape in shapes if name.startswith("bert/")}
    checkpoint = of_arrays(theirs, ModelSpec(config), head)
    return google.import_tensors(checkpoint, google.rows(config))


def test_the_name_of_the_folder_states_the_casing(tmp_path):
    """Oracle: the names of Google's models, and which google-research/bert takes as lower-cased."""
    folder = pathlib.Path(written(google, made_up(CONFIG), tmp_path / "chinese_model"))
    assert open_checkpoint(str(folder)).spec.lower_case is None
    for lower_case, names in (
        (True, "uncased_L-2 multilingual_L-12 chinese_L-12 wwm_uncased_L-24"),
        (False, "cased_L-12 multi_cased_L-12"),
    ):
        for name in names.split():
            folder = folder.rename(tmp_path / f"{name}_H-768_A-12")
            assert open_checkpoint(str(folder)).spec.lower_case is lower_case, name


def test_models_that_google_does_not_have_are_named(tmp_path, capsys):
    """Oracle: google-research/bert modeling.py, which has no such keys and a fixed epsilon."""
    for changes, head, message in (
        ({"is_decoder": True}, None, "is_decoder is True, which google-research/bert does not"),
        ({"pruned_heads": {0: [1]}}, None, "pruned_heads is {0: .1,.}, which google-research"),
        ({}, Head("tagger"), "--to=google has no tagger: use --to=run"),
    ):
        spec = ModelSpec(dataclasses.replace(CONFIG, **changes))
        with pytest.raises(ValueError, match=f"^made up: {message}"):
            google.write(of_arrays({}, spec, head), str(tmp_path))
    assert not os.listdir(tmp_path)
    google.write(made_up(dataclasses.replace(CONFIG, layer_norm_eps=1e-5)), str(tmp_path))
    assert capsys.readouterr().out == (
        "WARNING: made up was trained with layer_norm_eps 1e-05, but google-research/bert "
        "always uses 1e-12\n"
    )


def test_files_that_do_not_fit_are_named(folder):
    """Oracle: one file changed by hand at a time."""
    prefix = str(folder / "bert_model.ckpt")
    save(prefix, VALUES)
    write_vocab(str(folder / "vocab.txt"), Vocabulary((*VOCAB.tokens, "c")))
    (folder / "tokenizer_config.json").unlink()
    assert_refused(prefix, "vocab.txt has 8 tokens, more than the vocab_size 7")
    write_vocab(str(folder / "vocab.txt"), VOCAB)
    dataclasses.replace(CONFIG, is_decoder=True).to_json_file(str(folder / "bert_config.json"))
    assert_refused(prefix, f"^{folder}/bert_config.json: is_decoder is True, which google-res")
    (folder / "bert_config.json").unlink()
    assert_refused(prefix, "bert_config.json: no such file")
    assert open_checkpoint(prefix, CONFIG).config_file is None
    CONFIG.to_json_file(str(folder / "bert_config.json"))
    os.remove(f"{prefix}.data-00000-of-00001")
    assert_refused(prefix, f"^{prefix}.data-00000-of-00001 is missing")
    save(prefix, VALUES)
    os.truncate(f"{prefix}.index", 100)
    assert_refused(folder, f"^{prefix} is damaged or incomplete: download or copy it again$")

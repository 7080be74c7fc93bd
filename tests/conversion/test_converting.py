"""Conversion of checkpoints: every pair of formats, what is named and what is refused."""

import dataclasses
import os
import random
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
from checkpoints import assert_refused, of_arrays, values
from support import assert_same_tensors, edit_json

from bert_tf.config import BertConfig, Head, ModelSpec
from bert_tf.conversion.conversion_options import ConversionOptions as Options
from bert_tf.conversion.converting import convert, write_run
from bert_tf.weights.checkpoint import VocabularyMapping
from bert_tf.weights.names import HEAD_BIAS
from bert_tf.weights.opening import open_checkpoint
from bert_tf.weights.reshaping import complete
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

VOCAB = Vocabulary((*SPECIAL_TOKENS, "a", "##b"))
CONFIG = BertConfig(7, 8, 2, 2, 12, max_position_embeddings=6, hidden_act="gelu_new")
SHARED = dict(embedding_size=4, num_hidden_groups=1, classifier_dropout_prob=0.1)
ALBERT = dataclasses.replace(CONFIG, hidden_dropout_prob=0.0, **SHARED)
PARTS = ("encoder", "pooler")
HEADS = ("masked_lm", "next_sentence")


def save(folder, parts=PARTS, config=CONFIG, head: Head | None = None) -> str:
    empty = of_arrays({}, ModelSpec(config, VOCAB, True))
    shapes = {path: t.shape for path, t in complete(empty, parts, ["*"])[0].tensors.items()}
    if head:
        size = 1 if head.kind == "multiple_choice" else len(head.labels) or 2
        shapes |= {HEAD_BIAS: (size,), HEAD_BIAS.replace("bias", "kernel"): (8, size)}
    random = np.random.default_rng(0)
    arrays = {path: random.normal(size=shape).astype("f") for path, shape in shapes.items()}
    folder.mkdir()
    write_run(of_arrays(arrays, empty.spec, head), str(folder))
    return str(folder)


def to(kind: str, source: str, folder, **flags) -> str:
    convert(Options(from_=source, to=kind, output_dir=str(folder), **flags))
    return str(folder)


def assert_equal(found: str, expected: str, **changes) -> None:
    found, expected = open_checkpoint(found), open_checkpoint(expected)
    assert found.spec == expected.spec
    assert_same_tensors(found.tensors, expected.tensors)
    head = expected.head and dataclasses.replace(expected.head, **changes)
    assert found.head == head


@pytest.mark.parametrize(
    "parts, config, tour",
    [
        (PARTS, CONFIG, "google huggingface kerashub run"),
        ((*PARTS, *HEADS), CONFIG, "google huggingface google run"),
        ((*PARTS, "projection", *HEADS), ALBERT, "google huggingface google run huggingface run"),
    ],
)
def test_a_tour_through_the_formats_returns_every_bit(tmp_path, parts, config, tour):
    """Oracle: the weights, configuration, vocabulary and casing at the start; archives, too."""
    start = path = save(tmp_path / "start", parts, config)
    for number, kind in enumerate(tour.split()):
        path = to(kind, path, tmp_path / f"{number}-{kind}")
        assert_equal(path, start)
        if kind == "google":
            path = shutil.make_archive(path, "zip", path)


@pytest.mark.parametrize(
    "kind, tour, loads",
    [
        ("classifier", "huggingface run", "transformers.BertForSequenceClassification."),
        ("classifier", "google run", "in google-research/bert, --init_checkpoint="),
        ("classifier", "kerashub run", "keras_hub.models.BertTextClassifier."),
        ("multiple_choice", "huggingface run", "transformers.BertForMultipleChoice."),
        ("tagger", "huggingface run", "transformers.BertForTokenClassification."),
        ("span", "google huggingface run", "transformers.BertForQuestionAnswering."),
    ],
)
def test_heads_travel(tmp_path, capsys, kind, tour, loads):
    """Oracles: the weights at the start; the labels, in the format or in the report; the class of
    the other library that has such a head."""
    labels = {"classifier": ("no", "yes", "maybe"), "tagger": ("O", "B-PER")}.get(kind, ())
    start = path = save(tmp_path / "start", head=Head(kind, labels))
    for step in tour.split():
        path = to(step, path, tmp_path / step)
    kept = "huggingface" in tour
    assert_equal(path, start, **({} if kept else {"labels": ()}))
    out = capsys.readouterr().out
    assert loads in out
    assert ("the names of the labels; keep them: no, yes, maybe." in out) == (not kept)
    assert ("Add --pairs if it classifies pairs" in out) == (kind == "classifier")


def test_several_labels_at_once_travel_only_where_a_format_states_them(tmp_path):
    """Oracle: the head at the start; KerasHub and Google's programs would use a softmax."""
    source = save(tmp_path / "start", head=Head("classifier", ("fun", "sad"), multi_label=True))
    for kind in ("google", "kerashub"):
        with pytest.raises(ValueError, match=f"several classes .* --to={kind} cannot .*: use"):
            to(kind, source, tmp_path / kind)
        assert not (tmp_path / kind).exists()
        encoder = to(kind, source, tmp_path / kind, allow_extra="task_model/head/*")
        assert open_checkpoint(encoder).head is None
    path = to("huggingface", source, tmp_path / "huggingface")
    assert_equal(to("run", path, tmp_path / "run"), source)


def test_what_is_missing_or_extra_is_named_or_allowed(tmp_path, capsys):
    """Oracle: a source without a pooler, and with a head that is to be left out."""
    source = save(tmp_path / "start", ("encoder", "next_sentence"))
    allow = dict(allow_extra="pretrainer/next_sentence/*")
    state = random.getstate()
    path = to("kerashub", source, tmp_path / "a", **allow)
    assert random.getstate() == state
    out = capsys.readouterr().out
    assert "Left out of the checkpoint: pretrainer/next_sentence/dense_bias, pretrainer/next" in out
    assert "Initialized randomly: encoder/pooler/dense_kernel, encoder/pooler/dense_bias." in out
    assert f"Wrote {path}: encoder, pooler from {source}/ckpt-0" in out
    other = open_checkpoint(to("kerashub", source, tmp_path / "b", **allow))
    pooler = open_checkpoint(path).tensors["encoder/pooler/dense_kernel"].read()
    # The same command gives the same weights.
    np.testing.assert_array_equal(pooler, other.tensors["encoder/pooler/dense_kernel"].read())
    assert 0 < pooler.std() < 2 * CONFIG.initializer_range
    # These would start from random values.
    allow["allow_extra"] = "encoder/layer_0/*"
    with pytest.raises(ValueError, match="leave out encoder/layer_0/.*, which --to=run needs"):
        to("run", source, tmp_path / "c", **allow)
    assert not (tmp_path / "c").exists()


def test_a_run_without_a_weight_of_its_encoder_is_refused(tmp_path):
    """Oracle: the name of the weight that was taken out."""
    source = open_checkpoint(save(tmp_path / "start"))
    arrays = {path: tensor.read() for path, tensor in source.tensors.items()}
    name = next(path for path in arrays if "layer_0" in path and path.endswith("kernel"))
    del arrays[name]
    (tmp_path / "damaged").mkdir()
    write_run(of_arrays(arrays, source.spec), str(tmp_path / "damaged"))
    with pytest.raises(ValueError, match=f"lacks: {name}; "):
        to("huggingface", str(tmp_path / "damaged"), tmp_path / "a")


def test_a_run_of_pretraining_becomes_a_preset_in_one_command(tmp_path, capsys):
    """Oracle: what KerasHub's BertBackbone holds of it; the report names the rest."""
    config = dataclasses.replace(CONFIG, hidden_act="gelu")
    source = save(tmp_path / "start", (*PARTS, *HEADS), config)
    preset = open_checkpoint(to("kerashub", source, tmp_path / "preset"))
    assert preset.spec == ModelSpec(CONFIG, VOCAB, True)
    tensors = open_checkpoint(source).tensors
    encoder = {path: tensors[path] for path in tensors if path.startswith("encoder/")}
    assert_same_tensors(preset.tensors, encoder)
    out = capsys.readouterr().out
    assert "the tanh form of GELU (gelu_new), and this model the exact one" in out
    assert "Left out of the checkpoint: pretrainer/masked_lm/" in out
    assert ", pretrainer/next_sentence/dense_bias, pretrainer/next_sentence/dense_kernel." in out
    assert "keras_hub.models.BertBackbone.from_preset(" in out


def test_flags_state_what_the_source_does_not(tmp_path):
    """Oracle: the flags; a contradiction names both sides."""
    source = save(tmp_path / "start")
    for name in ("vocab.txt", "tokenizer_config.json"):
        os.remove(os.path.join(source, name))
    vocab_file = tmp_path / "v.txt"
    vocab_file.write_text("\n".join(VOCAB.tokens) + "\n")
    flags = dict(vocab_file=str(vocab_file), do_lower_case=False, hidden_act="gelu")
    spec = open_checkpoint(to("huggingface", source, tmp_path / "a", **flags)).spec
    config = dataclasses.replace(CONFIG, hidden_act="gelu")
    assert spec == ModelSpec(config, VOCAB, False)
    with pytest.raises(ValueError, match="do_lower_case: --do_lower_case says True, but"):
        to("run", str(tmp_path / "a"), tmp_path / "b", do_lower_case=True)
    vocab_file.write_text("\n".join((*VOCAB.tokens[:-1], "c")) + "\n")
    with pytest.raises(ValueError, match="v.txt says .* tokens with checksum"):
        to("run", str(tmp_path / "a"), tmp_path / "b", vocab_file=str(vocab_file))
    with pytest.raises(ValueError, match="a exists and is not empty"):
        to("run", source, tmp_path / "a")


def test_a_model_is_cut_and_grown_on_the_way(tmp_path, capsys):
    """Oracle: the sizes that the flags name; tests/weights/test_reshaping.py has the values."""
    mapping = tmp_path / "mapping.json"
    mapping.write_text(VocabularyMapping(7, 8, {7: (5,)}, {7: "ab"}).to_json())
    vocab_file = tmp_path / "v.txt"
    vocab_file.write_text("\n".join((*VOCAB.tokens, "ab")) + "\n")
    flags = dict(layers="1", max_position_embeddings=9, init_vocab_mapping=str(mapping))
    source = save(tmp_path / "start", (*PARTS, *HEADS))
    flags["vocab_file"] = str(vocab_file)
    grown = open_checkpoint(to("huggingface", source, tmp_path / "a", **flags))
    assert "1 of 8 word embeddings start from the mean" in capsys.readouterr().out
    changes = dict(num_hidden_layers=1, max_position_embeddings=9, vocab_size=8)
    assert grown.spec.config == dataclasses.replace(CONFIG, **changes)
    assert grown.spec.vocab.tokens == (*VOCAB.tokens, "ab")
    assert grown.tensors["pretrainer/masked_lm/output_bias"].shape == (8,)
    with pytest.raises(ValueError, match="init_vocab_mapping has no effect without --vocab_file"):
        Options(from_=source, to="run", output_dir="b", init_vocab_mapping=str(mapping))


def test_a_run_whose_configuration_was_changed_is_refused(tmp_path):
    """Oracle: the shapes of the weights in the checkpoint."""
    source = save(tmp_path / "start")
    for changes, message in (
        ({"vocab_size": 9}, r"word_embeddings \[7, 8\], expected \[9, 8\]"),
        ({"num_hidden_layers": 999}, "the configuration has 999 layers"),
    ):
        dataclasses.replace(CONFIG, **changes).to_json_file(f"{source}/bert_config.json")
        with pytest.raises(ValueError, match=message):
            to("run", source, tmp_path / "a")
        assert not os.path.exists(tmp_path / "a")


@pytest.mark.parametrize("kind", ["run", "google", "huggingface", "kerashub"])
def test_a_configuration_that_contradicts_the_source_is_refused(tmp_path, kind):
    """Oracle: the configuration at the start, which every format states itself."""
    path = to(kind, save(tmp_path / "start"), tmp_path / "source")
    file = str(tmp_path / "c.json")
    CONFIG.to_json_file(file)
    assert_equal(to("run", path, tmp_path / "same", bert_config_file=file), path)
    for changes, message in (
        ({"hidden_act": "relu"}, r"hidden_act \(gelu_new, not relu\): leave out --bert_conf"),
        ({"num_hidden_layers": 3}, r"num_hidden_layers \(2, not 3\): leave"),
    ):
        dataclasses.replace(CONFIG, **changes).to_json_file(file)
        message = rf"source/.*config.json, .* differs from --bert_config_file={file} in {message}"
        with pytest.raises(ValueError, match=message):
            to("run", path, tmp_path / "a", bert_config_file=file)
        assert not (tmp_path / "a").exists()


def test_the_file_of_the_source_does_not_contradict_it(tmp_path):
    """Oracle: Google's ALBERT calls the tanh form "gelu", and --bert_config_file the exact one."""
    start = save(tmp_path / "start", (*PARTS, "projection"), ALBERT)
    google = to("google", start, tmp_path / "google")
    file = tmp_path / "google/albert_config.json"
    os.rename(tmp_path / "google/bert_config.json", file)
    edit_json(file, gelu_approximate=None)
    assert_equal(to("run", google, tmp_path / "run", bert_config_file=str(file)), start)


def test_weights_of_other_types_are_refused(tmp_path, type_="int32"):
    """Oracle: the types that docs/checkpoints.md lists."""
    path = to("google", save(tmp_path / "start"), tmp_path / "google")
    prefix, name = f"{path}/bert_model.ckpt", "bert/pooler/dense/bias"
    reader = tf.train.load_checkpoint(prefix)
    arrays = {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}
    arrays[name] = arrays[name].astype(type_)
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(arrays),
        shape_and_slices=[""] * len(arrays),
        tensors=list(arrays.values()),
    )
    assert_refused(path, f"{name} has type {type_}, not float64 or float32")


def test_names_that_tensorflow_takes_for_patterns_or_does_not_know(tmp_path):
    """Oracle: TensorFlow finds no checkpoint in such a folder; a slash too much is harmless."""
    source = save(tmp_path / "start")
    for kind in ("run", "google"):
        with pytest.raises(ValueError, match=r"finds no checkpoints in folders with \[ in their"):
            to(kind, source, tmp_path / "my [2]")
        google = to("google", source, tmp_path / f"google-{kind}")
        assert_equal(google + "//", source)
        os.rename(google, tmp_path / f"google-{kind}[2]")
        assert_refused(tmp_path / f"google-{kind}[2]", "choose another name")
    assert_refused("https://x/y.zip", "cannot read https://x/y.zip: download it first: ")


def test_weights_that_are_not_finite_are_named(tmp_path, capsys):
    """Oracle: the values of the source, which the result has, too."""
    source, name = open_checkpoint(save(tmp_path / "run")), "encoder/pooler/dense_bias"
    arrays = {path: tensor.read() for path, tensor in source.tensors.items()}
    arrays[name] = np.array([np.nan, np.inf] + [1.0] * 6, np.float32)
    (tmp_path / "bad").mkdir()
    write_run(of_arrays(arrays, source.spec), f"{tmp_path}/bad")
    found = to("huggingface", f"{tmp_path}/bad", tmp_path / "hf")
    printed = capsys.readouterr().out
    assert re.search(rf"WARNING: .* NaN or infinity in {name} \(2 of 8 values\).", printed)
    np.testing.assert_array_equal(values(found)[name], arrays[name])

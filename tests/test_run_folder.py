"""What a run is on disk, and which of several sources decides what a command works on."""

import dataclasses
import json
import os
import pathlib
import re

import pytest
from support import one_device

from bert_tf.base.common_options import DeviceOptions
from bert_tf.config import BertConfig, Head, ModelSpec, preset_config
from bert_tf.pretraining.pretrain import pretrain
from bert_tf.pretraining.pretraining_options import PretrainingOptions
from bert_tf.runs.run import COMMAND, Run
from bert_tf.sessions.session import Session
from bert_tf.weights.checkpoint import Checkpoint, VocabularyMapping
from bert_tf.weights.resolving import EncoderFlags, flag_values, resolve_model, resolve_vocab
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary, write_vocab

VOCAB = Vocabulary((*SPECIAL_TOKENS, "a", "##b"))
CONFIG = BertConfig(len(VOCAB), 16, 1, 2, 32, max_position_embeddings=24)


@pytest.fixture
def run(tmp_path) -> Run:
    return Run(str(tmp_path / "run"))


def save_checkpoint(run: Run) -> None:
    """Leaves the file by which a checkpoint is recognized."""
    pathlib.Path(run.file("ckpt-1.index")).touch()


@pytest.mark.parametrize(
    ("spec", "head"),
    [
        (ModelSpec(CONFIG, VOCAB, False), Head("classifier", ("no", "yes"), True)),
        (ModelSpec(CONFIG, VOCAB, True), Head("span")),
        (ModelSpec(CONFIG), Head("classifier", mean=2.5, deviation=0.1)),
    ],
)
def test_a_run_reads_what_it_wrote(run, spec, head):
    """Oracle: round trip."""
    run.write(spec, {"seed": 1})
    assert run.spec == spec
    assert run.flags == {"seed": 1}
    assert run.head is None
    run.write_head(head)
    assert run.head == head


@pytest.mark.parametrize(
    "values, match",
    [
        ('{"kind": "x"}', "kind is 'x', not"),
        ('{"kind": "span", "labels": 2}', "2"),
        ('{"kind": "embedding", "pooling": 3}', "pooling must be a string, not 3"),
        ('{"kind": "classifier", "multi_label": "no"}', "multi_label must be true or false"),
        ('{"kind": "classifier", "mean": "0"}', "mean must be a finite number, not '0'"),
        ('{"kind": "classifier", "deviation": Infinity}', "deviation must be a finite number"),
        ('{"kind": "classifier", "deviation": 0}', "deviation is 0, not positive"),
        ('{"kind": "classifier", "labels": ["a", " "]}', "a label is empty or .*'a', ' '"),
        ('{"kind": "classifier", "labels": ["a", null]}', "not a list of strings"),
        ('{"kind": "tagger", "labels": ["O", "b", "O"]}', "a label is empty or occurs twice: ren"),
    ],
)
def test_a_damaged_head_is_said(run, values, match):
    """Oracle: the name of the file and the value."""
    os.makedirs(run.path)
    pathlib.Path(run.file("head.json")).write_text(values)
    with pytest.raises(ValueError, match=f"head.json: .*{match}"):
        _ = run.head


def test_other_libraries_read_the_tokenizer(run):
    """Oracle: Hugging Face's keys, which it reads beside any others; the lines of vocab.txt."""
    run.write(ModelSpec(CONFIG, VOCAB, False))
    values = json.loads(pathlib.Path(run.file("tokenizer_config.json")).read_text())
    assert values.pop("vocab_sha256") == VOCAB.sha256
    assert values == {
        "do_lower_case": False,
        "model_max_length": 24,
        "tokenizer_class": "BertTokenizer",
    }
    assert pathlib.Path(run.file("vocab.txt")).read_text().split("\n") == [*VOCAB.tokens, ""]


def test_changed_flags_leave_out_where_a_run_computes(run):
    """Oracle: by hand; a flag that is new since the last start has not changed."""
    saved = DeviceOptions(strategy="cpu", precision="float16").values()
    run.write(ModelSpec(CONFIG), {x: saved[x] for x in saved if x != "tpu_name"})
    options = DeviceOptions(strategy="tpu", tpu_name="new")
    assert run.changed_flags(options.values("place")) == {"precision": ("float16", "float32")}
    run.check_flags(options.values("place", "training"))
    match = r"run was made from .*\(precision=float16, not float32\): choose"
    with pytest.raises(ValueError, match=match):
        run.check_flags(options.values("place"))


def opened(run: Run, replace_vocab: bool = False) -> Checkpoint:
    run = Run(run.path)
    spec = ModelSpec(run.config, None if replace_vocab else run.vocab, run.lower_case)
    vocab_file = run.file("vocab.txt") if spec.vocab else None
    return Checkpoint(run.path, "", spec, {}, None, run.file("bert_config.json"), vocab_file)


def resolve(run: Run, vocabs=None, casings=None, init=None, mapping=None, **flags) -> ModelSpec:
    options = PretrainingOptions(input_file="x", output_dir=run.path, do_train=True)
    resumed = Session(options, one_device(), run).opened().resumed
    flags = EncoderFlags(**flags)
    return resolve_model(resumed, flags, vocabs or {}, casings or {}, init, mapping)


def test_a_damaged_file_is_named(run):
    run.write(ModelSpec(CONFIG, VOCAB, True), {})
    for name, value, content in (
        ("flags.json", "flags", "[1"),
        ("flags.json", "flags", '{"task": 1}'),
        ("flags.json", "flags", '{"max_seq_length": "9"}'),
        ("tokenizer_config.json", "vocab", "[1"),
    ):
        pathlib.Path(run.file(name)).write_text(content)
        with pytest.raises(ValueError, match=f"{run.path}/{name} is damaged .*: "):
            getattr(run, value)


def test_an_evaluation_replaces_no_results_of_others(tmp_path):
    """Oracle: the file."""
    flags = dict(input_file="x", init_checkpoint="y", do_eval=True, output_dir=str(tmp_path))
    (tmp_path / "eval_results.txt").write_text("mine")
    with pytest.raises(ValueError, match="eval_results.txt is damaged: restore it"):
        pretrain(PretrainingOptions(**flags))
    assert (tmp_path / "eval_results.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["vocab.txt", "flags.json", "eval_results.txt", "curves.png"])
def test_a_new_run_replaces_no_file_of_others(tmp_path, name):
    """Oracle: the file; one that has the name of a run's flags but is of no run."""
    run = Run(str(tmp_path))
    run.check_own()
    (tmp_path / "notes.txt").touch()
    (tmp_path / name).write_text("{}")
    with pytest.raises(FileExistsError, match=f"{name} exists: no run wrote it"):
        run.check_own()
    assert (tmp_path / name).read_text() == "{}"
    run.write(ModelSpec(CONFIG), {COMMAND: "run_pretraining"})
    run.check_own()


def test_the_configuration_comes_from_the_first_source_that_has_one(run, tmp_path):
    """Oracle: flags, then the run itself, then the run that gives the weights."""
    init = Run(str(tmp_path / "init"))
    init.write(ModelSpec(CONFIG, VOCAB, False))
    with pytest.raises(ValueError, match="no encoder: give --init_checkpoint, --preset or"):
        resolve(run)
    assert resolve(run, init=opened(init)) == ModelSpec(CONFIG, VOCAB, False)
    dropout = dataclasses.replace(CONFIG, hidden_dropout_prob=0.3)
    dropout.to_json_file(str(tmp_path / "dropout.json"))
    given = dict(bert_config_file=str(tmp_path / "dropout.json"))
    assert resolve(run, init=opened(init), **given).config == dropout
    run.write(ModelSpec(CONFIG, VOCAB, False))
    # What a start that failed left behind does not count.
    with pytest.raises(ValueError, match="no encoder: give --init_checkpoint, --preset or"):
        resolve(run)
    save_checkpoint(run)
    assert resolve(Run(run.path)).config == CONFIG
    vocabs = {"--vocab_file=v": VOCAB}
    fresh = Run(str(tmp_path / "fresh"))
    found = resolve(fresh, preset="tiny", vocabs=vocabs)
    assert found == ModelSpec(preset_config("tiny", len(VOCAB)), VOCAB, None)


def test_a_run_that_started_with_other_weights_resumes_with_its_preset(run):
    """Oracle: the run, which started with the published training values."""
    preset = preset_config("tiny", len(VOCAB))
    stored = dataclasses.replace(preset, initializer_range=0.02, hidden_dropout_prob=0.1)
    run.write(ModelSpec(stored, VOCAB, True))
    save_checkpoint(run)
    assert resolve(run, preset="tiny").config == stored
    with pytest.raises(ValueError, match="differs from --preset=mini in hidden_size"):
        resolve(run, preset="mini")


def test_contradictions_name_both_sources(run, tmp_path):
    other = Vocabulary((*VOCAB.tokens[:-1], "##c"))
    run.write(ModelSpec(CONFIG, VOCAB, False))
    save_checkpoint(run)
    vocabs = {"--vocab_file=v": other}
    with pytest.raises(ValueError, match="vocabulary: --vocab_file=v says .*run/vocab.txt says"):
        resolve(run, vocabs=vocabs)
    write_vocab(str(tmp_path / "other.txt"), other)
    insisted = resolve(run, vocab_file=str(tmp_path / "other.txt"), replace_vocab=True)
    assert insisted == ModelSpec(CONFIG, other, False)
    with pytest.raises(ValueError, match="do_lower_case: a says True, but .*tokenizer_config.json"):
        resolve(run, casings={"a": True})
    larger = {"--vocab_file=v": Vocabulary((*VOCAB.tokens, "c"))}
    config = str(tmp_path / "config.json")
    CONFIG.to_json_file(config)
    with pytest.raises(ValueError, match="--vocab_file=v has 8 tokens, more than the vocab_size 7"):
        empty = Run(str(tmp_path / "empty"))
        resolve(empty, bert_config_file=config, vocabs=larger)
    deeper = dataclasses.replace(CONFIG, num_hidden_layers=2, layer_norm_eps=0.5)
    deeper.to_json_file(config)
    start = Run(str(tmp_path / "start"))
    values = re.escape(
        f"{tmp_path}/config.json in num_hidden_layers ({CONFIG.num_hidden_layers}, not 2), "
        f"layer_norm_eps (1e-12, not 0.5): "
    )
    with pytest.raises(ValueError, match=f"run/bert_config.json, .*, differs from {values}"):
        resolve(start, bert_config_file=config, init=opened(run))
    dataclasses.replace(CONFIG, vocab_size=9).to_json_file(config)
    with pytest.raises(ValueError, match=r"vocab_size \(7, not 9\): .*--init_vocab_mapping if"):
        resolve(start, bert_config_file=config, init=opened(run))
    deeper.to_json_file(config)
    save_checkpoint(run)
    with pytest.raises(ValueError, match=f"run/bert_config.json differs from {values}"):
        resolve(run, bert_config_file=config)


def test_a_growing_vocabulary_is_not_that_of_the_checkpoint(run, tmp_path):
    """Oracle: the mapping's sizes."""
    init = Run(str(tmp_path / "init"))
    init.write(ModelSpec(CONFIG, VOCAB, False))
    longer = Vocabulary((*VOCAB.tokens, "c"))
    mapping = VocabularyMapping(7, 8, {7: (1,)}, {7: "c"})
    vocabs = {"--vocab_file=v": longer}
    spec = resolve(run, vocabs=vocabs, init=opened(init), mapping=mapping)
    assert spec == ModelSpec(dataclasses.replace(CONFIG, vocab_size=8), longer, False)
    # Of the same size: another extension of the same vocabulary, and one of another vocabulary.
    for tokens, message in (
        ((*VOCAB.tokens, "d"), "id 7 is 'c', but here it is 'd': use the mapping"),
        ((*SPECIAL_TOKENS, "##b", "a", "c"), "id 5 is 'a', but here it is '##b'"),
    ):
        vocabs = {"--vocab_file=v": Vocabulary(tokens)}
        with pytest.raises(ValueError, match=message):
            resolve(run, vocabs=vocabs, init=opened(init), mapping=mapping)


def test_a_vocabulary_that_changed_is_noticed(run, tmp_path):
    """Oracle: two tokens change places, by hand; every command reads a run through these calls."""
    run.write(ModelSpec(CONFIG, VOCAB, False))
    save_checkpoint(run)
    swapped = Vocabulary((*SPECIAL_TOKENS, "##b", "a"))
    path = run.file("vocab.txt")
    write_vocab(path, swapped)
    for read in (
        lambda: opened(run),
        lambda: resolve(Run(run.path)),
        lambda: flag_values(path, None),
    ):
        with pytest.raises(ValueError, match="run/vocab.txt has changed .*restore it"):
            read()
    assert resolve_vocab(opened(run, replace_vocab=True), path, replace_vocab=True) == (
        swapped,
        False,
    )
    # A file of another name is not what tokenizer_config.json describes.
    write_vocab(str(tmp_path / "run" / "other.txt"), swapped)
    _, casings = flag_values(str(tmp_path / "run" / "other.txt"), None)
    assert casings == {"--do_lower_case": None}
    # Older runs have no checksum.
    pathlib.Path(run.file("tokenizer_config.json")).write_text('{"do_lower_case": false}')
    assert Run(run.path).vocab == swapped


def test_exports_take_vocabulary_and_casing_from_the_run(run, tmp_path, capsys):
    """Oracle: a cased run, without capitals in its vocabulary; exports as uncased are refused."""
    run.write(ModelSpec(CONFIG, VOCAB, False))
    vocab_file = run.file("vocab.txt")
    assert resolve_vocab(opened(run), None, None) == (VOCAB, False)
    assert capsys.readouterr().out.startswith(f"WARNING: {vocab_file} is uncased, but")
    # A copy of the flag's own beside the casing, and a vocabulary without one.
    assert resolve_vocab(None, vocab_file, None) == (VOCAB, False)
    for checkpoint in (opened(run), None):
        with pytest.raises(ValueError, match="do_lower_case: --do_lower_case says True, but"):
            resolve_vocab(checkpoint, vocab_file, True)
    alone = tmp_path / "vocab.txt"
    alone.write_text("\n".join(VOCAB.tokens))
    for casing in (None, True):
        assert resolve_vocab(None, str(alone), casing) == (VOCAB, True)
    bare = Run(str(tmp_path / "bare"))
    bare.write(ModelSpec(CONFIG))
    with pytest.raises(ValueError, match="bare comes without a vocabulary: give --vocab_file"):
        resolve_vocab(opened(bare), None, True)

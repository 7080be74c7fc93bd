"""Fine-tuning from files to a SavedModel, on words that give the label away."""

import dataclasses
import pathlib
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import run_finetuning
from bert_tf.config import BertConfig
from bert_tf.finetuning import run as finetune
from bert_tf.finetuning.run import read_results
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.task_model import BertTaskModel, ClassificationObjective
from bert_tf.run_finetuning import Options, run
from bert_tf.text.packing import pack_segments
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training import checkpoints
from bert_tf.weights.loading import load_weights
from tfrecords.vocabulary import load_vocab

WORDS = ("good", "bad", *"abcdefgh")
CONFIG = BertConfig(20, 16, 2, 2, 32, max_position_embeddings=32, initializer_range=0.1)
CONFIG_TRAINED = BertConfig.from_dict(CONFIG.to_dict() | {"hidden_dropout_prob": 0.2})


def sentences(count: int, seed: int) -> list[tuple[str, int]]:
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        label = int(random.integers(2))
        words = [*random.choice(WORDS[2:], random.integers(1, 20)), *[WORDS[1 - label]] * 6]
        random.shuffle(words)
        rows.append((" ".join(words), label))
    return rows


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> pathlib.Path:
    """SST-2 and IMDB made of these sentences, a vocabulary and a configuration."""
    folder = tmp_path_factory.mktemp("files")
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocab))
    CONFIG.to_json_file(str(folder / "bert_config.json"))
    (folder / "SST-2").mkdir()
    for seed, (split, count) in enumerate({"train": 320, "dev": 50}.items()):
        lines = [f"{text}\t{label}\n" for text, label in sentences(count, seed)]
        (folder / "SST-2" / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(lines))
    for split in ("train", "test"):
        for label in ("neg", "pos"):
            (folder / "aclImdb" / split / label).mkdir(parents=True)
        for index, (text, label) in enumerate(sentences(160, seed=len(split))):
            path = folder / "aclImdb" / split / ("neg", "pos")[label] / f"{index}_1.txt"
            path.write_text(text)
    return folder


def make_options(files: pathlib.Path, output_dir: pathlib.Path, **changes) -> Options:
    values = dict(
        task="sst2",
        data_dir=str(files),
        vocab_file=str(files / "vocab.txt"),
        bert_config_file=str(files / "bert_config.json"),
        output_dir=str(output_dir),
        max_seq_length=24,
        train_batch_size=16,
        learning_rate=3e-3,
    )
    return Options(**values | changes)


@pytest.fixture(scope="module")
def finished(files, tmp_path_factory) -> Options:
    options = make_options(files, tmp_path_factory.mktemp("run") / "sst2", num_train_epochs=4.0)
    run(options)
    return options


@pytest.fixture(scope="module")
def pretrained(files, tmp_path_factory) -> str:
    """A folder as run_pretraining leaves it, with another rate of dropout."""
    folder = str(tmp_path_factory.mktemp("pretrained"))
    model = BertPretrainer(CONFIG_TRAINED)
    CONFIG_TRAINED.to_json_file(f"{folder}/bert_config.json")
    step = tf.Variable(9, dtype=tf.int64)
    checkpoints.Checkpointer(folder, model, {"step": step}).save()
    return folder


def best_weights(output_dir: str, config: BertConfig = CONFIG) -> BertTaskModel:
    model = BertTaskModel(config, 2)
    load_weights(checkpoints.latest_checkpoint(f"{output_dir}/best"), model.weights)
    return model


def test_learns_the_words_and_classifies_raw_strings(files, finished):
    results = read_results(f"{finished.output_dir}/eval_results.txt")
    assert set(results) == {"eval_accuracy", "eval_loss", "global_step"}
    assert results["eval_accuracy"] > 0.95
    texts, labels = zip(*sentences(50, seed=1), strict=True)  # dev
    classify = tf.saved_model.load(f"{finished.output_dir}/saved_model")
    outputs = classify(texts)
    names = [b"negative", b"positive"]
    assert classify.labels.numpy().tolist() == names
    hits = [guess == names[label] for guess, label in zip(outputs["label"], labels, strict=True)]
    assert np.mean(hits) == pytest.approx(results["eval_accuracy"])
    signature = classify.signatures["serving_default"](text=tf.constant(texts))
    np.testing.assert_array_equal(signature["probabilities"], outputs["probabilities"])

    # The oracle: the best weights in a Keras model, on fully padded inputs.
    tokenizer = WordPieceTokenizer(load_vocab(finished.vocab_file))
    inputs = pack_segments([tokenizer.tokenize_flat(texts)], 24, tokenizer.vocab)
    logits = best_weights(finished.output_dir)(inputs)
    np.testing.assert_allclose(outputs["probabilities"], tf.nn.softmax(logits), atol=1e-5)
    losses = -np.log(tf.nn.softmax(logits).numpy()[np.arange(50), labels])
    assert results["eval_loss"] == pytest.approx(losses.mean(), rel=1e-3)


def test_a_finished_run_is_not_repeated(finished, capsys):
    before = checkpoints.latest_checkpoint(finished.output_dir)
    results = run(finished)
    assert "this run is finished" in capsys.readouterr().out
    assert results == read_results(f"{finished.output_dir}/eval_results.txt")
    assert checkpoints.latest_checkpoint(finished.output_dir) == before


def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(files, tmp_path, monkeypatch):
    whole = run(make_options(files, tmp_path / "whole", num_train_epochs=2.0))
    options = make_options(files, tmp_path / "broken", num_train_epochs=2.0)

    def interrupt(self, step):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # The first epoch's checkpoint is there then, its evaluation is not.
        patch.setattr(finetune.FineTuner, "after_epoch", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(options)
    with pytest.raises(ValueError, match="holds a run with --seed=12345, not 7"):
        run(make_options(files, tmp_path / "broken", num_train_epochs=2.0, seed=7))
    assert run(options) == pytest.approx(whole, rel=1e-5)
    states = [checkpoints.latest_checkpoint(str(tmp_path / name)) for name in ("whole", "broken")]
    readers = [tf.train.load_checkpoint(state) for state in states]
    for key in readers[0].get_variable_to_shape_map():
        if key != "_CHECKPOINTABLE_OBJECT_GRAPH":
            values = [reader.get_tensor(key) for reader in readers]
            np.testing.assert_allclose(*values, rtol=1e-4, atol=1e-6)


def test_keeps_the_best_epoch_not_the_last(files, tmp_path, monkeypatch):
    accuracies = iter([0.5, 0.75, 0.75, 0.25])

    def evaluate(self, split, prefix):
        return {"eval_accuracy": next(accuracies), "eval_loss": 1.0}

    monkeypatch.setattr(finetune.FineTuner, "evaluate", evaluate)
    options = make_options(files, tmp_path / "out", num_train_epochs=4.0)
    results = run(options)
    assert results == {"eval_accuracy": 0.75, "eval_loss": 1.0, "global_step": 40}
    best = checkpoints.latest_checkpoint(f"{options.output_dir}/best")
    assert pathlib.Path(best).name == "ckpt-40"


def test_the_encoder_starts_from_the_checkpoint(files, pretrained, tmp_path, capsys):
    options = make_options(
        files,
        tmp_path / "out",
        init_checkpoint=pretrained,
        bert_config_file=None,
        learning_rate=0.0,
        num_train_epochs=1.0,
    )
    run(options)
    expected = BertPretrainer(CONFIG_TRAINED)
    load_weights(checkpoints.latest_checkpoint(pretrained), expected.weights)
    model = best_weights(options.output_dir, CONFIG_TRAINED)
    for weight, other in zip(model.encoder.weights, expected.encoder.weights, strict=True):
        np.testing.assert_array_equal(weight, other)
    printed = capsys.readouterr().out
    assert re.search(r"random numbers: task_model/head/\S+, task_model/head/\S+\.$", printed, re.M)
    assert "Not used of the checkpoint: pretrainer/" in printed
    saved = BertConfig.from_json_file(f"{options.output_dir}/best/bert_config.json")
    assert saved == CONFIG_TRAINED


def test_imdb_is_chosen_on_held_out_reviews_and_tested_once(files, tmp_path, capsys):
    options = make_options(files, tmp_path / "out", task="imdb", num_train_epochs=1.0)
    results = run(options)
    model = best_weights(options.output_dir)
    tokenizer = WordPieceTokenizer(load_vocab(options.vocab_file))
    texts, labels = zip(*sentences(160, seed=len("test")), strict=True)
    inputs = pack_segments([tokenizer.tokenize_flat(texts)], 24, tokenizer.vocab)
    hits = np.argmax(model(inputs), axis=-1) == labels
    assert results["test_accuracy"] == pytest.approx(hits.mean())
    printed = capsys.readouterr().out
    assert "train: 144 examples" in printed and "dev: 16 examples" in printed
    lengths = [len(text.split()) for text, _ in sentences(160, seed=len("test"))]
    assert f"test: 160 examples, {sum(n > 22 for n in lengths)} (" in printed
    assert "on the held-out tenth of the training set" in printed


def test_objective_against_a_worked_example():
    class Model:
        def __call__(self, batch, training):
            return tf.constant([[0.0, 0.0], [np.log(3.0), 0.0], [5.0, 1.0]])

    batch = {"labels": tf.constant([1, 0, 0]), "example_weights": tf.constant([1.0, 1.0, 0.0])}
    objective = ClassificationObjective()
    sums = objective.sums(Model(), batch, training=False)
    assert float(sums["loss"]) == pytest.approx(np.log(2) + np.log(4 / 3), rel=1e-6)
    assert float(sums["accuracy"]) == 1.0
    assert {float(count) for count in objective.counts(batch).values()} == {2.0}


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"task": "sst3"}, "no task 'sst3'"),
        ({"vocab_file": "nowhere"}, "nowhere"),
        ({"data_dir": "nowhere"}, "nowhere: neither train.tsv"),
        ({"max_seq_length": 33}, "longer than the max_position_embeddings 32"),
        ({"train_batch_size": 0}, "must be 1 or more"),
        ({"num_train_epochs": 0.01}, "make no step"),
        ({"preset": "tiny"}, "--preset trains from scratch"),
        ({"bert_config_file": None}, "give --init_checkpoint, or --preset"),
        ({"bert_config_file": None, "init_checkpoint": "nowhere"}, "nowhere: no checkpoint"),
        ({"strategy": "gpu"}, "no GPU"),
    ],
)
def test_bad_flags_are_one_clear_line(files, tmp_path, changes, match):
    if changes.get("strategy") == "gpu" and tf.config.list_physical_devices("GPU"):
        pytest.skip("there is a GPU")
    with pytest.raises((ValueError, OSError), match=match) as caught:
        run(make_options(files, tmp_path / "out", **changes))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_dropout_may_be_another_than_in_pretraining(files, pretrained, tmp_path):
    """Oracle: the file of --bert_config_file; without it, the one beside the checkpoint."""
    options = make_options(files, tmp_path / "out", init_checkpoint=pretrained)
    assert run_finetuning._config_and_source(options, 12)[0] == CONFIG
    options = dataclasses.replace(options, bert_config_file=None)
    assert run_finetuning._config_and_source(options, 12)[0] == CONFIG_TRAINED


def test_files_that_do_not_go_together(files, pretrained, tmp_path):
    def refuse(match, **changes):
        with pytest.raises(ValueError, match=match):
            run(make_options(files, tmp_path / "out", **changes))
        assert not (tmp_path / "out").exists()

    other = BertConfig.from_dict(CONFIG.to_dict() | {"intermediate_size": 40})
    other.to_json_file(str(tmp_path / "other.json"))
    config = str(tmp_path / "other.json")
    refuse("has intermediate_size 40", init_checkpoint=pretrained, bert_config_file=config)
    big = tmp_path / "big.txt"
    big.write_text((files / "vocab.txt").read_text() + "\n" + "\n".join("tuvwxyz"))
    refuse("has 22 tokens, more than the vocab_size 20", vocab_file=str(big))
    shutil.copytree(pretrained, tmp_path / "alone")
    (tmp_path / "alone" / "bert_config.json").unlink()
    refuse("has shape", init_checkpoint=str(tmp_path / "alone"), bert_config_file=config)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    with pytest.raises(ValueError, match="not empty"):
        run(make_options(files, tmp_path / "full"))
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "train.tsv").write_text("sentence\tlabel\n")
    refuse("no examples in train", data_dir=str(empty))


def test_settings_are_flags():
    names = {field.name for field in run_finetuning.dataclasses.fields(Options)}
    assert {f.name for f in run_finetuning.dataclasses.fields(finetune.Settings)} <= names

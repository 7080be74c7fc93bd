"""`bert_tf.finetune`, beside the command on the same data."""

import copy
import os
import pathlib
import pickle
import random
import shutil
import signal

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from support import assert_same_state, calls_of, one_line, quick_runs, without_tracing  # noqa: F401
from tensorflow.python.framework.ops import gradient_registry

import bert_tf
from bert_tf.base.common_options import DeviceOptions
from bert_tf.models.task_model import BertTaskModel
from bert_tf.plots import confusion, curves
from bert_tf.run_finetuning import Options, run
from bert_tf.sessions.session import training_devices
from bert_tf.training.trainer import Trainer

FILES = ("eval_results.json", "predictions_dev.tsv", "predictions_test.tsv", "head.json")


@pytest.fixture(scope="module")
def frames(sentences):
    """A training, a dev and a test set, the last one without labels."""
    names = np.array(["bad", "good"])
    frames = [
        pd.DataFrame([(text, names[label]) for text, label in sentences(count, seed)])
        for seed, count in enumerate((64, 16, 4))
    ]
    frames = [frame.set_axis(["text", "label"], axis="columns") for frame in frames]
    return *frames[:2], frames[2][["text"]]


@pytest.fixture(scope="module")
def flags(files):
    return dict(
        vocab_file=str(files / "vocab.txt"),
        bert_config_file=str(files / "bert_config.json"),
        max_seq_length=24,
        train_batch_size=16,
        learning_rate=3e-3,
        num_train_epochs=2.0,
    )


@pytest.fixture(scope="module")
def finished(frames, flags, tmp_path_factory):
    """The folder of the command's run, and the run of the function."""
    folder = tmp_path_factory.mktemp("runs")
    paths = {}
    for split, frame in zip(("train", "dev", "test"), frames, strict=True):
        paths[f"{split}_file"] = f"{folder}/{split}.csv"
        frame.to_csv(paths[f"{split}_file"], index=False)
    does = dict(do_train=True, do_eval=True, do_predict=True)
    np.random.seed(3)
    state = np.random.get_state()[1].tolist()
    train, dev, test = frames
    named = dict(dev=dev.to_dict("list"), test=test.to_dict("records"), quiet=True)
    with without_tracing():
        run(Options(task="csv", output_dir=f"{folder}/command", **paths, **does, **flags))
        made = bert_tf.finetune(None, train, output_dir=folder / "python", **named, **flags)
    assert np.random.get_state()[1].tolist() == state
    return folder / "command", made


@pytest.mark.slow
def test_the_command_and_the_function_make_the_same_run(finished, eagerly):
    """Oracle: the files of the command's run, byte for byte."""
    command, made = finished
    folder = pathlib.Path(made)
    for name in FILES:
        assert (folder / name).read_bytes() == (command / name).read_bytes()
    assert_same_state(command, folder)
    # The command evaluates the run on files of the same content, wherever they are.
    again = Options(task="csv", output_dir=str(folder), do_eval=True)
    with pytest.raises(ValueError, match="was trained on data in memory, .*: give --train_file"):
        run(again)
    results = run(again.changed(dev_file=f"{command.parent}/dev.csv"))
    assert results == made.metrics == bert_tf.open_run(command).metrics
    best = made.metrics["global_step"]
    shown = f"TrainedRun('{folder}': csv, eval_accuracy {made.metrics['eval_accuracy']:.4f}"
    assert repr(made) == f"{shown}, step {best})"
    assert repr(bert_tf.open_run(folder)) == repr(made)


@pytest.mark.slow
def test_the_run_draws_evaluates_and_exports(finished, frames, monkeypatch, tmp_path):
    """Oracles: the arrays that are drawn; the results and predictions in the run's files."""
    made = finished[1]
    drawn = calls_of(monkeypatch, confusion.style, "name_cells")
    assert made.plot("confusion").axes[0].get_title("left") == "16 examples"
    assert drawn[0].args[1] == ["bad", "good"]
    drawn = calls_of(monkeypatch, curves, "_draw_pair")
    made.plot()
    assert [len(x) for x in drawn[0].args[1:3]] == [8, 2]
    with one_line("there is no figure of 'nothing'"):
        made.plot("nothing")
    empty = bert_tf.TrainedRun(str(tmp_path), {})
    for what, message in {
        "curves": f"there are no curves: {tmp_path}/metrics.jsonl is missing or empty",
        "confusion": f"no confusion matrix: {tmp_path}/predictions_dev.tsv has no predictions of o",
    }.items():
        with one_line(message):
            empty.plot(what)
    before = {path: path.stat().st_mtime_ns for path in pathlib.Path(made).rglob("*")}
    found = made.evaluate((frames[1]["text"], frames[1]["label"]))
    assert made.metrics == pytest.approx(found | {"global_step": made.metrics["global_step"]})
    assert {path: path.stat().st_mtime_ns for path in pathlib.Path(made).rglob("*")} == before
    with one_line("'label', only 'text': name the right one with label_column; only test may"):
        made.evaluate(frames[2])
    file = tmp_path / "dev.csv"
    frames[1].to_csv(file, index=False)
    assert made.evaluate(file) == found
    assert made.predict.evaluate(file) == found
    with one_line(f"data is a list with the path {file}: give the path of a file"):
        made.evaluate([str(file)])
    texts = frames[1]["text"].tolist()
    lines = (pathlib.Path(made) / "predictions_dev.tsv").read_text().splitlines()
    predicted = [line.split("\t")[2] for line in lines[1:]]
    assert [answer["label"] for answer in made.predict(texts)] == predicted
    folder = made.export(tmp_path / "classifier", quiet=True)
    labels = tf.saved_model.load(folder)(texts)["label"].numpy()
    assert [x.decode() for x in labels] == predicted


def test_changed_data_is_refused_and_the_same_call_reports(
    finished, frames, flags, capsys, eagerly
):
    """Oracles: one line; the results of the first call."""
    made, (train, dev, test) = finished[1], frames
    folder = str(made.path)
    again = bert_tf.finetune(None, train, dev=dev, test=test, output_dir=folder, **flags)
    assert "holds a finished run" in capsys.readouterr().out and again.metrics == made.metrics
    for changed in ({"train": train[:-1]}, {"dev": dev[::-1]}, {"test": test[::-1]}):
        (split,) = changed
        given = dict(train=train, dev=dev) | changed
        with one_line(rf"{folder} was made from .*\(the {split} set ha.*another output_dir"):
            bert_tf.finetune(output_dir=folder, **given, **flags)
    with one_line("task=SST-2 reads TSV files, not data in memory"):
        bert_tf.finetune(None, train, task="SST-2", output_dir=f"{folder}-2", **flags)
    with one_line("task=csv needs train$"):
        bert_tf.finetune(output_dir=f"{folder}-2", **flags)
    with one_line("has no column 'x'"):
        bert_tf.finetune(None, train, output_dir=f"{folder}-2", label_column="x", **flags)
    # Nothing was trained, so other data may follow.
    frame = train.rename(columns={"label": "x"})
    bert_tf.finetune(
        None, frame, output_dir=f"{folder}-2", label_column="x", **flags | {"num_train_epochs": 0.5}
    )


def test_a_run_on_data_in_memory_has_no_copy_of_it(
    finished, frames, tmp_path, monkeypatch, eagerly
):
    """Oracles: the bytes of the user's files and of another run; the results of the first call."""
    made, (train, dev, test) = finished[1], frames
    mine = tmp_path / "data" / "train.jsonl"
    mine.parent.mkdir()
    train.to_json(mine, orient="records", lines=True)
    before = mine.read_bytes()
    named = dict(output_dir=tmp_path, vocab_file="no", bert_config_file="no")
    with one_line(f"{tmp_path} is not empty and holds no fine-tuning run"):
        bert_tf.finetune(None, train[:8], **named)
    assert mine.read_bytes() == before
    # A run that was moved, beside another one in the old place, reads neither's data.
    monkeypatch.chdir(tmp_path)
    moved = shutil.copytree(made.path, tmp_path / "moved")
    assert not (moved / "data").exists()
    predictions = (moved / "predictions_test.tsv").read_bytes()
    evaluates = dict(output_dir="moved", do_train=False)
    with one_line("moved was trained on data in memory, which it does not keep: give train"):
        bert_tf.finetune(**evaluates)
    with one_line("moved was made from .*the test set has changed.*init_checkpoint=moved"):
        bert_tf.finetune(test=test[:3], do_eval=False, **evaluates)
    again = bert_tf.finetune(train=train, dev=dev, test=test, **evaluates)
    assert again.metrics == made.metrics
    assert (moved / "predictions_test.tsv").read_bytes() == predictions
    other = dict(init_checkpoint="moved", output_dir="other", do_train=False)
    assert bert_tf.finetune(dev=dev, **other).metrics.items() <= made.metrics.items()
    with one_line("other was made from .*the dev set has changed.*choose another output_dir"):
        bert_tf.finetune(dev=dev[1:], **other)


@pytest.mark.slow
def test_a_run_predicts_from_anywhere(finished, frames, tmp_path, monkeypatch, eagerly):
    """Oracles: the predictions of the same run by its whole path, and of the models evaluated."""
    command, made = finished
    folder, texts = pathlib.Path(made.path), frames[1]["text"].tolist()
    monkeypatch.chdir(folder.parent)
    run = bert_tf.open_run(folder.name)
    assert repr(run).startswith(f"TrainedRun('{folder.name}': csv") and run.path == made.path
    assert {run: "found"}[bert_tf.open_run(folder)] == "found"
    monkeypatch.chdir(tmp_path)
    expected = bert_tf.load_predictor(folder)(texts)
    assert run.predict(texts) == expected
    for other in (pickle.loads(pickle.dumps(run)), copy.deepcopy(run)):
        assert other == run and "predict" not in vars(other) and other.predict(texts) == expected
    evaluates = dict(dev=frames[1], do_train=False, quiet=True)
    both = bert_tf.finetune([made, command], output_dir="both", **evaluates)
    assert both.models == (made.path, str(command)) and both.path == str(tmp_path / "both")
    assert both.predict(texts) == bert_tf.load_predictor([made, command])(texts)
    one = bert_tf.finetune(made, output_dir="one", **evaluates)
    assert one.predict(texts) == expected
    exported = tf.saved_model.load(one.export("classifier", quiet=True))
    labels = [x.decode() for x in exported(texts)["label"].numpy()]
    assert labels == [x["label"] for x in expected]
    with one_line("several models cannot be exported as one: .* such as"):
        both.export("classifier-2")
    moved = shutil.copytree(command, tmp_path / "a,b")
    assert bert_tf.finetune([moved, made], output_dir="c", **evaluates).metrics == both.metrics


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("signals", [1, 2])
@pytest.mark.slow
def test_an_interrupted_call_goes_on(finished, frames, flags, tmp_path, monkeypatch, signals):
    """Oracle: the run that nothing interrupted; two signals save no checkpoint and end nothing."""
    train, sent = Trainer.train, []

    def interrupted(trainer, *arguments):
        found = train(trainer, *arguments)
        if not sent and trainer.step.numpy() >= 3:
            for _ in range(signals):
                sent.append(os.kill(os.getpid(), signal.SIGINT))
        return found

    monkeypatch.setattr(Trainer, "train", interrupted)
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    named = dict(dev=frames[1], test=frames[2], output_dir=tmp_path / "run", quiet=True)
    with pytest.raises(KeyboardInterrupt):
        bert_tf.finetune(None, frames[0], **named, **flags)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert bool([*(tmp_path / "run").glob("ckpt-*.index")]) == (signals == 1)
    monkeypatch.chdir(tmp_path)  # the paths may be spelled in another way
    made = bert_tf.finetune(None, frames[0], **named | {"output_dir": "./run"}, **flags)
    assert made.metrics == finished[1].metrics
    assert_same_state(made.path, finished[0])


def test_a_run_leaves_nothing_behind(config):
    """Oracles: the state of the libraries before it; a function with a custom gradient is free."""

    def state():
        names = [x for x in gradient_registry._registry if x.startswith("CustomGradient-")]
        policy = keras.config.dtype_policy().name
        return names, policy, random.getstate(), np.random.get_state()[1].tolist()

    before = state()
    with training_devices(DeviceOptions(precision="bfloat16"), writes=False):
        BertTaskModel(config, 2)
        double = tf.custom_gradient(lambda x: (2 * x, lambda dy: 2 * dy))
        with training_devices(DeviceOptions(), writes=False):  # as another thread may
            tf.function(double).get_concrete_function(tf.constant(1.0))
        assert len(state()[0]) == len(before[0]) + 1 and state()[1] == "mixed_bfloat16"
    assert state() == before

"""Fine-tuning from files to predictions, on words that give the label away."""

import contextlib
import dataclasses
import io
import itertools
import json
import pathlib
import re
import shutil
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from support import assert_same_state, edit_json, tuning_options

import bert_tf
from bert_tf.base.output_files import locked
from bert_tf.config import Head, ModelSpec
from bert_tf.finetuning import task_learner
from bert_tf.finetuning.evaluating import Evaluator, _summary
from bert_tf.finetuning.fine_tuned import open_fine_tuned
from bert_tf.finetuning.preparing import read_features
from bert_tf.finetuning.registry import TASKS
from bert_tf.finetuning.tasks.classification import ClassificationTask
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.task_model import BertTaskModel
from bert_tf.run_finetuning import Options, run
from bert_tf.runs.run import FINISHED, Run
from bert_tf.training import checkpoints
from bert_tf.training.reports import read_results
from bert_tf.weights.checkpoint import load_weights
from export import classifier, encoder
from tfrecords.vocabulary import load_vocab


@contextlib.contextmanager
def last_of_three_epochs_is_worst():
    epochs, score = itertools.count(1), ClassificationTask.score

    def score_as_told(*arguments):
        return score(*arguments) | ({"accuracy": 0.0} if next(epochs) == 3 else {})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClassificationTask, "score", score_as_told)
        yield


@pytest.fixture(scope="module")
def finished_and_printed(files, tmp_path_factory) -> tuple[Options, str]:
    """Epochs of 20 steps."""
    folder = tmp_path_factory.mktemp("my friend's run") / "sst2"
    options, printed = tuning_options(files, folder, num_train_epochs=3.0), io.StringIO()
    with contextlib.redirect_stdout(printed), last_of_three_epochs_is_worst():
        run(options)
    return options, printed.getvalue()


@pytest.fixture(scope="module")
def finished(finished_and_printed) -> Options:
    return finished_and_printed[0]


@pytest.mark.slow
def test_learns_the_words(finished, sentences, config, pack, load_best):
    """Oracle: the best weights in a Keras model, on fully padded inputs."""
    results = read_results(f"{finished.output_dir}/eval_results.txt")
    expected = {f"eval_{name}" for name in TASKS["sst2"].metrics}
    assert set(results) == expected | {"global_step"}
    assert results["eval_accuracy"] > 0.95
    assert results["global_step"] in (20, 40)  # the best epoch, not the last
    best = checkpoints.latest_checkpoint(f"{finished.output_dir}/best")
    assert pathlib.Path(best).name == f"ckpt-{results['global_step']}"
    texts, labels = zip(*sentences(50, seed=1), strict=True)  # dev
    model = load_best(BertTaskModel(config, 2), finished.output_dir)
    probabilities = tf.nn.softmax(model(pack(texts))).numpy()
    assert np.mean(probabilities.argmax(axis=-1) == labels) == results["eval_accuracy"]
    losses = -np.log(probabilities[np.arange(50), labels])
    assert results["eval_loss"] == pytest.approx(losses.mean(), rel=1e-4)


@pytest.mark.slow
def test_a_bilstm_learns_the_words_from_scratch(files, sentences, tmp_path):
    """Oracles: the words; the run's own accuracy; a finished run is not repeated."""
    flags = dict(preset="bilstm", bert_config_file=None, learning_rate=1e-2)
    results = run(options := tuning_options(files, tmp_path / "run", **flags))
    assert results["eval_accuracy"] > 0.95
    assert run(options) == results
    texts, labels = zip(*sentences(50, seed=1), strict=True)  # dev
    found = bert_tf.load_predictor(options.output_dir)(texts)
    expected = [TASKS["sst2"].head.labels[label] for label in labels]
    right = [x["label"] == label for x, label in zip(found, expected, strict=True)]
    assert np.mean(right) == results["eval_accuracy"]
    classifier.export_classifier(options.output_dir, folder := str(tmp_path / "classifier"))
    for answer, same in zip(bert_tf.load_predictor(folder)(texts), found, strict=True):
        assert answer["probabilities"] == pytest.approx(same["probabilities"], abs=1e-5)


def test_exports_a_classifier_of_raw_text(
    finished_and_printed, sentences, config, pack, load_best, tmp_path, capsys, run_printed
):
    """Oracles: the best weights in a Keras model; the code and the command that were printed."""
    finished, line = finished_and_printed[0], finished_and_printed[1].splitlines()[-1]
    assert "An encoder this small" not in finished_and_printed[1]
    folder = f"{tmp_path}/classifier"
    run_printed(line, output_dir=folder)
    printed = capsys.readouterr().out
    texts = [text for text, _ in sentences(20, seed=1)]
    classify = tf.saved_model.load(folder)
    outputs = classify(texts)
    names = [b"negative", b"positive"]
    assert classify.labels.numpy().tolist() == names
    logits = load_best(BertTaskModel(config, 2), finished.output_dir)(pack(texts))
    np.testing.assert_allclose(outputs["probabilities"], tf.nn.softmax(logits), atol=1e-5)
    expected = [names[index] for index in np.argmax(logits, axis=-1)]
    assert outputs["label"].numpy().tolist() == expected

    assert "probabilities of negative, positive" in printed
    code = [line.strip() for line in printed.splitlines() if line.startswith("  ")]
    exec("\n".join(code), {})
    with pytest.raises(ValueError, match="exists and is not empty"):
        run_printed(line, output_dir=folder)


def test_a_part_of_a_run_is_of_its_task(finished, tmp_path, monkeypatch):
    """Oracles: the run's own task and length, which differ from those of other programs' models."""
    folder = pathlib.Path(shutil.copytree(finished.output_dir, tmp_path / "run"))
    (checkpoint,) = (path.stem for path in folder.glob("ckpt-*.index"))
    archive = shutil.make_archive(str(tmp_path / "packed"), "gztar", folder)
    places = [(part, ".") for part in (f"{folder}/best", f"{folder}/{checkpoint}", archive)]
    places += [("best", folder), (checkpoint, folder), (".", folder), ("./", folder / "best")]
    for part, place in places:
        monkeypatch.chdir(place)
        opened, task, length = open_fine_tuned(part, None, None, pairs=False)
        assert (task.name, length) == ("sst2", 24)
        assert opened.run.flags["task"] == "sst2"
        with pytest.raises(ValueError, match="--pairs is only for classifiers of other programs"):
            open_fine_tuned(part, None, None, pairs=True)


@pytest.mark.parametrize(
    ("flag", "match"),
    [
        ({"max_seq_length": 1}, "--max_seq_length is 1: it must be"),
        ({"train_batch_size": "x"}, "--train_batch_size is 'x': it must be"),
        ({"text_column": "a"}, "--text_column has no effect without --task=csv or"),
    ],
)
def test_wrong_flags_of_a_run_are_its_own(finished, tmp_path, flag, match):
    """Oracle: the message names the run's file, in training, evaluation and prediction."""
    folder = shutil.copytree(finished.output_dir, tmp_path / "run")
    edit_json(folder / "flags.json", **flag)
    flags = dict(task="sst2", output_dir=str(folder), do_eval=True)
    again = Options(**flags)
    calls = [lambda: open_fine_tuned(str(folder), None, None, pairs=False)]
    if "text_column" not in flag:
        elsewhere = dict(init_checkpoint=str(folder), output_dir=f"{tmp_path}/new")
        new = Options(**flags | elsewhere)
        train = dataclasses.replace(finished, output_dir=str(folder))
        calls += [lambda: run(again), lambda: run(train)]
        calls += [lambda: run(new)] if "max_seq_length" in flag else []
    for call in calls:
        with pytest.raises(ValueError, match=f"run/flags.json: {match}"):
            call()


def test_an_unfinished_run_is_exported_with_a_warning(finished, tmp_path, monkeypatch, capsys):
    """Oracle: the message; weights that were not evaluated are not exported."""
    folder = str(shutil.copytree(finished.output_dir, tmp_path / "run"))
    run_folder = Run(folder)
    flags = run_folder.flags | {"finished": False}
    run_folder.write(run_folder.spec, flags)
    monkeypatch.setattr("export.text_models.save_model", lambda *_, **__: None)
    classifier.export_classifier(folder, str(tmp_path / "out"))
    expected = f"WARNING: {folder} is unfinished; these are its best weights so far: run the same"
    assert expected in capsys.readouterr().out
    (index,) = pathlib.Path(folder, "best").glob("ckpt-*.index")
    index.unlink()
    with pytest.raises(ValueError, match="run is unfinished and has no evaluated weights: run"):
        classifier.export_classifier(folder, str(tmp_path / "out"))


def test_a_finished_run_is_not_repeated(finished, capsys):
    """Oracle: the bytes of its files; another run in the folder goes first."""
    with locked(finished.output_dir), pytest.raises(OSError, match="sst2 is in use by process"):
        run(finished)
    files = [path for path in pathlib.Path(finished.output_dir).rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    results = run(finished)
    assert "holds a finished run" in capsys.readouterr().out
    assert results == read_results(f"{finished.output_dir}/eval_results.txt")
    assert {path: path.read_bytes() for path in files} == before


def test_evaluates_and_predicts_without_training(files, finished, tmp_path, capsys):
    """Oracles: the files of the training run; the best weights as the initial checkpoint."""
    run_folder = pathlib.Path(finished.output_dir)
    # To rounding, because the first batches of another process are computed by another graph.
    trained = pytest.approx(read_results(str(run_folder / "eval_results.txt")), rel=1e-6)
    predictions = (run_folder / "predictions_dev.tsv").read_text()
    folder = str(shutil.copytree(run_folder, tmp_path / "run"))
    flags = dict(task="SST-2", data_dir=str(files), output_dir=folder, do_eval=True)
    again = Options(**flags)
    pathlib.Path(folder, "eval_results.txt").unlink()
    run(again)
    assert f"Evaluating {folder}/best/ckpt-" in capsys.readouterr().out
    assert read_results(f"{folder}/eval_results.txt") == trained
    assert pathlib.Path(folder, "predictions_dev.tsv").read_text() == predictions
    results = json.loads(pathlib.Path(folder, "eval_results.json").read_text())
    assert results == read_results(f"{folder}/eval_results.txt")
    # The model of another program may have its classes in another order.
    other = pathlib.Path(shutil.copytree(run_folder / "best", tmp_path / "other"))
    Run(str(other)).write_head(Head("classifier", ("POSITIVE", "negative")))
    elsewhere = f"{tmp_path}/swapped"
    changes = dict(init_checkpoint=str(other), output_dir=elsewhere, max_seq_length=24)
    swapped = run(Options(**flags | changes))
    assert swapped["eval_accuracy"] == pytest.approx(1 - results["eval_accuracy"])
    assert "POSITIVE, negative, were put into the task's order" in capsys.readouterr().out
    for name, was, now in (("max_seq_length", 24, 16), ("random_seed", 12345, 7)):
        with pytest.raises(ValueError, match=rf"\({name}={was}, not {now}\): omit the flag"):
            run(Options(**flags | {name: now}))
    # A later command keeps the results of other splits. Without flags of data, it reads that of
    # the run.
    test = {"test_accuracy": 0.75}
    edit_json(f"{folder}/eval_results.json", **test)
    found = run(Options(**flags | {"data_dir": None}))
    assert found == pytest.approx(results | test, rel=1e-6)
    for index in pathlib.Path(folder).glob("ckpt-*"):
        index.unlink()
    with pytest.raises(ValueError, match=r"a finished run whose checkpoint ckpt-\* is gone: give"):
        run(dataclasses.replace(finished, output_dir=folder))

    # The lengths are those of the run.
    elsewhere = str(tmp_path / "elsewhere")
    run(Options(**flags | {"init_checkpoint": folder, "output_dir": elsewhere}))
    assert pathlib.Path(elsewhere, "predictions_dev.tsv").read_text() == predictions
    rows = [line.split("\t") for line in predictions.splitlines()]
    accuracy = np.mean([row[1] == row[2] for row in rows[1:]])
    assert accuracy == pytest.approx(results["eval_accuracy"])


def test_other_files_are_evaluated_in_another_folder(files, finished, tmp_path):
    """Oracles: the files of the run and the user's, which keep every byte; the labels."""
    folder = tmp_path / "run"
    shutil.copytree(finished.output_dir, folder)
    lines = (files / "SST-2" / "dev.tsv").read_text().splitlines(keepends=True)
    file, other = (str(tmp_path / name / "predictions_dev.tsv") for name in "ab")
    for number, path in enumerate((file, other), 20):
        pathlib.Path(path).parent.mkdir()
        pathlib.Path(path).write_text("".join(lines[:number]))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    flags = dict(task="sst2", output_dir=str(folder), do_eval=True)
    for split in ("dev", "test"):
        match = rf"run was made from .*\(the {split} set .*give --init_checkpoint={folder} and"
        with pytest.raises(ValueError, match=match):
            run(Options(**flags | {f"{split}_file": file}))
    # The run has read no test set of its own folder.
    data = shutil.copytree(files / "SST-2", tmp_path / "data")
    (data / "test.tsv").write_text("index\tsentence\n0\tgood a b\n")
    before |= {path: path.read_bytes() for path in data.iterdir()}
    for predicts in ({}, {"do_eval": False}):
        with pytest.raises(ValueError, match=f"run was made from .*--init_checkpoint={folder} and"):
            run(Options(**flags | predicts, do_predict=True, data_dir=str(data)))
    # A finished run is not trained again.
    with pytest.raises(ValueError, match="the test set is new"):
        run(dataclasses.replace(finished, output_dir=str(folder), test_file=file))
    assert before == {path: path.read_bytes() for path in before}
    elsewhere = flags | dict(init_checkpoint=str(folder), output_dir=f"{tmp_path}/new")
    found = run(Options(**elsewhere, dev_file=file, test_file=other))
    for split, number in (("dev", 20), ("test", 21)):
        rows = (tmp_path / "new" / f"predictions_{split}.tsv").read_text().splitlines()[1:]
        expected = [("negative", "positive")[int(line.split("\t")[1])] for line in lines[1:number]]
        assert [row.split("\t")[1] for row in rows] == expected
    assert json.loads((tmp_path / "new" / "eval_results.json").read_text()) == found
    assert run(Options(**elsewhere, dev_file=file)) == found
    mine = elsewhere | {"output_dir": f"{tmp_path}/a"}
    for changes, match in ((elsewhere, "new was made from .*dev set"), (mine, "a is not empty")):
        with pytest.raises(ValueError, match=f"{match}.*choose another --output_dir"):
            run(Options(**changes, dev_file=other))
    assert before == {path: path.read_bytes() for path in before}


def test_paths_may_be_spelled_in_another_way(files, finished, tmp_path, monkeypatch):
    """Oracle: the results of the run, which was moved, beside moved data."""
    folder = shutil.copytree(finished.output_dir, tmp_path / "moved")
    shutil.copytree(files, tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    moved = dict(vocab_file="data/vocab.txt", bert_config_file="./data/bert_config.json")
    options = dataclasses.replace(finished, output_dir="moved", data_dir="data", **moved)
    assert run(options) == read_results(f"{folder}/eval_results.txt")
    with pytest.raises(ValueError, match="omit --do_train"):
        run(dataclasses.replace(options, output_dir="new", init_checkpoint="a,b"))
    with pytest.raises(ValueError, match="moved holds a run: to evaluate --init_checkpoint=a,b"):
        run(Options(task="sst2", output_dir="moved", do_eval=True, init_checkpoint="a,b"))
    for index in pathlib.Path("moved/best").glob("ckpt-*"):
        index.unlink()
    with pytest.raises(ValueError, match=r"moved/best holds no checkpoint ckpt-\*: finish the run"):
        run(options)


def test_the_initial_weights_of_a_run_are_compared(files, pretrained, tmp_path, capsys, eagerly):
    """Oracle: copies of the checkpoint, one with another weight, in other places."""
    flags = dict(bert_config_file=None, vocab_file=None, num_train_epochs=0.05)
    same, other = (shutil.copytree(pretrained, tmp_path / name) for name in ("same", "other"))
    path = checkpoints.latest_checkpoint(str(other))
    weights = {name: x.read() for name, x in checkpoints.saved_tensors(path).items()}
    tensors = {name: checkpoints.Tensor((), lambda x=x: x + 1) for name, x in weights.items()}
    checkpoints.save_tensors(path, tensors)
    for place in (pretrained, same):
        run(tuning_options(files, tmp_path / "run", init_checkpoint=str(place), **flags))
    assert capsys.readouterr().out.count("holds a finished run") == 1
    with pytest.raises(
        ValueError, match=r"\(--init_checkpoint \(.*other.*\) has changed\): choose"
    ):
        run(tuning_options(files, tmp_path / "run", init_checkpoint=str(other), **flags))


def test_a_prediction_does_not_repeat_the_result_on_the_dev_set():
    """Oracle: what --do_eval prints of the same run."""
    options = Options(task="sst2", output_dir="run", do_predict=True)
    results = {"eval_accuracy": 0.5}
    assert "dev set" not in _summary(options, TASKS["sst2"], results, [])
    evaluated = _summary(options.changed(do_eval=True), TASKS["sst2"], results, [])
    assert evaluated.startswith("Accuracy 0.5000 on the dev set.")


@pytest.mark.slow
def test_the_runs_of_a_sweep_are_runs_like_any_other(finished, tmp_path, capfd):
    """Oracle: the results of the run whose copies they are; one lost its results in a kill."""
    for seed in (12345, 12346):
        folder = Run(shutil.copytree(finished.output_dir, tmp_path / f"seed-{seed}"))
        folder.write(folder.spec, folder.flags | {"random_seed": seed})
    lost = tmp_path / "seed-12345" / "eval_results.json"
    expected = json.loads(lost.read_text())
    lost.unlink()
    results = run(dataclasses.replace(finished, output_dir=str(tmp_path), num_seeds=2))
    assert json.loads(lost.read_text()) == results == pytest.approx(expected)
    printed, messages = capfd.readouterr()
    assert "operations are on" not in messages  # as TensorFlow logs on import
    assert printed.count("holds a finished run: not training again.") == 1
    predict, export = printed.splitlines()[-2:]
    best = f"--checkpoint={tmp_path}/seed-1234"
    assert predict.startswith(f"  python -m bert_tf.predict {best}")
    assert export.startswith(f"  python -m export.classifier {best}")


@pytest.mark.slow
def test_a_run_does_not_mix_data(finished, files, tmp_path):
    """Oracle: the files; only a run on unchanged ones, even if moved, resumes or is evaluated."""
    data = pathlib.Path(shutil.copytree(files, tmp_path / "data"))
    folder = Run(str(shutil.copytree(finished.output_dir, tmp_path / "runs/seed-12345")))
    options = dataclasses.replace(finished, output_dir=folder.path, data_dir=str(data))
    flags = folder.flags | {"data_dir": str(data)}

    def refuse(split: str, changed_line: str, options=options) -> None:
        (file,) = data.rglob(f"{split}.tsv")
        before = file.read_text()
        file.write_text("".join([*before.splitlines(keepends=True)[:-1], changed_line]))
        match = f"seed-12345 was made from .*the {split} set has changed.*: restore"
        with pytest.raises(ValueError, match=match):
            run(options)
        file.write_text(before)

    folder.write(folder.spec, flags)
    refuse("dev", "")
    refuse("dev", "", dataclasses.replace(options, output_dir=f"{tmp_path}/runs", num_seeds=2))
    assert not (tmp_path / "runs/seed-12346").exists()
    folder.write(folder.spec, flags | {FINISHED: False})
    refuse("train", "")
    refuse("train", "changed\t1\n")
    run(options)
    assert folder.flags[FINISHED]


@pytest.mark.slow
def test_an_interrupted_run_resumes_exactly(files, finished, tmp_path, monkeypatch):
    """Oracle: the uninterrupted run; the kill comes after an epoch, before its evaluation."""
    folder = str(tmp_path / "broken")
    options = dataclasses.replace(finished, output_dir=folder)

    def save(self, real=checkpoints.Checkpointer.save):
        if Run(folder).has_checkpoint:
            raise KeyboardInterrupt
        real(self)

    with monkeypatch.context() as patch:
        patch.setattr(task_learner, "_SAVE_CHECKPOINTS_STEPS", 20)
        patch.setattr(Evaluator, "evaluate", mock.Mock(side_effect=KeyboardInterrupt))
        patch.setattr(checkpoints.Checkpointer, "save", save)
        with pytest.raises(KeyboardInterrupt):
            run(options)
    assert checkpoints.latest_checkpoint(folder) == f"{folder}/ckpt-20"
    with pytest.raises(ValueError, match="random_seed=12345, not 7"):
        run(dataclasses.replace(options, random_seed=7))
    expected = read_results(f"{finished.output_dir}/eval_results.txt")
    with last_of_three_epochs_is_worst():
        assert run(options) == pytest.approx(expected, rel=1e-5)
    assert_same_state(finished.output_dir, folder)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    ("flags", "part"), [({"lora_rank": 4}, ""), ({"task": "sst2,imdb"}, "/imdb/best")]
)
@pytest.mark.slow
def test_runs_with_models_of_their_own_resume_exactly(
    files, pretrained, tmp_path, monkeypatch, flags, part
):
    """Oracle: the uninterrupted run; the kill comes after a checkpoint amid the only epoch."""

    def save_once(self, real=checkpoints.Checkpointer.save):
        real(self)
        raise KeyboardInterrupt

    flags |= dict(init_checkpoint=pretrained, bert_config_file=None, vocab_file=None)
    whole, broken = (
        tuning_options(files, tmp_path / x, num_train_epochs=0.15, **flags) for x in "ab"
    )
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(task_learner, "_SAVE_CHECKPOINTS_STEPS", 2)
        patch.setattr(checkpoints.Checkpointer, "save", save_once)
        run(broken)
    assert checkpoints.latest_checkpoint(broken.output_dir) == f"{broken.output_dir}/ckpt-2"
    run(broken)
    run(whole)
    assert_same_state(whole.output_dir + part, broken.output_dir + part)


def test_a_pretraining_run_brings_weights_vocabulary_and_casing(
    files, pretrained, load_best, tmp_path, capsys, no_learning
):
    """Oracle: the pre-training run's folder."""
    flags = dict(init_checkpoint=pretrained, bert_config_file=None, vocab_file=None)
    options = tuning_options(files, tmp_path / "out", num_train_epochs=1.0, **flags)
    run(options)
    spec = Run(pretrained).spec
    expected = BertPretrainer(spec.config)
    path = checkpoints.latest_checkpoint(pretrained)
    load_weights(path, checkpoints.saved_tensors(path), expected.weights)
    model = load_best(BertTaskModel(spec.config, 2), options.output_dir)
    for weight, other in zip(model.encoder.weights, expected.encoder.weights, strict=True):
        np.testing.assert_array_equal(weight, other)
    printed = capsys.readouterr().out
    assert re.search(r"randomly: task_model/head/\S+, task_model/head/\S+\.$", printed, re.M)
    assert "Left out of the checkpoint: pretrainer/" in printed
    for folder in (options.output_dir, f"{options.output_dir}/best"):
        assert Run(folder).spec == spec
    # The best weights start another run, which brings the casing along.
    flags = dict(init_checkpoint=f"{options.output_dir}/best", bert_config_file=None)
    second = tuning_options(files, tmp_path / "second", do_lower_case=True, **flags)
    with pytest.raises(ValueError, match="do_lower_case: --do_lower_case says True, but .*best/"):
        run(second)
    # The casing of a run that does not state it is guessed from its vocabulary.
    for folder in (pathlib.Path(options.output_dir), pathlib.Path(options.output_dir, "best")):
        (folder / "tokenizer_config.json").unlink()
    classifier.export_classifier(options.output_dir, str(tmp_path / "classifier"))
    assert "cased; if it is not, give --" in capsys.readouterr().out
    with pytest.raises(ValueError, match="is a fine-tuned model: use export.class"):
        encoder.run(encoder.Options(checkpoint=options.output_dir, output_dir=f"{tmp_path}/e"))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"task": "sst3"}, "no task 'sst3'"),
        (
            {"text_column": "a"},
            "--text_column has no effect without --task=csv or --task=ner: omit",
        ),
        ({"dev_file": "nowhere"}, "nowhere: no such file"),
        # Before a model is downloaded.
        ({"dev_file": "a.csv", "init_checkpoint": "hf:a/b"}, "a.csv: no such file"),
        (
            {"layer_decay": 0.9, "freeze_encoder": True},
            "--layer_decay and --freeze_enc",
        ),
        (
            {"task": "ner", "feature_based": "last", "freeze_encoder": True},
            "--freeze_encoder and --featu",
        ),
        ({"lora_rank": 8, "freeze_encoder": True}, "--lora_rank and --freeze_encoder exclude each"),
        ({"task": "ner", "lora_rank": 8, "feature_based": "last"}, "--lora_rank and --feat"),
        ({"lora_rank": 8, "layer_decay": 0.9}, "--layer_decay and --lora_rank exclude each"),
        ({"lora_rank": 8}, "--lora_rank needs trained weights: give --init_ch"),
        (
            {"lora_rank": 8, "init_vocab_mapping": "m", "init_checkpoint": "c"},
            "lora_rank and",
        ),
        ({"lora_rank": 8, "lora_alpha": 0.0}, "--lora_alpha is 0.0: it must be 0.001 or more"),
        ({"lora_alpha": 8.0}, "--lora_alpha has no effect without --lora_rank: omit it, or"),
        ({"task": "sst2,nothing"}, "no task 'nothing'"),
        ({"task": "sst2,swag"}, "--task=swag trains alone: only GLUE and imdb train"),
        ({"task": "SST-2,sst2"}, "--task=sst2,sst2 names a task twice"),
        ({"task": "sst2,imdb", "do_predict": True}, "--do_predict does not suit several tasks at"),
        (
            {"task": "sst2,imdb", "dev_file": __file__},
            "--dev_file does not suit several tasks at once",
        ),
        ({"do_train": False}, "holds no fine-tuned weights to evaluate: give --do_train"),
        ({"vocab_file": "nowhere"}, "nowhere"),
        ({"vocab_file": None}, "give --vocab_file"),
        ({"data_dir": "nowhere"}, "--data_dir=nowhere is not a folder: name the"),
        (
            {"preset": "bilstm", "bert_config_file": None, "layer_decay": 0.9},
            "--layer_decay has no effect on a BiLSTM: omit it",
        ),
        (
            {"preset": "bilstm-pairs", "bert_config_file": None},
            "--preset=bilstm-pairs is for pairs of texts: use --preset=bilstm",
        ),
        ({"max_seq_length": 33}, "more than the max_position_embeddings 32"),
        ({"num_train_epochs": 0.01}, "less than one step"),
        ({"bert_config_file": None}, "give --init_checkpoint, --preset or --bert"),
        ({"bert_config_file": None, "init_checkpoint": "nowhere"}, "nowhere: no checkpoint"),
        ({"init_vocab_mapping": "nowhere"}, "has no effect without --init_checkpoint"),
    ],
)
def test_bad_flags_are_one_clear_line(files, tmp_path, changes, match):
    with pytest.raises((ValueError, OSError), match=match) as caught:
        run(tuning_options(files, tmp_path / "out", **changes))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_only_training_examples_are_drawn(files, tmp_path, config):
    """Oracle: the sentences of the file; other flags than the seed leave them the same."""
    lines = (files / "SST-2/train.tsv").read_bytes().splitlines()[1:]
    vocab, texts = load_vocab(str(files / "vocab.txt")), []
    for changes in ({}, {"learning_rate": 1e-4}, {"random_seed": 2}):
        options = tuning_options(files, tmp_path, num_train_examples=9, **changes)
        spec = ModelSpec(config, vocab, True)
        splits = read_features(options, TASKS["sst2"], spec, ["train", "dev"], print)
        assert [len(splits[name]) for name in ("train", "dev")] == [9, 50]
        texts.append(splits["train"].examples.texts_a)
    assert texts[0] == texts[1] != texts[2]
    assert {*texts[0], *texts[2]} < {line.split(b"\t")[0] for line in lines}


def test_the_default_length_is_the_most_that_the_model_takes(files, tmp_path, capsys, eagerly):
    """Oracles: the 32 positions of the configuration; the rate suits larger encoders."""
    flags = dict(max_seq_length=None, num_train_epochs=0.05, learning_rate=1e-4)
    for _ in range(2):
        run(tuning_options(files, tmp_path / "run", **flags))
    printed = capsys.readouterr().out
    assert printed.count("An encoder this small needs a higher --learning_rate") == 1
    assert printed.count("--max_seq_length is 32, the most that the model takes.") == 1
    assert printed.count("holds a finished run") == 1
    assert Run(str(tmp_path / "run")).flags["max_seq_length"] == 32


def test_files_that_do_not_go_together(files, pretrained, tmp_path, config):
    """Oracle: the message names the files; nothing is written."""

    def refuse(match, **changes):
        with pytest.raises(ValueError, match=match):
            run(tuning_options(files, tmp_path / "out", **changes))
        assert not (tmp_path / "out").exists()

    other_file = str(tmp_path / "other.json")
    dataclasses.replace(config, intermediate_size=40).to_json_file(other_file)
    alone = shutil.copytree(pretrained, tmp_path / "alone")
    (alone / "bert_config.json").unlink()
    refuse("shapes differ", init_checkpoint=str(alone), bert_config_file=other_file)
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "train.tsv").write_text("sentence\tlabel\n")
    refuse("no train examples for --task=", data_dir=str(empty))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    (tmp_path / "full" / "lock").touch()  # of a killed run
    for folder in (tmp_path / "full", pathlib.Path(pretrained)):
        with pytest.raises(ValueError, match="not empty and holds no fine-tuning run"):
            run(tuning_options(files, folder, bert_config_file=f"{pretrained}/bert_config.json"))

"""SQuAD from files to answers, and its files of predictions."""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import run_finetuning
from bert_tf.finetuning.options import FineTuningOptions as Options
from bert_tf.finetuning.registry import make_task
from bert_tf.finetuning.task import DataFiles
from export import classifier


def _write(path, count: int, seed: int, *, answers: bool = True) -> None:
    """Writes questions whose answer is the word "good", where the context has it."""
    random = np.random.default_rng(seed)
    paragraphs = []
    for index in range(count):
        words = [*random.choice([*"abcdefg"], random.integers(3, 30))]
        if random.random() < 0.6:
            words.insert(random.integers(len(words)), "Good")
        context = " ".join(words)
        row = {"id": f"q{index}", "question": "h", "answers": []}
        if "Good" in context:
            row["answers"] = [{"text": "Good", "answer_start": context.index("Good")}]
        if not answers:
            del row["answers"]
        paragraphs.append({"context": context, "qas": [row]})
    path.write_text(json.dumps({"version": "v2.0", "data": [{"paragraphs": paragraphs}]}))


def _read(folder, name: str) -> dict:
    return json.loads((folder / name).read_text())


def test_from_files_to_answers(files, tmp_path, capsys):
    """Oracles: the word that gives the answer away; the results of training, evaluated again."""
    _write(tmp_path / "train-v2.0.json", 400, seed=0)
    _write(tmp_path / "dev-v2.0.json", 60, seed=1)
    _write(tmp_path / "test.json", 20, seed=2, answers=False)
    run = tmp_path / "run"
    common = dict(task="squad2", data_dir=str(tmp_path), output_dir=str(run))
    results = run_finetuning.run(
        Options(
            **common,
            do_train=True,
            do_eval=True,
            vocab_file=str(files / "vocab.txt"),
            bert_config_file=str(files / "bert_config.json"),
            max_seq_length=16,
            max_query_length=4,
            doc_stride=6,
            train_batch_size=16,
            learning_rate=1e-2,
            num_train_epochs=2,
        )
    )
    assert results["eval_best_f1"] > 0.95
    printed = capsys.readouterr().out
    assert "train: 400 questions on 400 contexts in " in printed
    assert f"Best_f1 {results['eval_best_f1']:.4f} on the dev set" in printed
    predictions, odds = _read(run, "predictions.json"), _read(run, "null_odds.json")
    assert {*predictions.values()} == {"Good", ""} and list(predictions) == list(odds)
    for id_, candidates in _read(run, "nbest_predictions.json").items():
        assert candidates[0].keys() == {"text", "probability", "start_logit", "end_logit"}
        assert sum(x["probability"] for x in candidates) == pytest.approx(1)
        assert predictions[id_] == ("" if odds[id_] > 0 else candidates[0]["text"])

    again = run_finetuning.run(
        Options(
            **common,
            do_eval=True,
            do_predict=True,
            test_file=str(tmp_path / "test.json"),
            null_score_diff_threshold=-1e5,
        )
    )
    assert again["eval_best_f1"] == pytest.approx(results["eval_best_f1"], abs=1e-6)
    assert again["eval_HasAns_f1"] == 0 and again["eval_NoAns_f1"] == 1
    assert {*_read(run, "predictions.json").values()} == {""}
    assert len(_read(run, "predictions_test.json")) == 20
    assert not any(name.startswith("test_") for name in again)

    classifier.run(classifier.Options(checkpoint=str(run), output_dir=str(tmp_path / "answers")))
    loaded = tf.saved_model.load(str(tmp_path / "answers"))
    outputs = loaded(["h", "h"], ["a b c " * 20 + "Good d", "a b c " * 20])
    assert outputs["text"].numpy().tolist() == [b"Good", b""]


def test_where_the_files_are():
    """Oracle: the official names."""
    for name, version in (("squad", "v1.1"), ("squad2", "v2.0")):
        task = make_task(Options(task=name, output_dir="run", do_eval=True))
        with pytest.raises(FileNotFoundError, match=f"data/dev-{version}.json: no such file"):
            task.read_splits(["dev"], DataFiles("data"), 0)
        with pytest.raises(FileNotFoundError, match="mine.json"):
            task.read_splits(["train"], DataFiles("data", "mine.json"), 0)
        with pytest.raises(ValueError, match="SQuAD's test set is not public: give --test_file"):
            task.read_splits(["test"], DataFiles(), 0)


def test_flags_that_do_not_fit_are_refused():
    def make(**flags):
        return make_task(Options(output_dir="run", do_eval=True, **flags))

    with pytest.raises(
        ValueError, match="--null_score_diff_threshold has no effect with --task=sq"
    ):
        make(task="squad", null_score_diff_threshold=1.0)
    with pytest.raises(ValueError, match="--doc_stride has no effect with --task=sst2"):
        make(task="sst2", doc_stride=64)
    with pytest.raises(ValueError, match="--max_seq_length=64 leaves no room for the context"):
        make(task="squad", max_seq_length=64)

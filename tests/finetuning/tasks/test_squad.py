"""SQuAD from files to answers, and its files of predictions."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from support import calls_of, tuning_options

from bert_tf import run_finetuning
from bert_tf.config import BertConfig
from bert_tf.finetuning.finetuning_options import FineTuningOptions as Options
from bert_tf.finetuning.registry import make_task, with_length
from bert_tf.finetuning.saved_run import own_flags
from bert_tf.finetuning.squad.answers import Answer
from bert_tf.finetuning.squad.contexts import SquadOptions
from bert_tf.finetuning.squad.questions import Question, SquadExamples
from bert_tf.finetuning.task import DataFiles
from bert_tf.finetuning.tasks import squad
from bert_tf.runs.run import FINISHED, Run
from bert_tf.text.tokenizer import WordPieceTokenizer
from export import classifier
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary


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


def test_from_files_to_answers(files, tmp_path, capsys, monkeypatch):
    """Oracles: the word that gives the answer away; the exported module; one search per epoch."""
    found = calls_of(monkeypatch, squad, "find_answers")
    _write(tmp_path / "train-v2.0.json", 200, seed=0)
    _write(tmp_path / "dev-v2.0.json", 40, seed=1)
    _write(tmp_path / "test.json", 20, seed=2, answers=False)
    run = tmp_path / "run"
    sizes = dict(max_seq_length=16, max_query_length=4, doc_stride=6)
    flags = dict(task="squad2", data_dir=str(tmp_path), test_file=str(tmp_path / "test.json"))
    flags |= dict(do_predict=True, learning_rate=1e-2, num_train_epochs=2)
    results = run_finetuning.run(tuning_options(files, run, **flags, **sizes))
    assert results["eval_best_f1"] > 0.95
    printed = capsys.readouterr().out
    assert "train: 200 questions on 200 contexts in " in printed
    assert f"Best_f1 {results['eval_best_f1']:.4f} on the dev set" in printed
    predictions, odds = _read(run, "predictions.json"), _read(run, "null_odds.json")
    assert {*predictions.values()} == {"Good", ""} and list(predictions) == list(odds)
    for id_, candidates in _read(run, "nbest_predictions.json").items():
        assert candidates[0].keys() == {"text", "probability", "start_logit", "end_logit"}
        assert sum(x["probability"] for x in candidates) == pytest.approx(1)
        assert predictions[id_] == ("" if odds[id_] > 0 else candidates[0]["text"])

    assert len(_read(run, "predictions_test.json")) == 20
    assert [len(call.args[1].examples) for call in found] == [40, 40, 20]
    assert not any(name.startswith("test_") for name in results)
    _write(tmp_path / "scored.json", 20, seed=2)
    flags = dict(task="squad2", data_dir=str(tmp_path), test_file=str(tmp_path / "scored.json"))
    flags |= dict(init_checkpoint=str(run), output_dir=str(tmp_path / "other"), do_eval=True)
    evaluated = run_finetuning.run(Options(**flags))
    assert evaluated["eval_best_f1"] == results["eval_best_f1"] and evaluated["test_f1"] > 0.9

    classifier.run(classifier.Options(checkpoint=str(run), output_dir=str(tmp_path / "answers")))
    card = (tmp_path / "answers" / "README.md").read_text()
    assert "Contexts of any length are read in windows of 16 tokens." in " ".join(card.split())
    loaded = tf.saved_model.load(str(tmp_path / "answers"))
    contexts = [x["context"] for x in _read(tmp_path, "dev-v2.0.json")["data"][0]["paragraphs"]]
    outputs = loaded.signatures["serving_default"](
        question=tf.constant(["h"] * len(contexts)), context=tf.constant(contexts)
    )
    assert [text.decode() for text in outputs["text"].numpy()] == [*predictions.values()]
    empty = tf.constant([], tf.string)
    assert loaded(empty, empty)["score"].shape == (0,)
    assert loaded("h", "a b c " * 20 + "Good d")["text"] == "Good"


@pytest.mark.parametrize(
    ("threshold", "answers", "note"),
    [
        (0.0, [("a",), ("b",)], ", all of them with an answer"),
        (0.0, [(), ()], ", all of them unanswerable"),
        (0.0, [("a",), ()], ""),
        (0.0, [("a",), None], ""),
        (None, [("a",), ("b",)], ""),
    ],
)
def test_squad2_says_whether_all_questions_are_of_one_kind(threshold, answers, note):
    """Oracle: the answers. In SQuAD 1.1, every question has one, and None is unknown."""
    rows = [Question(str(n), "a", 0, given) for n, given in enumerate(answers)]
    examples = SquadExamples([b"a b"], rows, None not in answers)
    tokenizer = WordPieceTokenizer(Vocabulary((*SPECIAL_TOKENS, "a", "b")))
    task = squad.SquadTask(SquadOptions(4, 5, 5, 4, threshold))
    line = "2 questions on 1 context in 2 windows of up to 16 tokens"
    line += ", 1.0 tokens per word, 0.0% [UNK]"
    assert task.featurize(examples, tokenizer, 16).describe() == line + note


@pytest.mark.parametrize(
    ("threshold", "answered", "right", "odds", "warns"),
    [
        # Two of ten questions have no answer; at best, none is answered.
        (0.0, 8, "z", 1.0, "best_f1 is 0.200, hardly above the 0.200 of leaving every"),
        (0.0, 8, "b", -1.0, None),
        # Leaving every question unanswered is best, but the answers are right.
        (0.0, 2, "b", -1.0, None),
        (None, 10, "z", 0.0, "f1 is 0.000, below the 0.20 that comparing words"),
        (None, 10, "b", 0.0, None),
    ],
)
def test_a_score_that_takes_no_model_is_warned_of(threshold, answered, right, odds, warns):
    """Oracle: the share of questions without an answer; the baseline of the paper."""
    rows = [Question(str(n), "a", 0, (right,) * (n < answered)) for n in range(10)]
    task = squad.SquadTask(SquadOptions(4, 5, 5, 4, threshold))
    features = SimpleNamespace(examples=SquadExamples([b"a b"], rows, True))
    problem = task.problem({"answers": [Answer("b", odds, [])] * 10}, features)
    assert (warns in problem and "ignores its input" in problem) if warns else problem is None


def test_the_threshold_may_change_after_training(tmp_path):
    """The number of windows may not, because the model was trained for them."""
    run = Run(str(tmp_path))
    saved = dict(task="squad2", output_dir=run.path, max_answer_length=9, doc_stride=64)
    saved |= {"null_score_diff_threshold": -1.5, "do_train": True}
    (tmp_path / "flags.json").write_text(json.dumps(saved | {FINISHED: True}))
    options = dict(task="squad2", output_dir=run.path, do_eval=True)
    for given, expected in ((2.0, 2.0), (0.0, 0.0), (None, -1.5)):
        flags = {} if given is None else {"null_score_diff_threshold": given}
        found = own_flags(Options(**options, **flags), run)
        assert (found.null_score_diff_threshold, found.max_answer_length) == (expected, 9)
    # 128 is the default: a flag that was given counts, whatever its value.
    for stride in (32, 128):
        with pytest.raises(ValueError, match=rf"\(doc_stride=64, not {stride}\): omit the flag"):
            own_flags(Options(**options, doc_stride=stride), run)


def test_where_the_files_are(tmp_path):
    """Oracle: the official names. Questions of another data set must not choose the best epoch."""
    for name, version in (("squad", "v1.1"), ("squad2", "v2.0")):
        task = make_task(Options(task=name, output_dir="run", do_eval=True))
        with pytest.raises(FileNotFoundError, match=f"/dev-{version}.json: no such file"):
            task.read_splits(["dev"], DataFiles(str(tmp_path)))
        with pytest.raises(FileNotFoundError, match="mine.json"):
            task.read_splits(["train"], DataFiles(str(tmp_path), "mine.json"))
        with pytest.raises(FileNotFoundError, match="SQuAD's test set is not public: give --te"):
            task.read_splits(["test"], DataFiles())
        with pytest.raises(FileNotFoundError, match="needs --dev_file, or --data_dir with dev-v"):
            task.read_splits(["dev"], DataFiles(train_file="x"))


def test_a_tenth_of_the_contexts_is_held_out(tmp_path):
    """Oracle: the numbers of questions and of their contexts."""
    _write(tmp_path / "mine.json", 40, seed=0)
    options = Options(task="squad2", output_dir="x", do_train=True, train_file="mine.json")
    files = DataFiles(train_file=str(tmp_path / "mine.json"))
    splits = make_task(options).read_splits(["train", "dev"], files)
    assert [len(part) for part in splits.values()] == [36, 4]
    train, dev = ({question.context for question in part.questions} for part in splits.values())
    assert len(train) == 36 and len(dev) == 4 and not train & dev


def test_the_default_length_is_that_of_the_original():
    """Oracle: the flags of google-research/bert's run_classifier.py and run_squad.py."""
    for task, given, length in (("squad", None, 384), ("sst2", None, 128), ("squad", 100, 100)):
        options = Options(task=task, output_dir="run", do_eval=True, max_seq_length=given)
        assert with_length(options, BertConfig(100)).max_seq_length == length


def test_flags_that_do_not_fit_are_refused():
    def make(**flags):
        return make_task(Options(output_dir="run", do_eval=True, **flags))

    with pytest.raises(ValueError, match="threshold has no effect without --task=squad2"):
        make(task="squad", null_score_diff_threshold=1.0)
    with pytest.raises(ValueError, match="--doc_stride has no effect without --task=squad or"):
        make(task="sst2", doc_stride=64)
    with pytest.raises(ValueError, match="--max_seq_length=67 leaves no room .*: 384 is usual"):
        make(task="squad", max_seq_length=67)
    make(task="squad", max_seq_length=68)

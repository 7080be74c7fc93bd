"""SWAG: the official layout, batches of choices, and a run on endings that give themselves away."""

import csv
import dataclasses
import json
import types

import numpy as np
import pytest
import tensorflow as tf
from support import tuning_options, without_tracing

from bert_tf.finetuning.batches import batch_sizes, eval_batches, train_batches
from bert_tf.finetuning.fine_tune import fine_tune
from bert_tf.finetuning.fine_tuned import load_task_model, open_fine_tuned
from bert_tf.finetuning.registry import TASKS
from bert_tf.finetuning.task import DataFiles
from bert_tf.finetuning.tasks import multiple_choice
from bert_tf.finetuning.tasks.multiple_choice import ENDINGS, ChoiceExamples
from bert_tf.text.bert_preprocessor import pack_segments
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import load_vocab

TASK = TASKS["swag"]
# The columns of rowanz/swagaf data/train.csv; test.csv lacks the last one.
HEADER = (
    *("", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source"),
    *("ending0", "ending1", "ending2", "ending3", "label"),
)


def row(sent1: str, sent2: str, endings: list[str], label: object) -> list:
    return [0, "anetv_x", 7, f"{sent1} {sent2}", sent1, sent2, "gold", *endings, label]


def write(folder, name: str, rows: list[list], columns: int = len(HEADER)) -> None:
    with open(folder / name, "w", newline="") as file:
        csv.writer(file).writerows([HEADER[:columns], *(values[:columns] for values in rows)])


def test_reads_the_official_columns_from_the_folder_or_its_parent(tmp_path):
    """Oracle: by hand; a choice is the beginning of the second sentence with an ending."""
    (tmp_path / "data").mkdir()
    rows = [
        row('A "man", he says, sits.', "He", ["runs, fast.", "b", "c", "d"], 2),
        row("It rains.", "", ["é", "f", "g", "h"], 0),
    ]
    write(tmp_path / "data", "train.csv", rows)
    write(tmp_path / "data", "val.csv", [row("It rains.", "He", ["runs", "", " ", "sits"], 0)])
    write(tmp_path / "data", "test.csv", rows, len(HEADER) - 1)
    for folder in (tmp_path, tmp_path / "data"):
        splits = TASK.read_splits(("train", "dev", "test"), DataFiles(str(folder)))
        assert [len(split) for split in splits.values()] == [2, 1, 2]
        assert splits["train"].texts == [b'A "man", he says, sits.', b"It rains."]
        assert splits["train"].choices == [
            [b"He runs, fast.", b"He b", b"He c", b"He d"],
            ["é".encode(), b"f", b"g", b"h"],
        ]
        assert splits["train"].targets["labels"].tolist() == [2, 0]
        assert splits["test"].targets == {}
        assert splits["dev"].choices == [[b"He runs", b"He", b"He", b"He sits"]]
        assert splits["dev"].notes == splits["dev"].flatten().notes == ("2 empty endings",)
        assert splits["train"].notes == ()
    write(tmp_path / "data", "test.csv", [[*values[:-1], ""] for values in rows])
    (test,) = TASK.read_splits(["test"], DataFiles(str(tmp_path))).values()
    assert test.targets == {}
    # JSON holds numbers, and null where a test set has none.
    for label in (2, None):
        values = {"sent1": "a", "sent2": "b", **dict.fromkeys(ENDINGS, "c"), "label": label}
        (tmp_path / "a.jsonl").write_text(json.dumps(values))
        targets = multiple_choice.read_swag_file(str(tmp_path / "a.jsonl"), "test").targets
        assert targets == ({} if label is None else {"labels": label})
    # A file of the user's, of which one row is held out.
    task = TASK.with_files(files := DataFiles(train_file=str(tmp_path / "data" / "train.csv")))
    assert [*map(len, task.read_splits(["train", "dev"], files).values())] == [1, 1]


def test_bad_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="--task=swag needs --train_file, or --data_dir"):
        TASK.read_splits(["train"], DataFiles())
    with pytest.raises(FileNotFoundError, match="contains neither train.csv nor data/train.csv"):
        TASK.read_splits(["train"], DataFiles(str(tmp_path)))
    write(tmp_path, "train.csv", [row("a", "b", ["c"] * 4, 1), row("a", "b", ["c"] * 4, 4)])
    with pytest.raises(ValueError, match="train.csv, line 3: label '4' is not one of .*: 0, 1, 2"):
        TASK.read_splits(["train"], DataFiles(str(tmp_path)))
    write(tmp_path, "val.csv", [row("a", "b", ["c"] * 4, 1)], len(HEADER) - 1)
    with pytest.raises(ValueError, match="val.csv has no column 'label'"):
        TASK.read_splits(["dev"], DataFiles(str(tmp_path)))


def examples(count: int) -> ChoiceExamples:
    random = np.random.default_rng(0)

    def text(longest: int) -> bytes:
        return " ".join(random.choice([*"abcdefgh"], random.integers(1, longest))).encode()

    texts = [text(6) for _ in range(count)]
    choices = [[text(12) for _ in range(4)] for _ in range(count)]
    return ChoiceExamples(texts, choices, {"labels": np.arange(count, dtype=np.int32)})


@pytest.mark.parametrize("device", ["CPU", "TPU"])
def test_batches_hold_all_choices_of_an_example(files, device):
    """Oracle: every pair packed alone; a batch is as long as its longest choice."""
    tokenizer = WordPieceTokenizer(load_vocab(str(files / "vocab.txt")))
    made = examples(21)
    features = TASK.featurize(made, tokenizer, 16)
    pairs = made.flatten()
    segments = [tokenizer.tokenize_flat(texts) for texts in (pairs.texts_a, pairs.texts_b)]
    expected = pack_segments(segments, 16, tokenizer.vocab)
    expected = {name: values.numpy().reshape(21, 4, 16) for name, values in expected.items()}
    for batches in (eval_batches, lambda *a, **k: train_batches(*a, range(4), 0, **k)):
        for batch in batches(features, 6, device=device).as_numpy_iterator():
            assert batch["input_word_ids"].shape[:2] == (6, 4)
            length = batch["input_mask"].shape[-1]
            for name, values in expected.items():
                np.testing.assert_array_equal(batch[name], values[batch["labels"]][..., :length])
            longest = batch["input_mask"].sum(axis=-1).max()
            assert length in ({16} if device == "TPU" else {min(-(-longest // 8) * 8, 16), 16})
    tokens, places = batch_sizes(features, device)
    np.testing.assert_array_equal(tokens, expected["input_mask"].sum(axis=(1, 2)))
    assert places == 4 * 16
    rows = zip(pairs.texts_a, pairs.texts_b, strict=True)
    cut = sum(len(text.split()) + len(choice.split()) > 13 for text, choice in rows)
    assert cut and features.notes[0] == f"{cut} of 84 choices truncated to 16 tokens"


def test_one_position_of_all_right_endings_is_noted(files):
    """Oracle: the labels."""
    tokenizer = WordPieceTokenizer(load_vocab(str(files / "vocab.txt")))
    for labels, notes in (([2, 2, 2], ('all of them "ending2"',)), ([2, 2, 1], ()), (None, ())):
        targets = {"labels": np.array(labels)} if labels else {}
        made = dataclasses.replace(examples(3), targets=targets)
        assert TASK.featurize(made, tokenizer, 32).notes == notes


def test_scores_and_files_against_a_worked_example(tmp_path, monkeypatch):
    """Oracle: the losses log 4 and log(3 / 2.5), by hand."""
    logits = np.array([[0, 0, 0, 0], [0, np.log(5.0), -99, -99]], np.float32)
    features = types.SimpleNamespace(targets={"labels": np.array([3, 1])}, examples=range(2))
    scores = TASK.score({"logits": logits}, features)
    assert scores == pytest.approx({"loss": (np.log(4) + np.log(6 / 5)) / 2, "accuracy": 0.5})
    assert TASK.problem({"logits": logits}, features) is None
    constant = {"logits": np.eye(4)[[2, 2]]}
    problem = TASK.problem(constant, features)
    assert '"ending2" for 2 of 2 examples, but that is right for 0' in problem
    drawn = []
    monkeypatch.setattr(multiple_choice, "draw_confusion", lambda *values: drawn.append(values))
    names = TASK.write_predictions(str(tmp_path), "dev", {"logits": logits}, features)
    assert names == ["predictions_dev.tsv", "confusion_dev.png"]
    ((labels, predictions, *rest),) = drawn
    assert (labels.tolist(), predictions.tolist()) == ([3, 1], [0, 1])
    assert rest == [ENDINGS, f"{tmp_path}/confusion_dev.png"]
    lines = (tmp_path / "predictions_dev.tsv").read_text().splitlines()
    assert lines[0] == "index\tlabel\tprediction" + "".join(f"\tp(ending{i})" for i in range(4))
    assert lines[1] == "0\t3\t0\t0.25\t0.25\t0.25\t0.25"
    assert lines[2].startswith("1\t1\t1\t0.166667\t0.833333\t")


@pytest.mark.slow
def test_from_files_to_the_served_model(files, tmp_path):
    """Oracles: the word that tells the right ending; the predictions on disk."""
    random = np.random.default_rng(0)

    def rows(count: int) -> list[list]:
        made = []
        for label in random.integers(4, size=count):
            endings = ["bad a b"] * 4
            endings[label] = "good good"
            made.append(row("a b c", "d", endings, label))
        return made

    for name, count in (("train.csv", 64), ("val.csv", 8), ("test.csv", 5)):
        write(tmp_path, name, rows(count), len(HEADER) - (name == "test.csv"))
    sizes = dict(max_seq_length=16, train_batch_size=8, eval_batch_size=8, num_train_epochs=1)
    flags = dict(task="swag", data_dir=str(tmp_path), do_predict=True, learning_rate=1e-2)
    options = tuning_options(files, tmp_path / "run", **flags, **sizes)
    assert fine_tune(options)["eval_accuracy"] == 1
    lines = (tmp_path / "run" / "predictions_test.tsv").read_text().splitlines()[1:]
    found = np.array([[float(x) for x in line.split("\t")] for line in lines])

    checkpoint, task, length = open_fine_tuned(options.output_dir, None, None, pairs=False)
    model, tokenizer = load_task_model(task, checkpoint), WordPieceTokenizer(checkpoint.spec.vocab)
    test = TASK.read_splits(["test"], DataFiles(str(tmp_path)))["test"]
    choose = task.serving(model, tokenizer, length).__call__
    with without_tracing():
        outputs = choose(tf.constant(test.texts), tf.constant(test.choices))
        one = choose(tf.constant(test.texts[0]), tf.constant(test.choices[0][:3]))
    assert outputs["index"].numpy().tolist() == found[:, 1].tolist()
    np.testing.assert_allclose(outputs["probabilities"], found[:, 2:], rtol=1e-3)
    assert one["index"].shape == () and one["probabilities"].shape == (3,)

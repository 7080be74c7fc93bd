"""Several classes at once, worked by hand."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning.examples import TextExamples
from bert_tf.finetuning.tasks.classification import MultiLabelTask
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary

TASK = MultiLabelTask(name="topics", labels=("a", "b", "c"), separator="|")
LABELS = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]], np.float32)
LOGITS = np.array([[1, 1, -1], [1, -1, -1], [-1, -1, -1], [-1, 0, 2]], np.float32)


FOUND = (("no example", 10), ("every example", 1))


class _Features:
    targets = {"labels": LABELS}
    examples = TextExamples([b"good"] * 4, None, {}, ["w", "x", "y", "z"])

    def __len__(self):
        return 4


def test_scores_against_a_worked_example():
    """Oracle: 3 true positives, 2 false ones, 1 miss; F1 2/3, 1/2 and 1; rows 1 and 3 are right."""
    sigmoid = 1 / (1 + np.exp(-LOGITS))
    scores = TASK.score({"logits": LOGITS}, _Features())
    loss = -np.mean(LABELS * np.log(sigmoid) + (1 - LABELS) * np.log(1 - sigmoid))
    expected = {"loss": loss, "subset_accuracy": 0.5}
    expected |= {"micro_precision": 3 / 5, "micro_recall": 3 / 4, "micro_f1": 6 / 9}
    of_classes = {"precision": (1 / 2, 1 / 2, 1), "recall": (1, 1 / 2, 1), "f1": (2 / 3, 1 / 2, 1)}
    for name, values in of_classes.items():
        expected[f"macro_{name}"] = sum(values) / 3
        expected |= {f"{name}/{label}": x for label, x in zip("abc", values, strict=True)}
    assert scores == pytest.approx(expected)
    assert set(scores) == set(TASK.metrics)


@pytest.mark.parametrize(
    ("rows", "classes", "notes"),
    [
        (LABELS, 3, ('1 "0"', '2 "1"', '1 "2"')),
        (LABELS[:2], 3, ('1 "0"', 'all of them "1"', 'none of them "2"')),
        (LABELS[:1], 3, ('1 "0"', '1 "1"', '0 "2"')),
        (np.eye(11), 11, ()),
        (np.eye(11)[[0, 0]], 11, [f"classes that {x} has: {n}" for x, n in FOUND]),
    ],
)
def test_the_examples_of_each_class_are_counted(rows, classes, notes):
    """Oracle: by hand. Many classes are not named, but those of all or of no examples counted."""
    task = MultiLabelTask(name="topics", labels=tuple(map(str, range(classes))))
    tokenizer = WordPieceTokenizer(Vocabulary((*SPECIAL_TOKENS, "a")))
    for targets, expected in (({"labels": rows}, notes), ({}, ())):
        examples = TextExamples([b"a"] * len(rows), None, targets)
        assert task.featurize(examples, tokenizer, 8).notes == tuple(expected)


def test_predictions_of_no_class_are_reported():
    """Oracle: the counts."""
    assert TASK.problem({"logits": LOGITS}, _Features()) is None
    found = TASK.problem({"logits": -np.ones((4, 3))}, _Features())
    assert "no class for any of 4 examples, but should for 3:" in found


def test_files_and_the_exported_function_agree(tmp_path):
    """Oracle: by hand."""
    TASK.write_predictions(str(tmp_path), "dev", {"logits": LOGITS}, _Features())
    lines = (tmp_path / "predictions_dev.tsv").read_text().splitlines()
    assert lines[0] == "index\tlabels\tprediction\tp(a)\tp(b)\tp(c)\ttext"
    rows = ["w\ta|b\ta|b", "x\tb\ta", "y\t\t", "z\tc\tb|c"]
    assert ["\t".join(line.split("\t")[:3]) for line in lines[1:]] == rows
    assert lines[4].split("\t")[3:] == ["0.268941", "0.5", "0.880797", "good"]
    outputs = TASK.serve(tf.constant(LOGITS))
    assert outputs["labels"].numpy().tolist() == [b"a|b", b"a", b"", b"b|c"]
    np.testing.assert_allclose(outputs["probabilities"], 1 / (1 + np.exp(-LOGITS)), rtol=1e-6)

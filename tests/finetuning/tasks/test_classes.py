"""Names of classes in the user's own tables, one or several in a cell, worked by hand."""

import csv
import dataclasses
import json
import types
from unicodedata import normalize

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import Head
from bert_tf.finetuning import labels
from bert_tf.finetuning.examples import TextExamples
from bert_tf.finetuning.tasks.classification import MultiLabelTask
from bert_tf.tables.table import read_table
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import Vocabulary


@pytest.mark.parametrize(
    ("name", "data", "flags"),
    [
        ("a.csv", 'text,label\na,"x,y"\nb,\nc, y\n', {}),
        ("a.csv", "text,label\na,x|y\nb,|\nc,y|y\n", {"label_separator": "|"}),
        ("a.tsv", 'text\tlabel\na\t["x", "y"]\nb\t[]\nc\ty\n', {}),
        ("a.csv", "text,x,y\na,1,1\nb,0,0\nc,0,1\n", {"label_column": "x,y"}),
        ("a.csv", "text,x,y\na,1.0,1\nb,0.0,0\nc,0,1\n", {"label_column": "x,y"}),
        ("a.jsonl", [{"label": ["y", "x"]}, {}, {"label": "y"}], {}),
        (
            "a.jsonl",
            [{"x": 1, "y": True}, {"x": 0, "y": False}, {"x": 0, "y": 1}],
            {"label_column": "x, y"},
        ),
    ],
)
def test_several_classes_at_once(read, write, name, data, flags):
    """Oracle: by hand."""
    if isinstance(data, list):
        data = "\n".join(json.dumps({"text": "a"} | row) for row in data)
    path = write(name, data)
    task, splits = read(train_file=path, dev_file=path, label_type="classes", **flags)
    listed = name == "a.jsonl" and not flags
    assert task.head == Head("classifier", ("x", "y"), multi_label=True, listed_labels=listed)
    assert splits["dev"].targets["labels"].tolist() == [[1, 1], [0, 0], [0, 1]]


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("['sport', 'nature']", "sport nature"),
        (" ('sport',) ", "sport"),
        ("{'sport', 'nature'}", "nature sport"),
        ('["it\'s", "a \\"b\\""]', 'it\'s|a "b"'),
        (r"""["it's", 'a "b"', 'c\d']""", 'it\'s|a "b"|c\\d'),
        ("['a, b', 'c']", "a, b|c"),
        ("[1, 2.0]", "1 2"),
        ("['sport', 1]", None),
        ("[True]", None),
        ("[0.5]", None),
        ("['a', '']", None),
        ("'sport', 'nature'", "sport nature"),
        ("“sport”, „nature“", "sport nature"),
        ("'a, b', 'c'", "a, b|c"),
        ("'rock 'n' roll', it's", "rock 'n' roll|it's"),
        ("'80s, rock 'n' roll", "'80s|rock 'n' roll"),
        ("\"['sport', 'nature']\"", "sport nature"),
        ('"[\\"sport\\"]"', "sport"),
        ("\"['sport'\"", None),
        ("'sport, nature'", None),
        ("sport, ['nature']", None),
        ("['sport', 'sport ']", "sport"),
        ('["(other)"]', "(other)"),
        ("[]", ""),
        ("set()", ""),
        ("sport, nature", "sport nature"),
        ("sport (indoor)", "sport (indoor)|"),
        ("['a' 'b']", None),
        ("['sport', 'nature'", None),
        ("['sport', nature]", None),
        ("[0 1]", None),
        ("['a', ...]", None),
        ("['a', ['b']]", None),
        ("[b'a']", None),
        ("('sport')", None),
        ("(other)", None),
        ("{'a': 1}", None),
        ("array(['a'], dtype=object)", None),
        ("[" * 9999, None),
        ("'" * 9999, "'" * 9997 + "|"),
        ('"()"', ""),
    ],
)
def test_lists_in_cells(write, cell, names, tmp_path):
    """Oracle: by hand, as Python, pandas and NumPy write lists; others are errors with a line."""
    for name, delimiter in (("a.csv", ","), ("a.tsv", "\t")):
        with open(tmp_path / name, "w", newline="") as file:
            writer = csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL)
            writer.writerows([("text", "label"), ("x", "z"), ("y", cell)])
        table = read_table(str(tmp_path / name))
        if names is None:
            with pytest.raises(ValueError, match=f"{name}, line 3[ :]") as caught:
                labels.read_several(table, "label", ",")
            assert "\n" not in str(caught.value)
        else:
            expected = [x for x in names.split("|" if "|" in names else " ") if x]
            assert sorted(labels.read_several(table, "label", ",")[1]) == sorted(expected)


def test_features_of_a_record_are_lists(tmp_path, capsys):
    """Oracle: by hand; a value is a class or a word, and only a flag splits it."""
    path, values = str(tmp_path / "a.tfrecord"), (["Health, fitness"], ["Food", "x"], ["["], [])
    with tf.io.TFRecordWriter(path) as file:
        for some in values:
            value = tf.train.BytesList(value=[*map(str.encode, some)])
            features = tf.train.Features(feature={"label": tf.train.Feature(bytes_list=value)})
            file.write(tf.train.Example(features=features).SerializeToString())
    table = read_table(path)
    assert labels.read_several(table, "label", None) == [*map(tuple, values)]
    first = dataclasses.replace(table, columns={"label": table.columns["label"][:1]})
    assert labels.read_several(first, "label", ",") == [("Health", "fitness")]
    labels.check_class_separator(table, "label", None)
    assert "one class; if commas separate classes, give --label_sep" in capsys.readouterr().out
    assert table.words(1, "label", "word") == ("Food", "x")
    assert table.words(2, "label", "word") == ("[",)
    with pytest.raises(ValueError, match="record 1: 'label' is not a list of strings"):
        table.words(0, "label", "word")


@pytest.mark.parametrize(
    ("cells", "given", "advised"),
    [
        (["a|b", "b", "a|c"], None, "'|'"),
        (["a; b", "a;c"] + ["c"] * 9, None, "';'"),
        (["a\nb", "c"], None, r"$'\n'"),
        (["x y", "x z", "x y z", "z"], None, "' '"),
        (["food, drinks|sport"] + ["sport|food"] * 19, None, "'|'"),
        (["'a'|'b'", "'b'"], None, "'|'"),
        (["a,b", "c"], ";", "',', but hardly any ';'"),
        (["a|b", "c"], ",", "'|', but hardly any ','"),
        (["C/C++, Java", "Go"], None, None),
        (["science fiction", "pop music", "rock music", "pop"], None, None),
        (["a|b"] + ["c"] * 10, None, None),
        ([["a|b"], ["c|d"]], None, None),
        (["a;b", "c"], ";", None),
    ],
)
def test_other_separators_are_noticed(read, write, cells, given, advised, capsys):
    """Oracle: by hand. A separator that the user gave is kept, with a warning."""
    path = write("a.jsonl", "\n".join(json.dumps({"text": "x", "label": c}) for c in cells))
    flags = dict(train_file=path, dev_file=path, label_type="classes", label_separator=given)
    if advised and not given:
        with pytest.raises(ValueError, match="cells of 'label' hold") as caught:
            read(**flags)
        assert f"give --label_separator={advised}, or --label_separator=, if" in str(caught.value)
        return
    read(**flags)
    out = capsys.readouterr().out
    assert ("WARNING" in out) == bool(advised) and (advised or "") in out


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["['a', 'b']", "['a']"], "line 1: .* looks like a list, .* --label_type=classes"),
        (["['a' 'b']", "['a']"], "--label_type=classes"),
        (["[1, 2]", "[1]"], "--label_type=classes"),
        (["[sport, nature]", "[sport]"], "--label_type=classes"),
        (["['a', 'b']", "a"], None),
        (["(other)", "(rest)"], None),
        (["(0, 10]", "(10, 20]"], None),
        (["[UNK]", "known"], None),
    ],
)
def test_a_column_of_lists_is_not_one_of_single_classes(read, write, cells, message, capsys):
    """Oracle: by hand; parentheses are text, and a note names the first list among others."""
    path = write("a.jsonl", "\n".join(json.dumps({"text": "x", "label": c}) for c in cells))
    if message:
        with pytest.raises(ValueError, match=message):
            read(train_file=path, dev_file=path)
        return
    task, _ = read(names=["train"], train_file=path, dev_file=path)
    assert task.labels == tuple(sorted(cells))
    assert capsys.readouterr().out.count("looks like a list") == cells[0].startswith("[")


NAMES = ("food, drinks", "sport", "(other)", '["x"]', "a\tb", "c\u2028d", "it's", "e|", "|f", "é")
NAMES += ("'x'", '"x"', "'80s", "girls'")


@pytest.mark.parametrize("separator", [",", "|", "||", " ", ", ", " and "])
@pytest.mark.slow
def test_predicted_classes_can_be_read_back(write, separator, tmp_path):
    """Oracle: round trip of every pair of names, in files of predictions and in the graph."""
    task = MultiLabelTask(name="csv", labels=NAMES, separator=separator)
    one = np.eye(len(NAMES), dtype=bool)
    pairs = (one[:, None] | one).reshape(-1, len(NAMES))
    logits = np.where([*pairs, one[0] & ~one[0]], 1.0, -1.0)
    texts = [b"x"] * len(logits)
    features = types.SimpleNamespace(examples=TextExamples(texts, None, {}), targets={})
    task.write_predictions(str(tmp_path), "test", {"logits": logits}, features)
    table = read_table(str(tmp_path / "predictions_test.tsv"))
    expected = [{NAMES[k] for k in np.flatnonzero(row > 0)} for row in logits]
    assert [*map(set, labels.read_several(table, "prediction", separator))] == expected

    def model(inputs, training=False):
        return tf.gather(tf.constant(logits, tf.float32), tf.range(len(logits)))

    vocab = Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "x"))
    model.variables = ()
    module = task.serving(model, WordPieceTokenizer(vocab), 8)
    found = [row.decode() for row in module.serving(tf.constant(texts))["labels"].numpy()]
    assert found == table.columns["prediction"]


@pytest.mark.parametrize(
    ("names", "classes", "warned"),
    [
        (["cafe\u0301", "caf\u00e9", "tea"], ["café", "tea"], ()),
        (["\u1112\u1161\u11ab", "\ud55c", "x"], ["x", "\ud55c"], ()),
        ([" spam\u00a0", "spam", "ham"], ["ham", "spam"], ()),
        (["Spam", "spam", "ham"], ["Spam", "ham", "spam"], ("'Spam' and 'spam'",)),
        (["a b", "a  b", "a\u00a0b"], None, (r"'a  b' and 'a b' and 'a\xa0b'",)),
        (["spam", "sp\u200bam", "\ufeffspam"], None, (r"'sp\u200bam'", r"'\ufeffspam'")),
        (["\u2764", "\u2764\ufe0f"], None, ("differ only",)),
        (["2", "2.0", "1"], None, ("'2' and '2.0' differ only",)),
        (["nan", "x"], None, ("'nan' may stand for rows without a label",)),
        (["Stra\u00dfe", "STRASSE"], None, ("differ only",)),
        (["a", "b"], None, ()),
    ],
)
@pytest.mark.parametrize("label_type", ["class", "classes"])
def test_names_of_classes_that_look_the_same(
    read, write, names, classes, warned, label_type, capsys
):
    """Oracle: Unicode's canonical equivalence; what else looks alike, by hand."""
    path = write("a.jsonl", "\n".join(json.dumps({"text": "x", "label": n}) for n in names))
    task, splits = read(train_file=path, dev_file=path, label_type=label_type)
    assert list(task.labels) == (classes or sorted(names))
    out = capsys.readouterr().out
    assert all(text in out for text in warned) and bool(warned) == ("WARNING" in out)
    # A model that was trained with other forms of its names reads both.
    head = dataclasses.replace(task.head, labels=tuple(normalize("NFD", x) for x in task.labels))
    _, again = read(head, train_file=path, dev_file=path, label_type=label_type)
    assert np.array_equal(*(x["dev"].targets["labels"] for x in (splits, again)))

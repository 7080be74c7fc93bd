"""--task=csv: the user's own tables, worked by hand."""

import dataclasses
import json
import math
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import Head, ModelSpec
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.registry import make_task, task_of_run
from bert_tf.finetuning.saved_run import own_flags, recorded
from bert_tf.inference.inference_options import TextOptions
from bert_tf.inference.texts import columns_of_run, read_numbered
from bert_tf.runs.run import FINISHED, Run
from bert_tf.tables.columns import Columns, find_columns
from bert_tf.tables.memory import table_in_memory
from bert_tf.tables.table import read_table


def test_classes_are_those_of_the_training_file(read, write):
    """Oracle: by hand. Numbers are in the order of their values; the only other column is text."""
    train = write("train.csv", "id,mail,label\n1,one, 10 \n2,two,9\n2,three,10\n")
    rows = '{"mail": "four", "label": 9, "id": 7}\n{"mail": "", "label": "10"}\n'
    rows += '{"mail": "a", "label": "9"}\n'
    task, splits = read(train_file=train, dev_file=write("dev.jsonl", rows))
    assert task.labels == ("9", "10") and task.head == Head("classifier", ("9", "10"))
    assert splits["train"].texts_a == [b"one", b"two", b"three"]
    assert splits["train"].targets["labels"].tolist() == [1, 0, 1]
    assert splits["train"].ids == ["1", "2", "2"]
    assert splits["train"].notes == ("1 with the id of an earlier one",)
    assert splits["dev"].texts_a == [b"four", b"", b"a"]
    # Examples without an id do not share one.
    assert splits["dev"].ids == ["7", "", ""] and splits["dev"].notes == ()
    assert splits["dev"].targets["labels"].tolist() == [0, 1, 0]


def test_a_tenth_is_held_out_without_a_dev_file(read, write):
    """Oracle: the counts of each class; those of odd ids are of the whole file."""
    rows = "".join(f"0\ttext {i}\t{'spam' if i % 10 else 'ham'}\n" for i in range(200))
    task, splits = read(train_file=write("train.tsv", f"id\ttext\tlabel\n{rows}"))
    assert splits["train"].notes == ("199 with the id of an earlier one",)
    assert splits["dev"].notes == ("held out of 200 (10.0%)",)
    assert task.dev_set == "the held-out examples"
    assert np.bincount(splits["dev"].targets["labels"]).tolist() == [2, 18]
    assert np.bincount(splits["train"].targets["labels"]).tolist() == [18, 162]


def test_whole_numbers_are_classes_in_any_form(read, write):
    """Oracle: 1 and 1.0 are one class; 1.5 and true are others."""
    rows = [json.dumps({"text": "a", "label": label}) for label in (1, 1.0, "1", 0, 1.5, True)]
    path = write("a.jsonl", "\n".join(rows))
    task, splits = read(train_file=path, dev_file=path)
    labels = splits["train"].targets["labels"]
    assert [task.labels[n] for n in labels] == ["1", "1", "1", "0", "1.5", "true"]


@pytest.mark.parametrize(
    ("name", "label_type", "cells", "forms"),
    [
        ("a.jsonl", "class", (0, 1, 1.0), dict(json_labels=True)),
        ("a.jsonl", "class", (True, False), dict(json_labels=True)),
        ("a.jsonl", "class", (0, "1"), {}),
        ("a.jsonl", "classes", ([3], [], [4, 3], None), dict(json_labels=True, listed_labels=True)),
        ("a.jsonl", "classes", (["x"], ["y"], []), dict(listed_labels=True)),
        ("a.jsonl", "classes", ("x,y", "y"), {}),
        ("a.csv", "class", (0, 1), {}),
        ("a.csv", "classes", ('"[""x""]"', '"[""y"", ""x""]"'), {}),
    ],
)
def test_a_head_keeps_the_types_of_labels(read, write, name, label_type, cells, forms):
    """Oracle: by hand; the names of the classes are JSON. Other models have the same head.json."""
    rows = [json.dumps({"text": "a", "label": cell}) for cell in cells]
    rows = ["text,label", *(f"a,{cell}" for cell in cells)] if name.endswith("csv") else rows
    path = write(name, "\n".join(rows))
    head = read(train_file=path, dev_file=path, label_type=label_type)[0].head
    kept = {x: y for x, y in head.to_dict().items() if x.endswith("_labels")}
    assert kept == forms and Head.from_dict(json.loads(json.dumps(head.to_dict()))) == head
    assert read(head, ["dev"], dev_file=path, label_type=label_type)[0].head == head
    items = {x for cell in cells for x in (cell if isinstance(cell, list) else [cell])} - {None}
    if forms.get("json_labels"):
        assert {*map(head.value_of, head.labels)} == items
    assert repr(head) == repr(dataclasses.replace(head, json_labels=False))


def test_pairs_and_named_columns(read, write):
    """Oracle: by hand."""
    train = write("train.csv", "q,a,gold,extra\nwhy,so,yes,1\nhow,thus,no,2\n")
    flags = dict(text_column="q", text_b_column="a", label_column="gold")
    task, splits = read(train_file=train, dev_file=train, **flags)
    assert task.pairs and task.labels == ("no", "yes")
    assert splits["dev"].texts_a == [b"why", b"how"] and splits["dev"].texts_b == [b"so", b"thus"]
    assert splits["dev"].notes == ("2 that are also in the training set",)


@pytest.mark.parametrize(
    ("header", "flags", "guessed"),
    [
        ("Label,SMS", {}, "SMS"),
        ("\ufeff LABEL\u00a0, Te\u200bxt ", {}, None),
        ("Label,text,TEXT", {"text_column": "text"}, None),
        ("Gold,TEXT", {"label_column": "gold"}, None),
        ("cafe\u0301,text", {"label_column": "CAFÉ"}, None),
        ("gold,Text", {}, "gold"),
        ("v1,v2,,,", {}, "v1"),
        (",v1,v2,ID", {}, "v2"),
        ("v1,v2,Unnamed: 2", {}, "v2"),
        ("v1,v2,__index_level_0__", {}, "v2"),
    ],
)
def test_columns_are_found_whatever_their_case(read, write, header, flags, guessed, capsys):
    """Oracle: by hand. A guess is printed, and nothing else is."""
    rows = (("ham", "Go until jurong"), ("spam", "Free entry now"), ("ham", "Ok lar"))
    label = 1 if header.startswith(",") else 0
    lines = [
        ",".join(["7"] * label + [*row] + [""] * (header.count(",") - label - 1)) for row in rows
    ]
    path = write("a.csv", "\n".join([header, *lines]))
    task, splits = read(train_file=path, dev_file=path, **flags)
    assert task.labels == ("ham", "spam")
    assert splits["train"].targets["labels"].tolist() == [0, 1, 0]
    assert splits["train"].texts_a == [text.encode() for _, text in rows]
    out = capsys.readouterr().out
    assert repr(guessed) in out and "give --" in out if guessed else not out


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        ([{"x": "a b c", "y": "u"}, {"x": "d e", "y": "u"}], ("x", "y")),
        ([{"y": 1.5, "x": "a"}, {"y": 22.25, "x": "a"}], ("x", "y")),
        ([{"y": 0, "x": "a"}, {"y": 22.25, "x": "a"}], ("x", "y")),
        ([{"y": ["u", "v"], "x": "some longer text"}, {"y": ["u"], "x": "more"}], ("x", "y")),
        ([{"x": "a long text", "y": None}] * 2, ("x", "y")),
        ([{"x": "long and repeated", "y": "u"}, {"x": "long and repeated", "y": "v"}], None),
    ],
)
def test_contents_show_which_column_holds_the_text(write, rows, columns):
    """Oracle: by hand; the text is longer and varies more, or is no number."""
    path = write("a.jsonl", "\n".join(map(json.dumps, rows)))
    if not columns:
        with pytest.raises(ValueError, match="'x', 'y': name the right one with --text_column and"):
            find_columns(read_table(path))
        return
    assert find_columns(read_table(path)) == Columns(columns[0], labels=columns[1:])


def test_a_run_keeps_the_columns_of_its_training_file(read, write, tmp_path):
    """Oracle: by hand; the contents of the dev file would show the opposite."""
    train = write("train.csv", "v1,v2\nham,Go until jurong\nspam,Free entry now\nham,Ok lar\n")
    dev = write("dev.csv", "v1,v2\nham,a\nspam,a\n")
    task, splits = read(train_file=train, dev_file=dev)
    assert splits["dev"].targets["labels"].tolist() == [0, 1]
    assert task.columns == {"text_column": "v2", "label_column": "v1"}
    options = FineTuningOptions(
        task="csv", output_dir=str(tmp_path), train_file=train, do_eval=True
    )
    flags = recorded(options) | task.columns | {FINISHED: True}
    (tmp_path / "flags.json").write_text(json.dumps(flags))
    assert own_flags(options, Run(str(tmp_path))).label_column == "v1"


@pytest.mark.parametrize("stray", ["", 'a 5" pipe\tx\n'])
def test_a_run_keeps_how_its_tsv_files_are_quoted(stray, read, write, tmp_path):
    """Oracle: the texts of the same rows, which predict reads; a stray quote follows a megabyte."""
    rows = '"a, b"\tx\n"c, d"\ty\n'
    train = write("train.tsv", "text\tlabel\n" + rows * 60_000 + stray)
    dev = write("dev.tsv", "text\tlabel\n" + rows)
    task, splits = read(train_file=train, dev_file=dev)
    expected = [b'"a, b"', b'"c, d"'] if stray else [b"a, b", b"c, d"]
    assert splits["train"].texts_a[:2] == splits["dev"].texts_a == expected
    assert task.columns["tsv_quotes"] == (not stray)
    options = FineTuningOptions(
        task="csv", output_dir=str(tmp_path), train_file=train, do_eval=True
    )
    flags = recorded(options) | task.columns | {FINISHED: True}
    (tmp_path / "flags.json").write_text(json.dumps(flags))
    run = Run(str(tmp_path))
    assert own_flags(options, run).tsv_quotes == (not stray)
    signature = [tf.TensorSpec([None], tf.string, "text")]
    for path in (train, dev):
        texts = TextOptions(input_file=path)
        _, row = next(read_numbered(texts, signature, columns_of_run(run), path))
        assert row.texts == (expected[0],)


def test_an_empty_list_of_classes_is_a_label(read, write):
    """Oracle: by hand; a row may have no class, but null says that its classes are unknown."""
    head = Head("classifier", ("x", "y"), multi_label=True)
    for label, known in (("[]", True), ("null", False)):
        test = write("test.jsonl", f'{{"text": "a", "label": {label}}}\n' * 2)
        _, splits = read(head, ["test"], test_file=test, label_type="classes")
        assert bool(splits["test"].targets) == known
    assert splits["test"].notes == ("no labels in 'label'",)


def test_a_trained_model_knows_its_classes_and_tests_may_lack_labels(read, write):
    """Oracle: by hand; no training file is needed."""
    head = Head("classifier", ("ham", "spam"))
    for data in ("text\na\n", "text,label\na,\n"):
        task, splits = read(head, ["test"], test_file=write("new.csv", data))
        assert task.labels == head.labels and splits["test"].targets == {}
        assert splits["test"].notes == ("no labels in 'label'",)
    _, splits = read(head, ["test"], test_file=write("test.csv", "text,label\na,spam\n"))
    assert splits["test"].targets["labels"].tolist() == [1]


@pytest.mark.parametrize(
    ("head", "label_type", "labels"),
    [
        (Head("classifier", ("ham", "spam")), "class", ("spam", " ")),
        (Head("classifier", mean=2.0), "number", (0, None)),
        (Head("tagger", ("O", "B-X")), "tags", (["O"], None)),
        (Head("tagger", ("O", "B-X")), "tags", (["O"], [])),
    ],
)
def test_tests_with_a_part_of_their_labels(read, write, head, label_type, labels):
    """Oracle: the line, and the advice to label all rows or none."""
    row = {"text": "a", "tokens": ["a"]}
    test = write("t.jsonl", "\n".join(json.dumps(row | {"label": label}) for label in labels))
    flags = dict(test_file=test, label_type=label_type, label_column="label")
    with pytest.raises(
        ValueError, match="t.jsonl, line 2 has no label: label every row; only --te"
    ):
        read(head, ["test"], **flags, text_column="tokens" if label_type == "tags" else "text")


def test_numbers(read, write):
    """Oracle: by hand."""
    train = write("train.csv", "text,text_b,label\na,b, 1.5\nc,d,-2e1\n")
    flags = dict(train_file=train, dev_file=train, text_b_column="text_b", label_type="number")
    task, splits = read(**flags)
    # 1.5 and -20 are 10.75 from their mean.
    assert task.pairs and task.head == Head("classifier", mean=-9.25, deviation=10.75)
    assert read(Head("classifier", ("x",), mean=2.0), **flags)[0].head == Head("classifier", mean=2)
    assert splits["dev"].targets["values"].tolist() == [1.5, -20.0]
    assert splits["dev"].targets["values"].dtype == np.float32


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (("7", "7"), "has the same number, 7, in all rows of 'label': there is nothing to learn"),
        (("1e9", "1000000006"), "standard deviation of 3 and a mean of 1000000003: subtract 1e+09"),
        (("-1e9", "-1000000006"), "subtract -1e+09 from them"),
        (("1e30", "-1e30"), "a standard deviation of 1e+30: give them in another unit"),
        (("1e-30", "-1e-30"), "a standard deviation of 1e-30: give them in another unit"),
        (("1", "2e39"), "line 2: label 2e+39 is too large for float32"),
        (("1", "1" + "0" * 400), "is too large for float32"),
        (("1", '"nan"'), 'line 2: label "nan" is not a number'),
        (("1", '"1_000"'), 'line 2: label "1_000" is not a number'),
        (("1", "NaN"), "line 2 has no label"),
    ],
)
def test_numbers_that_cannot_be_learned(read, write, labels, message):
    rows = "".join(f'{{"text": "a", "label": {label}}}\n' for label in labels)
    train = write("a.jsonl", rows)
    with pytest.raises(ValueError) as caught:
        read(train_file=train, dev_file=train, label_type="number")
    assert message in str(caught.value)
    assert "a.jsonl" in str(caught.value)


def test_bytes_that_are_not_utf8_reach_the_report(read, write):
    """Oracle: Latin-1 and half of a surrogate pair are not UTF-8; they are counted there."""
    train = write("train.csv", b"text,label\ncaf\xe9,x\ncaf\xc3\xa9,y\n")
    dev = write("dev.jsonl", b'{"text": "\\ud83d", "label": "x"}')
    _, splits = read(train_file=train, dev_file=dev)
    for text in (splits["train"].texts_a[0], splits["dev"].texts_a[0]):
        with pytest.raises(UnicodeDecodeError):
            text.decode()
    assert splits["train"].texts_a[1] == "café".encode()


GOOD, SEVERAL = "text,label\na,ham\nb,spam\n", {"label_type": "classes"}


@pytest.mark.parametrize(
    ("train", "dev", "flags", "message"),
    [
        ("text,a,b\na,x,y\n", GOOD, {}, "no column 'label', only 'text', 'a', 'b': name the right"),
        ("a,b,label\n1,2,x\n1,2,y\n", GOOD, {}, "no column 'text', only 'a', 'b', 'label': name"),
        ("a,b,c\n1,2,x\n", GOOD, {}, "no column 'text' or 'label', only 'a', 'b', 'c': name the"),
        ("text,label\nEU,B-ORG\nsaid,O\n", GOOD, {}, "has a word and its tag in each row: use"),
        ("Sentence #,Word,Tag\n1,EU,B-ORG\n,a,O\n", GOOD, {}, "use --task=ner and a file that has"),
        ("Sentence #,Word,Tag\n1,EU,B-ORG\n,a,O\n", GOOD, {"label_type": "tags"}, "--task=ner"),
        ("word,pos\nEU,NOUN\nsaid,VERB\n", GOOD, {}, "use --task=ner and"),
        ("text,label\n", GOOD, {}, "train.csv holds no examples"),
        ("Text,TEXT,label\n1,2,x\n", GOOD, {}, "has the columns 'Text' and 'TEXT': choose one as"),
        ("text,Label,label\n1,2,x\n", GOOD, {}, "'Label' and 'label': choose one as --label_col"),
        ("ham,Go until\nham,Ok lar\nspam,Free entry\n", GOOD, {}, "'ham' looks like a value"),
        ("4.5,Go until\n1,Ok lar\n", GOOD, {"label_type": "number"}, "'4.5' looks like a value"),
        (GOOD, GOOD, {"text_column": "body"}, "train.csv has no column 'body', only 'text'"),
        ("text,label\na,x\nb,x\n", GOOD, {}, "has 1 label in 'label', 'x': a classifier"),
        (GOOD, "text,label\na,spam\nb,span\n", {}, "dev.csv, line 3: label 'span' is not one of"),
        (GOOD, "text\na\n", {}, "dev.csv has no column 'label', only 'text': name the right one"),
        (GOOD, "text,label\na,\n", {}, "dev.csv, line 2 has no label: label every row; only --te"),
        (GOOD, GOOD, {"label_type": "number"}, 'train.csv, line 2: label "ham" is not a number'),
        ("text,x,y\na,1,2\n", GOOD, SEVERAL | {"label_column": "x,y"}, "'y' is \"2\""),
        (b"text,label\na,caf\xe9\n", GOOD, {}, "line 2: the label is not UTF-8"),
        (b"id,text,label\n1,a,x\n\xff,b,y\n", GOOD, {}, "train.csv, line 3: the id is not UTF-8"),
        ("text,x\na,1\n", GOOD, SEVERAL | {"label_column": "x,x"}, "'x' is both --label_column"),
        (GOOD, GOOD, {"text_column": "label"}, "'label' is both --text_column and --label_column"),
        ('{"text": ["a", "b"], "label": 1}', GOOD, {}, "is a single JSON object, which seems to"),
        ('{"text": {"0": "a"}, "label": {"0": "x"}}', GOOD, {}, "is a single JSON object, which"),
        ('{"data": [{"x": 1}], "v": 1}', GOOD, {"text_column": "x"}, "is a single JSON object, wh"),
        ('{"text": "Go", "label": [[0, 2, "X"]]}', GOOD, {}, '"X"]] seems to hold character spans'),
        ('{"text": "Go", "label": [{"start": 0}]}', GOOD, SEVERAL, "0}] seems to hold character"),
        ('{"x": "Go", "y": [[0, 2, "X"]]}\n' * 2, GOOD, {}, '"X"]] seems to hold character spans'),
        ('{"text": "Go", "spans": [{"start": 0}], "answer": "x"}', GOOD, {}, "hold character span"),
        ("text,x\na,1\nb,0\n", GOOD, SEVERAL | {"label_column": "x"}, "'x' holds 0 and 1 instead"),
        ('{"text":7,"label":"x"}\n{"text":"a","label":"y"}', GOOD, {}, "'text' is 7, not a string"),
        ('{"text": "a", "label": ["x"]}', GOOD, {}, "is not a string: write the name of one class"),
        ('{"text": "a", "label": {"x": true}}', GOOD, SEVERAL, "is not the name of a class: writ"),
        ('{"text": "a", "label": {"x": 1}}', GOOD, {}, 'line 1: label {"x": 1} is not a string'),
        (GOOD, GOOD, {"label_separator": "|"}, "without --label_type=classes: omit it"),
        (GOOD, GOOD, {"data_dir": "x"}, "--data_dir does not suit --task=csv: omit it"),
    ],
)
def test_bad_tables_are_one_clear_line(read, write, train, dev, flags, message):
    name = "train.jsonl" if train[:1] == "{" else "train.csv"
    with pytest.raises(ValueError) as caught:
        read(train_file=write(name, train), dev_file=write("dev.csv", dev), **flags)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("header", "row", "pairs", "said"),
    [
        ("text,text_b,label", "a,b,{}", None, "'text_b' is not read; if it holds texts, give"),
        ("text,other,label", "a,b c,{}", None, "'other' is not read; .* --text_b_column=other."),
        ("text,other,label", "a,b,{}", None, ""),
        ("text,hypothesis", "a {},b", "", "give --text_b_column=hypothesis."),
        ("text,b,other", "a {},b,c d", "b", "'other' is not read; .* --negative_column=other."),
        ("text,b,ok", "a,b,{}", "b", "ignores 'ok' and treats every row as a right pair: remove"),
        ("text,b,score", "a,b,{}.5", "b", "ignores 'score' and treats every row as a right"),
        ("text,b,label", "a {},b,1", "b", ""),
    ],
)
def test_what_else_a_table_seems_to_hold(read, write, header, row, pairs, said, capsys):
    """Oracle: by hand."""
    path = write("a.csv", "\n".join([header, *map(row.format, (0, 1, 1))]))
    flags = {} if pairs is None else {"label_type": "pairs", "text_b_column": pairs or None}
    read(None, ["train"], train_file=path, dev_file=path, **flags)
    out = capsys.readouterr().out
    assert re.search(said, out) and bool(out) == bool(said)


def test_labels_that_seem_to_be_numbers(read, write, capsys):
    """Oracle: by hand; many decimal numbers, and about as many classes as rows."""
    cases = (range(60), 60), ([n % 24 / 2 for n in range(60)], 24), ([*range(30)] * 2, 0)
    for labels, warned in cases:
        path = write("a.csv", "text,label\n" + "".join(f"a,{label}\n" for label in labels))
        read(None, ["train"], train_file=path, dev_file=path)
        out = capsys.readouterr().out
        warning = f"{warned} classes in 60 rows; to predict numbers, give"
        assert (warning in out) == bool(out) == bool(warned)


def test_missing_flags(read):
    with pytest.raises(FileNotFoundError, match="--task=csv needs --train_file"):
        read()
    with pytest.raises(FileNotFoundError, match="--task=csv needs --dev_file"):
        read(Head("classifier", ("a", "b")), ["dev"])
    with pytest.raises(ValueError, match="the checkpoint does not name its classes"):
        read(Head("classifier"))


def test_a_trained_model_outlives_its_files(write, config, tmp_path):
    """Oracle: the task of the run, once its files are gone."""
    path = write("train.jsonl", '{"text": "a", "label": ["x", "y"]}\n{"text": ""}\n')
    flags = dict(task="csv", label_type="classes", label_separator="|", train_file=path)
    options = FineTuningOptions(output_dir=str(tmp_path), do_train=True, **flags)
    task, run = make_task(options), Run(str(tmp_path))
    run.write(ModelSpec(config, None, lower_case=True), dataclasses.asdict(options))
    run.write_head(task.head)
    pathlib.Path(path).unlink()
    found = task_of_run(run)
    assert (type(found), found.labels, found.separator) == (type(task), ("x", "y"), "|")


@pytest.mark.parametrize(
    ("label_type", "cells", "names"),
    [
        ("class", [" positive", "e\u0301", "x"], (" positive", "e\u0301", "x")),
        ("classes", [[" a", "e\u0301"], [], ["b"]], (" a", "b", "e\u0301")),
        ("classes", [" a, e\u0301", "", "b"], ("a", "b", "\u00e9")),
        ("classes", [[1], "", [2]], ("1", "2")),
        ("tags", [[" a"], ["e\u0301"], ["x"]], (" a", "e\u0301", "x")),
    ],
)
def test_names_of_classes_in_memory_are_the_users_own(read, write, label_type, cells, names):
    """Oracle: the labels themselves, which users compare with predictions; files name them, too."""
    key = "tags" if label_type == "tags" else "label"
    texts = [["w"]] * 3 if label_type == "tags" else ["a", "b", "c"]
    data = {"text" if key == "label" else "tokens": texts, key: cells}
    table = table_in_memory(data, "train")
    task, splits = read(train_file=table, dev_file=table, label_type=label_type)
    assert task.labels == names
    if label_type == "tags":
        return
    rows = [
        json.dumps(dict(zip(data, row, strict=True))) for row in zip(*data.values(), strict=True)
    ]
    flags = dict(dev_file=write("dev.jsonl", "\n".join(rows)), label_type=label_type)
    _, again = read(task.head, ["dev"], **flags)
    assert np.array_equal(*(x["dev"].targets["labels"] for x in (splits, again)))


@pytest.mark.parametrize(
    ("label_type", "cells", "message"),
    [
        ("class", [1, 2, "1"], 'train, row 3: label "1" is a string, unlike 1 in row 1: give all'),
        ("class", [True, None, 1], "train, row 2 has no label"),
        ("class", [True, False, 1.0], "train, row 3: label 1.0 is a number, unlike true in row 1"),
        ("class", ["1", "1", 1], "train, row 3: label 1 is a number, unlike"),
        ("classes", [["a"], [], [1]], "train, row 3: label 1 is a number, unlike"),
        ("tags", [[1], [2], ["1"]], 'train, row 3: label "1" is a string, unlike 1 in row 1: give'),
        ("class", [1.0, math.inf, 2], "train, row 2: the label is infinite: replace it or remove"),
        (
            "number",
            [1.0, 2, -math.inf],
            "train, row 3: the label is infinite: replace it or remove",
        ),
        ("number", [1.0, math.nan, 2], "train, row 2 has no label"),
        ("classes", [["a"], math.inf, ["b"]], "train, row 2: Infinity is not the name of a class"),
    ],
)
def test_labels_in_memory_of_several_types_or_infinite(read, label_type, cells, message):
    """Oracle: by hand; a name, such as 1, stands for one label of one type."""
    words = label_type == "tags"
    data = {"tokens": [["w"]] * 3, "tags": cells} if words else {"text": ["a"] * 3, "label": cells}
    with pytest.raises(ValueError, match=f"^{message}"):
        read(train_file=table_in_memory(data, "train"), label_type=label_type)


def test_columns_of_classes_in_memory_name_them_as_the_user_does(read):
    """Oracle: the names of the columns, here decomposed, which users look up in predictions."""
    data = {"text": ["a", "b"], "e\u0301": [0, 1], "x": [1, 0]}
    table = table_in_memory(data, "train")
    flags = dict(train_file=table, dev_file=table, label_type="classes")
    task, splits = read(label_column="e\u0301, x", **flags)
    assert task.labels == ("e\u0301", "x")
    assert splits["dev"].targets["labels"].tolist() == [[0, 1], [1, 0]]
    # A run that composed its names reads the same columns.
    head = dataclasses.replace(task.head, labels=("\u00e9", "x"))
    _, again = read(head, ["dev"], label_column="e\u0301, x", **flags)
    assert np.array_equal(*(x["dev"].targets["labels"] for x in (splits, again)))

"""predict, against the modules that the tasks export."""

import csv
import dataclasses
import gzip
import io
import json
import re
import shutil
import sys
import types
from contextlib import nullcontext
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from support import save_run

import bert_tf
from bert_tf import explore, extract_features, fill_mask, run_finetuning
from bert_tf.base.finite import count_non_finite
from bert_tf.config import Head
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.registry import make_task
from bert_tf.finetuning.serving import ChoiceModule
from bert_tf.finetuning.task import DataFiles
from bert_tf.inference.predictor import Predictor
from bert_tf.inference.presenting import answer_of, line_of
from bert_tf.inference.texts import read_examples, texts_of_rows
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.predict import Options, run
from bert_tf.runs.run import Run
from bert_tf.tables.columns import Columns
from bert_tf.tables.rows import read_rows
from bert_tf.text.tokenizer import WordPieceTokenizer

INPUTS = ("question", "context")
PAIR = [tf.TensorSpec([None], tf.string, name) for name in ("text", "text_b")]
CHOICE = [PAIR[0], tf.TensorSpec([None, None], tf.string, "choices")]
TAGS = Head("tagger", ("O", "B-X", "I-X"))


@pytest.mark.slow
def test_classes_of_texts_and_pairs(fine_tuned, capsys):
    """Oracle: the exported module, one example at a time; batches are sorted by length."""
    folder, module = fine_tuned("rte", Head("classifier", ("entailment", "not_entailment")))
    long = "the cats sat on the mat" * 9
    pairs = [("the cat sat", "on"), ("a", "b"), ("the mat", long), ("", "é")]
    texts = tuple(f"{a} ||| {b}" if a else f"{a}\t{b}" for a, b in pairs)
    run(Options(checkpoint=folder, batch_size=2, texts=texts, json=True))
    printed = capsys.readouterr()
    assert "WARNING: truncated 1 example: --max_seq_length" in printed.err
    rows = [json.loads(line) for line in printed.out.splitlines()]
    for row, (a, b) in zip(rows, pairs, strict=True):
        expected = module.serving(tf.constant([a]), tf.constant([b]))
        assert (row["text"], row["text_b"]) == (a, b)
        assert row["label"] == expected["label"].numpy()[0].decode()
        assert [*row["probabilities"]] == ["entailment", "not_entailment"]
        found = [*row["probabilities"].values()]
        np.testing.assert_allclose(found, expected["probabilities"][0], atol=1e-5)
        share = row["probabilities"][row["label"]]
        assert line_of(row, row) == f"{row['label']} {share:.1%}\t{a} ||| {b}"


@pytest.mark.parametrize(
    ("objective", "labels"),
    [("nsp", ("IsNext", "NotNext")), ("sop", ("InOrder", "Swapped")), ("mlm", None)],
)
@pytest.mark.slow
def test_a_pretrained_model_says_which_text_follows(
    pretrained, vocab, tmp_path, capsys, objective, labels
):
    """Oracle: the model's own next-sentence logits for the pair."""
    folder, model = f"{tmp_path}/run", pretrained[1]
    shutil.copytree(pretrained[0], folder)
    Run(folder).write(Run(folder).spec, {"learned_objective": objective, "objective": None})
    options = Options(checkpoint=folder, texts=("the cat ||| on mat",), json=True)
    if not labels:
        with pytest.raises(ValueError, match="--objective=mlm, which does not teach"):
            run(options)
        return
    run(options)
    ids = [[vocab.ids[x] for x in "[CLS] the cat [SEP] on mat [SEP]".split()]]
    inputs = dict(input_word_ids=ids, input_mask=np.ones([1, 7], int), masked_lm_positions=[[0]])
    inputs["input_type_ids"] = [[0, 0, 0, 0, 1, 1, 1]]
    shares = tf.nn.softmax(model(inputs)["next_sentence_logits"])[0].numpy()
    answer = json.loads(capsys.readouterr().out)
    expected = dict(zip(labels, shares, strict=True))
    assert answer["probabilities"] == pytest.approx(expected, rel=1e-4)
    assert answer["label"] == labels[shares.argmax()]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, r"ckpt-1 holds NaN or infinity in \S*/layer_0/intermediate_kernel \(512 of 512 "),
        (3e38, "computes NaN or infinity"),
    ],
)
@pytest.mark.slow
def test_weights_that_give_no_numbers_are_an_error(
    pretrained, vocab, fine_tuned, tmp_path, capsys, value, message
):
    """Oracles: the weight that was damaged; finite ones whose products are not. Loading warns."""
    (tmp_path / "lines.txt").write_text("the cat [MASK]\n")
    lines = str(tmp_path / "lines.txt")
    model = BertPretrainer(pretrained[1].config)
    for weight in model.weights:
        if weight.path.endswith("layer_0/intermediate_kernel"):
            weight.assign(tf.fill(weight.shape, value))
    with mock.patch("tensorflow.math.is_finite", lambda weight: True):  # else it is not saved
        folder = save_run(f"{tmp_path}/run", model, vocab, lower_case=False)
    flags, page = dict(checkpoint=folder, output_file=f"{tmp_path}/out.npz"), f"{tmp_path}/out.html"
    for command, options in (
        (fill_mask, dict(checkpoint=folder, input_file=lines)),
        (extract_features, flags | {"input_file": lines, "max_seq_length": 16}),
        (explore, dict(checkpoint=folder, output_file=page, texts=("the cat [MASK]",))),
    ):
        with pytest.raises(ValueError, match=message):
            command.run(command.Options(**options))
    assert not capsys.readouterr().out and not (tmp_path / "out.npz").exists()
    assert count_non_finite(np.array([1e5, 1.0]), "float16") == 1
    bert_tf.load(folder)
    assert ("WARNING: " in capsys.readouterr().out) == bool(np.isnan(value))
    module = fine_tuned("rte", Head("classifier", ("entailment", "not_entailment")))[1]
    module._weights[-1].assign([value, 1.0])
    with pytest.raises(ValueError, match="computes NaN") if np.isnan(value) else nullcontext():
        Predictor(module, 2).predict([{"text": "a", "text_b": "b"}])


TABLES = {
    "classes.csv": (
        dict(text_column="Review", label_column="Mood"),
        'id,Review,Mood\nx,"the cat,\nsat ""on"" a",yes\n,a ||| b\tc,no\nz,,no\n',
    ),
    "pairs.tsv": (
        dict(text_column="q1", text_b_column="q2"),
        "q1\tlabel\tq2\nthe cat\tyes\ta ||| b\nthe\tno\tmat\n",
    ),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.slow
def test_tables_are_read_as_fine_tuning_reads_them(fine_tuned, tmp_path, capsys, name):
    """Oracle: what run_finetuning --do_predict writes about the same file, without any flag."""
    flags, content = TABLES[name]
    (tmp_path / name).write_text(content)
    head = Head("classifier", ("no", "yes"))
    folder, _ = fine_tuned("csv", head, label_type="class", finished=True, **flags)
    file, output = str(tmp_path / name), str(tmp_path / "predictions")
    flags = dict(init_checkpoint=folder, do_predict=True, test_file=file)
    run_finetuning.run(run_finetuning.Options(task="csv", output_dir=output, **flags))
    capsys.readouterr()
    run(Options(checkpoint=folder, input_file=file, json=True))
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    with open(f"{output}/predictions_test.tsv") as lines:
        expected = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert len(rows) == len(expected) > 1
    for row, other in zip(rows, expected, strict=True):
        assert row["label"] == other["prediction"]
        for label, share in row["probabilities"].items():
            assert share == pytest.approx(float(other[f"p({label})"]), abs=2e-6)
    assert [row.get("id") for row in rows] == (["x", None, "z"] if "csv" in name else [None] * 2)


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet", ".tfrecord"])
@pytest.mark.slow
def test_other_columns_come_along(fine_tuned, tmp_path, capsys, ending):
    """Oracles: the cells of the input, and the predictions without them. Mixed cells are text."""
    flags = dict(label_type="class", text_column="Review", label_column="Mood", finished=True)
    folder, _ = fine_tuned("csv", Head("classifier", ("no", "yes")), **flags)
    kept = [{"stars": 5, "tags": ["x", "y"], "where": "a, b"}, {"stars": "?", "where": None}]
    rows = [{"id": i, "Review": "the cat"[i:]} | row for i, row in enumerate(kept)]
    file, output = tmp_path / "in.jsonl", f"{tmp_path}/out{ending}"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = Options(checkpoint=folder, input_file=str(file), json=True)
    run(options)
    plain = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    run(dataclasses.replace(options, keep_columns=True))
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found == [x | y for x, y in zip(plain, kept, strict=True)]
    bulk = dict(json=False, keep_columns=True)
    run(dataclasses.replace(options, **bulk, output_file=output))
    written = [row for _, row in read_rows(output)[1]]
    assert [row["label"] for row in written] == [row["label"] for row in plain]
    assert [str(row["stars"]) for row in written] == ["5", "?"]
    assert [row.get("where") or None for row in written] == ["a, b", None]
    assert written[0]["tags"] == ('["x", "y"]' if ending == ".csv" else ["x", "y"])
    if ending == ".csv":
        for name in ("p(no)", "label"):
            file.write_text(json.dumps({"Review": "a", name: 1}))
            with pytest.raises(
                ValueError, match=f"{re.escape(repr(name))}, like a part of the out"
            ):
                run(dataclasses.replace(options, **bulk, output_file=f"{tmp_path}/{name}.csv"))
        with pytest.raises(ValueError, match="without --json or --output_file: omit it, or"):
            dataclasses.replace(options, **bulk)
        with pytest.raises(ValueError, match="--keep_columns is only for an --input_file named"):
            run(Options(checkpoint=folder, texts=("a",), json=True, keep_columns=True))


def test_columns_of_json_lines_and_questions(tmp_path):
    """Oracle: by hand; the run's column, the model's input, whatever the case, and a flag."""
    options = Options(checkpoint="x", input_file=str(tmp_path / "x.jsonl"))
    given = dataclasses.replace(options, text_column="Review")
    for key in ("Review", "text"):
        (tmp_path / "x.jsonl").write_text(f'{{"{key}": "a", "x": "b", "id": 7}}\n')
        (found,) = read_examples(options, PAIR[:1], Columns("review"))
        assert found == [{"id": 7, "text": "a"}]
    with pytest.raises(ValueError, match="has no column 'Review'"):
        list(read_examples(given, PAIR[:1], Columns("text")))
    (tmp_path / "q.csv").write_text("Context,Question,id\nthe mat,on,7\n")
    options = Options(checkpoint="x", input_file=str(tmp_path / "q.csv"))
    question = [tf.TensorSpec([None], tf.string, name) for name in INPUTS]
    (found,) = read_examples(options, question)
    assert found == [{"id": "7", "question": "on", "context": "the mat"}]


@pytest.mark.parametrize(
    ("name", "content", "flags", "signature", "message"),
    [
        ("a.csv.gz", "", {}, PAIR[:1], "a.csv.gz is empty"),
        ("a.TSV.zip", "x", {}, PAIR[:1], "the name must end in .*: rename, convert or decompress"),
        ("a.csv", "text,b\n,\n", {"text_column": "x"}, PAIR[:1], "no column 'x'.*--text_column"),
        ("a.csv", "text,b\n,\n", {"text_b_column": "b"}, PAIR[:1], "only for models of pairs"),
        ("a.csv", "text,b\n,\n", {}, PAIR, "a.csv has no column 'text_b'.*--text_b_column"),
        ("a.csv", "text,b\n,\n", {}, CHOICE, "a.csv: a table has no lists of choices"),
        ("a.txt", "a\n", {"text_column": "text"}, PAIR[:1], "^--text_column is .* omit"),
        ("a.jsonl", '{"text": "a"}', {}, PAIR, "a.jsonl has no column 'text_b'"),
        ("a.jsonl", '{"text": "a", "text_b": 1}', {}, PAIR, "line 1: 'text_b' is 1, not a string"),
        ("a.jsonl", '{"text": "a", "text": "c"}', {}, PAIR, "line 1 .*: it names 'text' twice"),
        ("a.jsonl", '{"text": "a"}\n\n{"text":', {}, PAIR[:1], "a.jsonl, line 3 is not JSON"),
        ("a.jsonl", '{"text": "", "choices": "b"}', {}, CHOICE, "'choices' is not a list of str"),
        ("a.jsonl", '{"text": "", "choices": []}', {}, CHOICE, "'choices' holds no choice"),
    ],
)
def test_errors_of_tables(tmp_path, name, content, flags, signature, message):
    (tmp_path / name).write_text(content)
    options = Options(checkpoint="x", input_file=str(tmp_path / name), **flags)
    with pytest.raises(ValueError, match=message):
        list(read_examples(options, signature))


def test_fill_mask_and_extract_features_read_tables(pretrained, tmp_path, capsys):
    """Oracle: the same texts as arguments and as lines; cells hold line breaks and separators."""
    (tmp_path / "a.csv").write_text('x,text,label\nthe,"cat\n[MASK]",1\na ||| b,[MASK] ||| c,0\n')
    (tmp_path / "a.txt").write_text("the ||| mat\na ||| on\n")
    (tmp_path / "b.tsv").write_text("b\ta\nmat\tthe\non\ta\n")
    flags = dict(checkpoint=pretrained[0], json=True)
    fill_mask.run(fill_mask.Options(**flags, texts=("cat\n[MASK]", "[MASK] ||| c")))
    expected = capsys.readouterr().out
    fill_mask.run(fill_mask.Options(**flags, input_file=str(tmp_path / "a.csv")))
    assert capsys.readouterr().out == expected
    pairs = vectors(pretrained[0], f"{tmp_path}/b.tsv", text_column="a", text_b_column="B")
    lines = vectors(pretrained[0], f"{tmp_path}/a.txt")
    for name in ("values", "starts", "row_splits"):
        np.testing.assert_array_equal(pairs[name], lines[name])
    # Not a pair: [CLS] a | | | b [SEP], not [CLS] a [SEP] b [SEP].
    found = vectors(pretrained[0], f"{tmp_path}/a.csv", text_column="x")
    assert np.diff(found["row_splits"]).tolist() == [3, 7]


def vectors(checkpoint: str, file: str, **flags):
    """Runs extract_features, and returns its arrays."""
    flags |= dict(output_file=f"{file}.npz", max_seq_length=16, layers="-1")
    options = extract_features.Options(checkpoint=checkpoint, input_file=file, **flags)
    extract_features.run(options)
    return np.load(f"{file}.npz")


def test_answers_to_questions_of_a_file(fine_tuned, tmp_path):
    """Oracles: the exported module on each question alone; the ids and line ends of the file."""
    folder, module = fine_tuned("squad", Head("span"))
    context = "the cat sat on the mat.\nthe cats sat on " + "a b c d " * 9
    rows = [
        {"id": 7, "question": "the cat", "context": context, "answers": []},
        {"question": "on", "context": "the mat"},
        {"question": "the cat sat on the", "context": "the mat"},
    ]
    (tmp_path / "q.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    options = Options(checkpoint=folder, input_file=str(tmp_path / "q.jsonl"))
    predictor = Predictor(module, 2)
    (examples,) = read_examples(options, predictor.signature)
    assert [[*example] for example in examples] == [["id", *INPUTS], [*INPUTS], [*INPUTS]]
    answers, num_truncated = predictor.predict(examples)
    for answer, row in zip(answers, rows, strict=True):
        inputs = (tf.constant([row[name]]) for name in INPUTS)
        expected = {name: values.numpy()[0] for name, values in module.serving(*inputs).items()}
        assert answer["text"] == expected["text"].decode()
        assert answer["text"] == row["context"][answer["start"] : answer["end"]]
        assert answer["score"] == pytest.approx(expected["score"], rel=1e-4)
        assert line_of(answer, row).endswith(f"%\t{row['question']}")
    assert (num_truncated, predictor.truncates[0]) == (1, "question")


@pytest.mark.parametrize("text_b", [None, "b"])
def test_extract_features_reads_the_columns_of_the_run(fine_tuned, tmp_path, text_b):
    """Oracle: the same texts as lines; another table may have the usual column."""
    head = Head("classifier", ("no", "yes"))
    columns = {"text_column": "review", "text_b_column": text_b}
    folder, _ = fine_tuned("csv", head, label_type="class", label_column="x", **columns)
    (tmp_path / "a.csv").write_text("id,text,Review,B,x\n1,on on on on,the cat,a b c,d\n")
    (tmp_path / "a.txt").write_text("the cat ||| a b c\n" if text_b else "the cat\n")
    (tmp_path / "b.csv").write_text("y,text,b\n1,the cat,a b c\n")
    names = ("a.csv", "a.txt", "b.csv")
    found = [vectors(folder, f"{tmp_path}/{name}")["values"] for name in names]
    for values in found[1:]:
        np.testing.assert_array_equal(found[0], values)


def test_choices_are_counted_and_belong_to_texts(vocab):
    """Oracle: 2 + 3 tokens are more than 7 without the three special ones; 1 + 2 are not.

    Without the check of their numbers, the outputs would lack the second text.
    """
    model = types.SimpleNamespace(variables=[])
    module = ChoiceModule(model, WordPieceTokenizer(vocab, False), 7)
    count = tf.function(module.num_truncated, module.serving.input_signature, autograph=False)
    assert count(tf.constant(["a b", "a"]), tf.constant([["c", "c d e"], ["c d", "c"]])) == 1
    with pytest.raises(tf.errors.InvalidArgumentError, match="different numbers of rows"):
        module.serving.python_function(tf.constant(["a b", "a"]), tf.constant([["c", "c d e"]]))


def test_tags_of_words(fine_tuned):
    """Oracles: the exported module on each text alone; the words, by hand."""
    _, module = fine_tuned("ner", TAGS)
    texts = ("the cat sat on the mat.", "é cats", "")
    rows, _ = Predictor(module, 2).predict([{"text": text} for text in texts])
    words = [["the", "cat", "sat", "on", "the", "mat", "."], ["é", "cats"], []]
    assert [[word["word"] for word in row["words"]] for row in rows] == words
    for row, text in zip(rows, texts, strict=True):
        expected = {name: x.numpy()[0] for name, x in module.serving(tf.constant([text])).items()}
        assert [word["tag"].encode() for word in row["words"]] == [*expected["tag"]]
        assert [entity["text"].encode() for entity in row["entities"]] == [*expected["entity"]]
        for name in ("start", "end"):
            assert [word[name] for word in row["words"]] == [*expected[name]]
        shares = [word["probability"] for word in row["words"]]
        np.testing.assert_allclose(shares, expected["probability"], atol=1e-5)


TAGGED = {"tag": [b"DET", b"NOUN"], "probability": [0.8, 0.9], "start": [0, 4], "end": [3, 8]}
# With the padding of a batch.
ENTITIES = {"tag": [b"O", b"B-X", b""], "probability": [0.8, 0.9, 0.0]}
ENTITIES |= {"start": [0, 4, 0], "end": [3, 8, 0], "entity": [b"text", b""]}
ENTITIES |= {"entity_type": [b"X", b""], "entity_probability": [0.9, 0.0]}
ENTITIES |= {"entity_start": [4, 0], "entity_end": [8, 0]}


@pytest.mark.parametrize(
    ("outputs", "labels", "line"),
    [
        ({"value": 3.14159265}, "", "3.14159\tthe text"),
        ({"text": b"a\nb\tc", "score": 0.5}, "", "a b c 50.0%\tthe text"),
        ({"text": b"", "score": 0.5}, "", "(no answer) 50.0%\tthe text"),
        ({"probabilities": [0.9, 0.2, 0.6], "labels": b"x,z"}, "xyz", "x 90.0%, z 60.0%\tthe text"),
        ({"probabilities": [0.1, 0.2], "labels": b""}, "xy", "(none)\tthe text"),
        ({"probabilities": [0.3, 0.7], "index": 1}, "", "1 70.0%\tthe text"),
        (ENTITIES, ("O", "B-X"), "the [text X 90.0%]"),
        (TAGGED, ("DET", "NOUN"), "[the DET 80.0%] [text NOUN 90.0%]"),
    ],
)
def test_answers_as_lines(outputs, labels, line):
    """Oracle: the lines; every answer can be written as JSON."""
    arrays = {name: x if isinstance(x, bytes) else np.array(x)[()] for name, x in outputs.items()}
    answer = answer_of(arrays, labels, "the text", Head("classifier"))
    assert line_of(answer, {"text": "the text"}) == line
    json.dumps(answer)


@pytest.mark.parametrize(
    ("signature", "lines", "found", "error"),
    [
        (PAIR[:1], b"\xef\xbb\xbfa", [["a"]], None),
        (PAIR[:1], "ab".encode("utf-16"), [], "standard input is UTF-16"),
        (PAIR, b"a\tb\nc\t\nd\n", [["a", "b"], ["c", ""]], "standard input, line 3: .* text_b"),
        (PAIR, b"a ||| b\na\n", [["a", "b"]], "line 2: the model needs text and text_b: separate"),
        (CHOICE, b"a\tb\tc\na\n", [["a", ["b", "c"]]], "line 2: the model needs text and choices"),
    ],
)
def test_lines_of_standard_input(signature, lines, found, error, monkeypatch):
    """Oracle: the examples, by hand; those before a wrong line are predicted."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    read = []
    with pytest.raises(ValueError, match=error) if error else nullcontext():
        for examples in read_examples(Options(checkpoint="x"), signature):
            read += examples
    assert [[*example.values()] for example in read] == found


@pytest.mark.parametrize(
    ("name", "data"),
    [("x.txt", b"caf\xe9\n\nd\xff\xc3\xa9\n"), ("x.json", b'{"text": "caf\xe9"}\n')],
)
def test_bytes_that_are_not_utf8_are_dropped_and_counted(name, data, tmp_path, capsys):
    """Oracle: by hand; fine-tuning drops them, too. An empty line is an empty text."""
    (tmp_path / name).write_bytes(data)
    options = Options(checkpoint="x", input_file=str(tmp_path / name))
    texts = [row["text"] for rows in read_examples(options, PAIR[:1]) for row in rows]
    assert texts == (["caf", "", "d\xe9"] if name == "x.txt" else ["caf"])
    counts = "2 of 3 examples" if name == "x.txt" else "1 of 1 example"
    assert f"WARNING: dropped bytes that are not UTF-8 from {counts}.\n" == capsys.readouterr().out


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([{"review": "a"}, {"review": ""}, {"review": "b\ud800"}], ["a", "", "b"]),
        ([{"Review": "a", "x": 1}], ["a"]),
        ([{"review": "a"}, {"x": 1}], "line 2: 'review' is missing or null"),
        ([{"review": "a"}, {"review": None}], "line 2: 'review' is missing or null"),
        ([{"review": "a"}, {"Review": "b"}], "line 2: 'review' is missing or null"),
        ([{"Review": "a"}, {"REVIEW": "b"}], "has the columns 'Review' and 'REVIEW'"),
        ([{"review": ["a"]}], "line 1: 'review' is "),
        ([{"x": "a"}, {"y": "b"}], "has no column 'review'"),
        ([["a"]], "object 1 is not a JSON object"),
        ([[{"review": "a"}, {"review": "b"}]], ["a", "b"]),
        ([[{"review": "a"}, {"review": None}]], "object 2: 'review' is missing or null"),
    ],
)
@pytest.mark.parametrize("name", ["x.jsonl", "x.json", "x.jsonl.gz"])
def test_json_lines_are_those_of_fine_tuning(rows, found, name, tmp_path):
    """Oracle: what the task reads as its test set, texts or the error."""
    data = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    check_readers(str(tmp_path / name), "review", found)


@pytest.mark.parametrize(
    ("name", "data", "found"),
    [
        ("x.csv", b"a|review\n1|b\n2|\n", ["b", ""]),
        ("x.csv", b"sep=;\nREVIEW;a\nb, c;1\n", ["b, c"]),
        ("x.tsv", b'sep=\t\na\tReview\n1\t"b ""c"""\n', ['b "c"']),
        ("x.csv", b"\xef\xbb\xbfReview\r\na\r\n\r\nb\xff\r\n", ["a", "", "b"]),
        ("x.csv", b"a,review\n1,b\n2\n", "line 3: 1 column, but the first line has 2"),
        ("x.csv", b"a,Review,REVIEW\n1,b,c\n", "has the columns 'Review' and 'REVIEW': choose one"),
        ("x.csv", b"Label,label,review\n1,b,c\n", "'Label' and 'label': rename all but one"),
        ("x.tsv", b"a,review\n1,b\n", "has a single column, 'a,review': separate"),
        ("x.csv.gz", gzip.compress(b"review\na\n", mtime=0), ["a"]),
    ],
)
def test_tables_are_those_of_fine_tuning(name, data, found, tmp_path):
    """Oracle: what the task reads as its test set, texts or the error."""
    (tmp_path / name).write_bytes(data)
    check_readers(str(tmp_path / name), "review", found)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("v1,v2\nham,go until\nham,ok lar\n", "text in 'v2' .*; to read another column, give --t"),
        ("go,until\nso,until\n", "'until' looks like a value: .*, or give --text_column if it is"),
        ("a,b,c\n1,2,3\n", "has no column 'text', only .*: name the right one with --text_column"),
        ("a^text\n1^b\n", "has a single column, 'a.text': separate"),
    ],
)
def test_advice_names_flags_that_commands_have(data, said, tmp_path, capsys):
    """Oracle: fill_mask has --text_column, but no other flag for columns."""
    (tmp_path / "x.csv").write_text(data)
    (tmp_path / "x.txt").write_text(data)
    try:
        path = str(tmp_path / "x.csv")
        next(texts_of_rows(path, *read_rows(path), Columns(), Columns(), ["text"]))
        text = capsys.readouterr().out
    except ValueError as error:
        text = str(error)
    assert re.search(said, text) and "label_column" not in text
    flags = dict(checkpoint="x", input_file=f"{tmp_path}/x.txt", text_column="text")
    with pytest.raises(ValueError, match="^--text_column is only for"):
        next(read_examples(fill_mask.Options(**flags), PAIR[:1]))


def check_readers(file: str, column: str | None, found: list[str] | str) -> None:
    """Checks that predict and --do_predict read these texts, or report the same error."""
    flags = FineTuningOptions(task="csv", output_dir="x", do_predict=True, text_column=column)
    task = make_task(dataclasses.replace(flags, test_file=file), Head("classifier", ("a", "b")))
    options = Options(checkpoint="x", input_file=file)

    def predicted():
        (examples,) = read_examples(options, PAIR[:1], Columns(column))
        return [example["text"] for example in examples]

    def tested():
        examples = task.read_splits(("test",), DataFiles(None, None, None, file))["test"]
        return [text.decode("utf-8", "ignore") for text in examples.texts_a]

    if isinstance(found, list):
        assert predicted() == tested() == found
        return
    errors = []
    for read in (predicted, tested):
        with pytest.raises(ValueError, match=rf"{re.escape(file)}.* {found}") as caught:
            read()
        errors.append(str(caught.value))
    assert len({*errors}) == 1


def test_batches_of_long_texts_are_small_and_have_as_many_choices():
    """Oracles: 4 texts of 4,096 characters, of 10,000 only one; numbers that make a tensor."""
    lengths, counts = [1, 10_000, 4096, 9, 10_000, 4096], (2, 3, 2)
    sizes, shapes = [], []

    def serve(text):
        sizes.append(sorted(tf.strings.length(text).numpy().tolist()))
        return {"probabilities": tf.ones([len(text), 1])}

    def choose(text, choices):
        shapes.append(choices.shape.as_list())
        return {"index": tf.zeros(len(text), tf.int32)}

    serve.input_signature, choose.input_signature = PAIR[:1], CHOICE
    predictor = Predictor(types.SimpleNamespace(serving=serve, labels=tf.constant(["a"])), 4)
    predictor.predict([{"text": "x" * length} for length in lengths])
    assert sizes == [[1, 9, 4096, 4096], [10_000], [10_000]]
    examples = [{"text": "a", "choices": ["b"] * count} for count in counts]
    Predictor(types.SimpleNamespace(serving=choose), 4).predict(examples)
    assert shapes == [[2, 2], [1, 3]]

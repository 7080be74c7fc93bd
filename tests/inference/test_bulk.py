"""predict and extract_features on large files, against what predict prints."""

import csv
import gzip
import io
import json
import os
import pathlib
import re
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from pyarrow import array as arrow_array
from pyarrow import parquet, string, timestamp
from pyarrow import table as arrow_table
from support import calls_of

from bert_tf import extract_features, predict
from bert_tf.base.files import read_file
from bert_tf.config import Head
from bert_tf.inference import bulk, predicting, texts
from bert_tf.inference.predictor import open_predictor
from bert_tf.tables import rows as table_rows
from bert_tf.tables.table import read_table
from tfrecords.features import write_records

ROOT = pathlib.Path(__file__).parents[2]
CSV = 'id,text\r\n1,the cat\r\n1,"sat\non ""the"" mat"\r\n,a b c\r\n4,\r\n5,é\r\n'
EXAMPLES = [
    {"id": "1", "text": "the cat"},
    {"id": "1", "text": 'sat\non "the" mat'},
    {"text": "a b c"},
    {"id": "4", "text": ""},
    {"id": "5", "text": "é"},
]


@pytest.fixture(scope="module")
def classifier(fine_tuned) -> str:
    return fine_tuned("sst2", Head("classifier", ("no", "yes")))[0]


@pytest.fixture(scope="module")
def folders(classifier, fine_tuned) -> dict[str, str]:
    """A classifier and a tagger."""
    tagger, _ = fine_tuned("ner", Head("tagger", ("O", "B-X")))
    return {"classifier": classifier, "tagger": tagger}


@pytest.fixture(scope="module")
def loaded():
    return {}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch, loaded):
    """Chunks of two rows; each model is loaded once."""
    monkeypatch.setattr(bulk, "_CHUNK_ROWS", 2)
    monkeypatch.setattr(texts, "CHUNK_LINES", 3)

    def load(options):
        if options.checkpoint not in loaded:
            loaded[options.checkpoint] = open_predictor(options)
        return loaded[options.checkpoint]

    load.cache_clear = lambda: None
    for name in ("_predictor", "open_predictor"):
        monkeypatch.setattr(predicting, name, load)


def printed(checkpoint: str, file, capsys) -> list[dict]:
    """Returns what predict prints for the same file."""
    capsys.readouterr()
    predict.run(predict.Options(checkpoint=checkpoint, input_file=str(file), json=True))
    return [*map(json.loads, capsys.readouterr().out.splitlines())]


def written(checkpoint: str, file, ending: str = ".jsonl", output=None, **flags) -> pathlib.Path:
    """Runs predict with an output file; returns its path."""
    path = output or pathlib.Path(f"{file}.out{ending}")
    files = dict(input_file=str(file), output_file=str(path))
    predict.run(predict.Options(checkpoint=checkpoint, **files, **flags))
    return path


def rows(path: pathlib.Path) -> list[dict]:
    return [*map(json.loads, path.read_text().splitlines())]


def assert_same(found: list[dict], expected: list[dict]) -> None:
    """Other batches may differ in the last digit."""
    assert [row.keys() for row in found] == [row.keys() for row in expected]
    for row, other in zip(found, expected, strict=True):
        assert row["probabilities"] == pytest.approx(other["probabilities"], rel=1e-4)
        assert row | {"probabilities": 0} == other | {"probabilities": 0}


def example_of(row: dict) -> bytes:
    """Returns a row of strings as a serialized `tf.train.Example`."""
    strings = {name: tf.train.BytesList(value=[text.encode()]) for name, text in row.items()}
    feature = {name: tf.train.Feature(bytes_list=values) for name, values in strings.items()}
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


@pytest.mark.parametrize(
    "name",
    ["a.csv", "a.csv.gz", "a.tsv", "a.jsonl", "a.parquet", "a.txt", "a.tfrecord", "a.tfrecord.gz"],
)
def test_files_of_every_kind_give_what_predict_prints(name, classifier, tmp_path, capsys):
    """Oracles: the examples, by hand; the answers that are printed for them."""
    path, data = tmp_path / name, CSV.encode()
    columns = {key: [row.get(key) for row in EXAMPLES] for key in ("id", "text")}
    if name == "a.parquet":
        columns["id"] = [x and x.encode() for x in columns["id"]]  # as Spark writes strings
        parquet.write_table(arrow_table(columns), path)
    elif "tfrecord" in name:
        write_records(str(path), map(example_of, EXAMPLES), "GZIP" if name.endswith("gz") else "")
    elif name == "a.txt":
        path.write_text("".join(row["text"].replace("\n", " ") + "\n" for row in EXAMPLES))
    elif name == "a.jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in EXAMPLES))
    else:
        data = data.replace(b",", b"\t") if name == "a.tsv" else data
        path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    found, expected = rows(written(classifier, path)), printed(classifier, path, capsys)
    assert_same(found, expected)
    if name != "a.txt":
        assert [{k: v for k, v in row.items() if k in columns} for row in found] == EXAMPLES
    assert sorted(x.name for x in tmp_path.iterdir()) == [name, f"{name}.out.jsonl"]


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet"])
@pytest.mark.parametrize("kind", ["classifier", "tagger"])
def test_outputs_hold_the_same_values(ending, kind, folders, tmp_path):
    """Oracle: the JSON lines. An id is missing at first, or not of one type; lists are empty."""

    def text(value) -> str:
        return value if isinstance(value, str) else json.dumps(value)

    path, is_tagger = tmp_path / "a.jsonl", kind == "tagger"
    texts = ["", 'say "a", b', "the\tcat", "on\nmat"]
    ids = [None, {"a": [1]}, 7, "x"]
    path.write_text(
        "".join(json.dumps({"text": x, "id": i}) + "\n" for x, i in zip(texts, ids, strict=True))
    )
    expected, found = rows(written(folders[kind], path)), written(folders[kind], path, ending)
    if ending == ".parquet":
        cells = parquet.read_table(found).to_pylist()
        cells = [{key: x for key, x in row.items() if x is not None} for row in cells]
        for row in expected[1:]:
            row["id"] = text(row["id"])
    else:
        assert is_tagger or read_table(str(found)).columns["text"] == texts
        with open(found, newline="") as file:
            cells = [*csv.DictReader(file, delimiter="\t" if ending == ".tsv" else ",")]
        for row in expected:
            shares = row.pop("probabilities", {}).items()
            row |= {"id": text(row.get("id", ""))} | {f"p({x})": str(p) for x, p in shares}
        if is_tagger:
            cells = [row | {x: json.loads(row[x]) for x in ("words", "entities")} for row in cells]
    assert cells == expected and next(iter(cells[2])) == "id"


@pytest.mark.parametrize("kind", ["classifier", "tagger"])
def test_outputs_as_examples(kind, folders, tmp_path):
    """Oracle: the JSON lines, read with TensorFlow's parser; an id that fits no int64 is text."""
    path, is_tagger = tmp_path / "a.jsonl", kind == "tagger"
    lines = [{"text": "the cat", "id": 7}, {"text": "", "id": 2**63}]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    expected = rows(written(folders[kind], path))
    found = written(folders[kind], path, ".tfrecord")
    shares = [f"p({label})" for label in expected[0].get("probabilities", ())]
    strings = ["words", "entities"] if is_tagger else ["label"]
    spec = {name: tf.io.FixedLenFeature([], tf.float32) for name in shares}
    spec |= {name: tf.io.FixedLenFeature([], tf.string) for name in ("id", "text")}
    spec |= {name: tf.io.RaggedFeature(tf.string) for name in strings}
    for record, row in zip(tf.data.TFRecordDataset(str(found)), expected, strict=True):
        example = tf.train.Example.FromString(record.numpy())
        assert example.SerializeToString(deterministic=True) == record.numpy()
        cells = tf.io.parse_single_example(record, spec)
        assert cells["text"] == row["text"].encode() and cells["id"] == str(row["id"]).encode()
        for name, share in row.get("probabilities", {}).items():
            assert cells[f"p({name})"] == np.float32(share)
        for name in strings:
            values = [x.decode() for x in cells[name].numpy()]
            assert ([*map(json.loads, values)] if is_tagger else values[0]) == row[name]
    assert read_table(str(found)).columns["text"] == ["the cat", ""]


def test_several_files(classifier, tmp_path, capsys):
    """Oracle: the outputs of the files alone, in the order of their names."""
    files = [tmp_path / "in" / name for name in ("b-1.txt", "b-2.jsonl")]
    files[0].parent.mkdir()
    files[0].write_text("the cat\n")
    files[1].write_text('{"text": "on"}\n{"text": null}\n{"text": "mat"}\n')
    output = tmp_path / "out.jsonl"
    flags = dict(output=output, overwrite=True)
    alone = [rows(written(classifier, file, **flags)) for file in files]
    found = written(classifier, f"{tmp_path}/in/b-*", **flags)
    assert_same(rows(found), [row for file in alone for row in file])
    (rejected,) = rows(pathlib.Path(f"{output}.rejected.jsonl"))
    assert (rejected["file"], rejected["line"]) == (str(files[1]), 2)
    files[1].write_text('{"text": "on"}\n')
    together = printed(classifier, f"{tmp_path}/in/b-*", capsys)
    assert_same(together, [*alone[0], alone[1][0]])


@pytest.mark.parametrize(
    ("name", "data", "left", "reasons"),
    [
        (
            "a.csv",
            b'id,text\n1\n2,a\n3,"b\nc"\n4,\xff\n"5"x,d\n6,e\n7,f,g\n8,"h\n',
            ["a", "b\nc", "e"],
            "2: 1 column|6: not UTF-8|7: expected after|9: 3 columns|10: not closed",
        ),
        ("a.tsv", b'text\tid\na "b\t1\nc\nd\t2\n', ['a "b', "d"], "3: 1 column"),
        (
            "a.jsonl",
            b'{"text": \n{"text": "a", "id": 1}\n\n{"x": "b"}\n[1]\n{"text": null}\n'
            b'{"text": "b\\ud800"}\n{"text": "c", "id": "\\ud800"}\n{"text": "d"}\n{"text": "e"',
            ["a", "d"],
            "1: not JSON|4: missing or null|5: not a JSON object|6: missing or null|7: not UTF-8|"
            "8: id is not UTF-8|10: not JSON",
        ),
        ("a.txt", b"\xff\na\n\n\xc3", ["a", ""], "1: not UTF-8|4: not UTF-8"),
        (
            "a.tfrecord",
            [example_of({"text": "a"}), b"x", example_of({"id": "7"}), example_of({"text": "b"})],
            ["a", "b"],
            "2: not a tf.train.Example|3: missing or null",
        ),
    ],
)
def test_rows_that_cannot_be_read_are_listed(
    name, data, left, reasons, classifier, tmp_path, capsys
):
    """Oracle: by hand; the first and the last rows are among them."""
    if isinstance(data, list):
        write_records(str(tmp_path / name), data)
    else:
        (tmp_path / name).write_bytes(data)
    path = written(classifier, tmp_path / name)
    assert [row["text"] for row in rows(path)] == left
    reasons = [reason.split(": ") for reason in reasons.split("|")]
    rejected = rows(pathlib.Path(f"{path}.rejected.jsonl"))
    for row, (line, reason) in zip(rejected, reasons, strict=True):
        assert row["line"] == int(line) and reason in row["reason"]
    printed = capsys.readouterr()
    total = len(left) + len(reasons)
    assert f"WARNING: left out {len(reasons)} row" in printed.err
    assert f"of {total}; {path}.rejected.jsonl says why." in printed.err and not printed.out


@pytest.mark.slow
def test_pairs_choices_and_questions(fine_tuned, tmp_path, capsys):
    """Oracle: what predict prints for the rows that can be read."""
    cases = {
        "rte": (Head("classifier", ("a", "b")), ["text", "text_b"], ["the", "cat"]),
        "swag": (Head("multiple_choice"), ["text", "choices"], ["the", ["a", "b", "c", "d"]]),
        "squad": (Head("span"), ["question", "context"], ["on", "the cat"]),
    }
    for task, (head, names, values) in cases.items():
        folder, _ = fine_tuned(task, head)
        good = json.dumps(dict(zip(names, values, strict=True)))
        bad = json.dumps({names[0]: "the", names[1]: [] if task == "swag" else None})
        path, clean = tmp_path / f"{task}.jsonl", tmp_path / f"{task}-clean.jsonl"
        path.write_text(f"{bad}\n{good}\n{good}\n{bad}\n")
        clean.write_text(f"{good}\n{good}\n")
        found = rows(written(folder, path))
        assert found == printed(folder, clean, capsys) and len(found) == 2


@pytest.mark.parametrize(
    ("name", "data", "flags", "message"),
    [
        ("a.csv", b"", {}, "a.csv is empty"),
        ("a.csv", b"id,text\n", {}, "a.csv holds no examples"),
        ("a.txt", b"", {}, "a.txt is empty"),
        ("a.csv", b"a,b,c\n1,2,3\n", {}, "has no column 'text'"),
        ("a.csv", b"text,x\n1\n", {}, "line 2: 1 column, but the first line has 2"),
        ("a.txt", b"\xff\n", {}, "a.txt: no row can be read; see .*rejected.jsonl"),
        ("a.parquet", b"PAR1", {}, "a.parquet, row 1: damaged or not Parquet"),
        ("a.tfrecord", b"text", {}, "a.tfrecord, record 1: truncated"),
        ("a.tfrecord", b"text" * 9, {}, "a.tfrecord, record 1: truncated, or not a TFRecord file"),
        ("a.txt", b"a", {"ending": ".npz"}, "its name must end with .jsonl, .csv, .tsv, .parquet"),
        ("a.txt", b"a", {"json": True}, "--output_file and --json exclude each other: omit one"),
        ("a.txt", b"a", {"runner": "DirectRunner", "num_workers": 2}, "--num_workers has no eff"),
        ("a.txt", b"a", {"beam_options": "--x"}, "--beam_options does not suit --runner=local"),
    ],
)
def test_what_users_do_wrong(name, data, flags, message, classifier, tmp_path):
    """Oracle: the line. No unfinished work is left."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message):
        written(classifier, tmp_path / name, **flags)
    names = [path.name for path in tmp_path.iterdir()]
    assert not [x for x in names if x.endswith((".unfinished", ".out.jsonl"))]


def test_output_and_input_files_go_together():
    """Oracle: the line."""
    for flags in (dict(num_workers=2), dict(overwrite=True)):
        with pytest.raises(ValueError, match=f"{min(flags)} has no effect without --output_file"):
            predict.Options(checkpoint="x", **flags)
    with pytest.raises(ValueError, match="--output_file has no effect without --input_file"):
        predict.Options(checkpoint="x", output_file="a.csv", texts=("a",))


def test_a_run_that_failed_resumes_only_with_the_same_flags_and_input(
    classifier, tmp_path, monkeypatch
):
    """Oracles: the bytes of an undisturbed run; the rows that are computed again; the messages."""
    path, real = tmp_path / "a.csv", predicting._write_part
    path.write_text(CSV)
    output = written(classifier, path)
    expected = output.read_bytes()
    output.unlink()
    full = mock.Mock(side_effect=[mock.DEFAULT, OSError("No space")], wraps=real)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(predicting, "_write_part", full)
        written(classifier, path)
    with pytest.raises(ValueError, match=r"unfinished was made from .*batch_size=32, not 2"):
        written(classifier, path, batch_size=2)
    path.write_text(CSV.replace("cat", "mat"))
    with pytest.raises(ValueError, match=r"unfinished was made from .*a.csv\) has changed"):
        written(classifier, path)
    path.write_text(CSV)
    with monkeypatch.context() as patch, pytest.raises(ValueError, match=r"checkpoint .* changed"):
        patch.setattr(predicting, "fingerprint", lambda checkpoint: "another")
        written(classifier, path)
    os.utime(path, (1, 1))
    parts = calls_of(monkeypatch, predicting, "_write_part")
    assert written(classifier, path).read_bytes() == expected
    assert [part.args[2] for part in parts] == [2, 4]


@pytest.mark.parametrize("end", ["", ".rejected.jsonl"])
def test_what_others_wrote_stays(end, classifier, tmp_path, monkeypatch):
    """Oracles: the user's file, there from the start or while rows are computed; the bytes of an
    undisturbed run, when it is elsewhere; what lies in a folder."""
    path, real = tmp_path / "a.csv", predicting._write_part
    path.write_text(f"{CSV}bad\n")
    written(classifier, path)
    outputs = [*tmp_path.glob("a.csv.*")]
    expected, mine = [x.read_bytes() for x in outputs], tmp_path / f"a.csv.out.jsonl{end}"
    for output in outputs:
        output.unlink()
    mine.write_text("mine")
    with pytest.raises(FileExistsError, match=f"out.jsonl{end} exists: .*--overwrite"):
        written(classifier, path)
    assert mine.read_text() == "mine"
    mine.unlink()
    part = lambda *arguments: mine.write_text("mine") and real(*arguments)  # noqa: E731
    with monkeypatch.context() as patch, pytest.raises(FileExistsError, match=f"{end} exists"):
        patch.setattr(predicting, "_write_part", part)
        written(classifier, path)
    assert mine.read_text() == "mine"
    mine.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(predicting, "_write_part", None)
        written(classifier, path)
    assert [x.read_bytes() for x in outputs] == expected
    (tmp_path / "a.csv.out.jsonl").unlink()
    written(classifier, path)  # the list of an earlier command is replaced
    mine.unlink()
    mine.mkdir()
    (mine / "diary").touch()
    with pytest.raises(ValueError, match=f"out.jsonl{end} is a directory"):
        written(classifier, path, overwrite=True)
    assert (mine / "diary").exists()


def test_no_part_of_the_output_is_the_input(classifier, pretrained, tmp_path):
    """Oracle: the bytes of the input."""
    (mine := tmp_path / "a.jsonl.rejected.jsonl").write_text('{"text": "a"}\n')
    labels = tmp_path / "v.metadata.tsv"
    labels.write_text("text\na\n")
    with pytest.raises(ValueError, match="rejected.jsonl is an input file too"):
        written(classifier, mine, output=tmp_path / "a.jsonl", overwrite=True)
    flags = dict(checkpoint=pretrained[0], input_file=str(labels), layers="-1", max_seq_length=16)
    for overwrite, match in ((True, "v.metadata.tsv is an input"), (False, "is an input")):
        flags |= dict(output_file=f"{tmp_path}/v.tsv", overwrite=overwrite)
        with pytest.raises(ValueError, match=match):
            extract_features.run(extract_features.Options(**flags))
    flags["input_file"] = str(mine)
    with pytest.raises(FileExistsError, match="v.metadata.tsv exists: "):
        extract_features.run(extract_features.Options(**flags))
    assert mine.read_text() == '{"text": "a"}\n' and labels.read_text() == "text\na\n"


def test_cloud_storage(classifier, pretrained, tmp_path):
    """Oracle: the local files. TensorFlow's memory stands in for gs://; it has no folders, too."""
    table = arrow_table({"id": [1, 2, 3], "text": ["the cat", None, "on"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    tf.io.gfile.copy(f"{tmp_path}/a.parquet", "ram://bulk/a.parquet", overwrite=True)
    layers = dict(layers="-1", max_seq_length=16)
    for module, checkpoint, ending, flags in (
        (predict, classifier, ".csv", {}),
        (predict, classifier, ".parquet", {}),
        (extract_features, pretrained[0], ".parquet", layers),
        (extract_features, pretrained[0], ".npz", layers),
    ):
        found = []
        for folder in (str(tmp_path), "ram://bulk"):
            files = dict(input_file=f"{folder}/a.parquet", output_file=f"{folder}/b{ending}")
            module.run(module.Options(checkpoint=checkpoint, overwrite=True, **files, **flags))
            found.append(read_file(files["output_file"]))
            assert not tf.io.gfile.exists(f"{files['output_file']}.unfinished")
        assert found[0] == found[1]


def test_long_rows_make_small_chunks(classifier, tmp_path, monkeypatch):
    """Oracle: by hand: two rows of usual size make a chunk, as does a long one."""
    texts = ["a", "b", "c" * 2**15, "d", "e", "f"]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    parts = calls_of(monkeypatch, predicting, "_write_part")
    found = rows(written(classifier, path))
    sizes = [len(part.args[3]) for part in parts]
    assert sizes == [2, 1, 2, 1] and [row["text"] for row in found] == texts


def test_a_carriage_return_ends_no_row(classifier, tmp_path):
    """Oracle: the standard library's reader, to which it is a line end outside quotes."""
    texts = ["a\rb", "a\r\nb", "a"]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    for ending, delimiter in ((".csv", ","), (".tsv", "\t")):
        with open(written(classifier, path, ending), newline="") as file:
            data = file.read()
        found = csv.DictReader(io.StringIO(data, newline=""), delimiter=delimiter)
        assert [row["text"] for row in found] == texts
        assert data.count("\r") == 2 and data.endswith("positive\n")


def test_ids_of_every_type(classifier, tmp_path, capsys):
    """Oracle: the ids; TFRecord's floats have 32 bits, and JSON has no NaN, bytes or times."""
    time = arrow_array([1, 2], timestamp("ns"))
    cases = {
        "number": ([16777217.0, 16777216.0], ["16777217.0", "16777216.0"]),
        "nan": ([float("nan"), 1.0], [None, "1.0"]),
        "bytes": ([[b"a"], [b"b"]], ['["a"]', '["b"]']),
        "time": (time, ["1970-01-01 00:00:00.000000001", "1970-01-01 00:00:00.000000002"]),
    }
    for name, (ids, expected) in cases.items():
        path = tmp_path / f"{name}.parquet"
        parquet.write_table(arrow_table({"id": ids, "text": ["a", "b"]}), path)
        read = read_table(str(written(classifier, path, ".tfrecord")))
        left_out = f"{path}: 1 row without 'id' (empty, null, NaN or infinite)."
        assert (left_out in capsys.readouterr().err) == (name == "nan")
        assert read.columns["id"] == expected
        answers = printed(classifier, path, capsys)
        found = [row.get("id") for row in answers]
        assert [x if x is None or isinstance(x, str) else json.dumps(x) for x in found] == expected


def test_empty_files_among_others(classifier, tmp_path, capsys):
    """Oracle: the rows of the others; Spark writes files without rows."""
    files = {"1.csv": "text\na\n", "2.csv": "text\n", "3.csv": "", "4.csv": "text\nb"}
    for name, data in files.items():
        (tmp_path / name).write_text(data)
    parquet.write_table(arrow_table({"text": arrow_array([], string())}), tmp_path / "5.parquet")
    (tmp_path / "6.parquet").touch()
    output = tmp_path / "out.jsonl"
    found = rows(written(classifier, f"{tmp_path}/[1-6].*", output=output))
    shown = capsys.readouterr().err
    assert [row["text"] for row in found] == ["a", "b"]
    assert_same(printed(classifier, f"{tmp_path}/[1-6].*", capsys), found)
    for name in ("2.csv", "3.csv", "5.parquet", "6.parquet"):
        assert shown.count(f"WARNING: {tmp_path}/{name} ") == 1
    for name in ("2.csv", "5.parquet"):
        with pytest.raises(ValueError, match="holds no examples"):
            written(classifier, tmp_path / name)


@pytest.mark.parametrize("pooling", ["tokens", "word_mean"])
@pytest.mark.slow
def test_vectors_of_tables_in_chunks(pooling, pretrained, tmp_path, monkeypatch):
    """Oracles: the vectors in one chunk; the texts. A row that cannot be read has none."""
    (tmp_path / "a.csv").write_text(f"{CSV}bad\n")
    flags = dict(checkpoint=pretrained[0], layers="-1", pooling=pooling, max_seq_length=16)
    flags |= dict(input_file=f"{tmp_path}/a.csv")
    files = [f"{tmp_path}/{name}" for name in ("2.npz", "2.jsonl", "2.tfrecord", "100.npz")]
    for file in files:
        monkeypatch.setattr(bulk, "_CHUNK_ROWS", int(pathlib.Path(file).stem))
        extract_features.run(extract_features.Options(output_file=file, **flags))
    arrays, whole = np.load(files[0]), np.load(files[3])
    for name in whole:
        if name == "values":
            np.testing.assert_allclose(arrays[name], whole[name], atol=1e-5)
        else:
            np.testing.assert_array_equal(arrays[name], whole[name])
    splits = arrays["row_splits"]
    assert len(splits) == 7 and splits[5] == splits[6] == len(arrays["values"])
    lines = rows(pathlib.Path(files[1]))
    assert [line["linex_index"] for line in lines] == [*range(6)]
    assert [len(line["features"]) for line in lines] == np.diff(splits).tolist()
    assert "cat" in [feature["token"] for feature in lines[0]["features"]]
    texts = []
    for record in tf.data.TFRecordDataset(files[2]).as_numpy_iterator():
        feature = tf.train.Example.FromString(record).features.feature
        texts.append(feature["text"].bytes_list.value[0].decode())
    assert texts == [*(row["text"] for row in EXAMPLES), ""]


def test_quotes_of_a_large_tsv_are_those_of_all_of_it(tmp_path, monkeypatch):
    """Oracle: the cells that the standard library wrote; a block may end inside a quoted cell."""
    cells = [f'{i} "x"\nline, {"y" * 40}' for i in range(9)]
    with open(tmp_path / "a.tsv", "w", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerows([("text", "n"), *((cell, 1) for cell in cells)])
    for size in range(60, 300, 7):
        monkeypatch.setattr(table_rows, "_BLOCK_BYTES", size)
        _, found = table_rows.read_rows(str(tmp_path / "a.tsv"))
        assert [row["text"] for _, row in found] == cells


@pytest.mark.slow
def test_the_classifier_in_a_pipeline_of_beam(classifier, tmp_path, monkeypatch, capsys):
    """Oracle: what predict prints; the code is that of docs/serving.md."""
    pytest.importorskip("apache_beam")
    from export import classifier as exporter

    exporter.run(exporter.Options(checkpoint=classifier, output_dir=f"{tmp_path}/classifier"))
    page = (ROOT / "docs" / "serving.md").read_text()
    code = re.search(r"```python\n(import apache_beam.*?)```", page, re.S)[1]
    (tmp_path / "texts.txt").write_text("the cat\nsat on\n")
    monkeypatch.chdir(tmp_path)
    exec(code, {"__name__": "pipeline"})
    (shard,) = tmp_path.glob("labels.tsv*")
    expected = printed(classifier, tmp_path / "texts.txt", capsys)
    assert sorted(shard.read_text().splitlines()) == sorted(
        f"{row['text']}\t{row['label']}" for row in expected
    )

"""GLUE files: the official ones with their counts, small ones by hand; the zip for its server."""

import lzma
import re
import types
import zipfile

import numpy as np
import pytest

from bert_tf import glue_submission
from bert_tf.config import ModelSpec
from bert_tf.finetuning.examples import TextExamples
from bert_tf.finetuning.finetuning_options import FineTuningOptions
from bert_tf.finetuning.preparing import read_features
from bert_tf.finetuning.registry import TASKS
from bert_tf.finetuning.task import DataFiles
from bert_tf.finetuning.tasks.glue import SUBMISSION
from bert_tf.text.tokenizer import WordPieceTokenizer
from tfrecords.vocabulary import SPECIAL_TOKENS, Vocabulary


def test_sst2_has_its_published_counts(shared_data, tmp_path):
    source = shared_data / "glue" / "SST-2"
    (tmp_path / "train.tsv").write_bytes(lzma.open(source / "train.tsv.xz").read())
    train = TASKS["sst2"].read_files(str(tmp_path), "train")
    assert np.bincount(train.targets["labels"]).tolist() == [29780, 37569]
    assert train.texts_a[0] == b"hide new secretions from the parental units "
    # The parent folder works, too.
    dev = TASKS["sst2"].read_files(str(source.parent), "dev")
    assert np.bincount(dev.targets["labels"]).tolist() == [428, 444]


# The numbers of examples of each class in "train" and "dev", and of the test set.
PUBLISHED = {
    "cola": ([2528, 6023], [322, 721], 1063),
    "mrpc": ([1194, 2474], [129, 279], None),
    "rte": ([1249, 1241], [146, 131], 3000),
    "wnli": ([323, 312], [40, 31], 146),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_official_files_have_their_published_counts(name, shared_data):
    """Oracle: the counts of the official files. Nothing in them is odd."""
    *labelled, test = PUBLISHED[name]
    for split, counts in zip(("train", "dev"), labelled, strict=True):
        examples = TASKS[name].read_files(str(shared_data / "glue"), split)
        assert np.bincount(examples.targets["labels"]).tolist() == counts
        assert examples.notes == ()
    if test:
        examples = TASKS[name].read_files(str(shared_data / "glue"), "test")
        assert examples.targets == {}
        assert examples.ids == [str(index) for index in range(test)]


def test_texts_of_the_official_files(shared_data):
    """Oracle: the first lines, read by eye."""
    mrpc = TASKS["mrpc"].read_files(str(shared_data / "glue"), "train")
    assert mrpc.texts_a[0].startswith(b'Amrozi accused his brother, whom he called "the witness"')
    assert mrpc.texts_b[0].startswith(b"Referring to him as only")
    cola = TASKS["cola"].read_files(str(shared_data / "glue"), "dev")
    assert cola.texts_a[0] == b"The sailors rode the breeze clear of the rocks."
    likeness = TASKS["stsb"].read_files(str(shared_data / "glue"), "dev")
    assert len(likeness) == 1500
    assert likeness.targets["values"][:2].tolist() == [5.0, 4.75]
    assert likeness.texts_b[0] == b"A man wearing a hard hat is dancing."


def test_mnli_and_qqp_have_files_of_their_own(tmp_path, capsys):
    """Oracle: the headers of the official files; AX is beside MNLI's files or in its own folder."""
    folder = tmp_path / "MNLI"
    folder.mkdir()
    line = "index\tpromptID\tsentence1\tsentence2\tlabel1\tgold_label\n0\t1\ta\tb\tneutral\t{}\n"
    (folder / "train.tsv").write_text(line.format("contradiction"))
    (folder / "dev_matched.tsv").write_text(line.format("entailment"))
    (folder / "dev_mismatched.tsv").write_text(line.format("neutral"))
    for name in ("test_matched", "test_mismatched"):
        (folder / f"{name}.tsv").write_text(f"index\tsentence1\tsentence2\n7\t{name}\tb\n")
    task = TASKS["mnli"]
    names = ("train", *task.dev_splits, *task.test_splits)
    # The archive of MNLI lacks AX.
    spec = ModelSpec(None, Vocabulary((*SPECIAL_TOKENS, "a")), lower_case=True)
    flags = dict(task="mnli", output_dir="x", data_dir=str(tmp_path), max_seq_length=8)
    options = FineTuningOptions(**flags, do_predict=True)
    arguments = task, spec, names, lambda line: print(line), task.optional_splits
    assert list(read_features(options, *arguments)) == [*names[:-1]]
    printed = capsys.readouterr().out
    assert "WARNING: no predictions for AX: " in printed and "gluebenchmark.com" in printed
    diagnostic = "index\tsentence1\tsentence2\n0\tax\tb\n"
    # Without --do_predict, test sets are read for their labels, which these lack.
    options = FineTuningOptions(**flags, do_eval=True)
    assert list(read_features(options, *arguments[:-1], task.test_splits)) == [*names[:3]]
    assert "no predictions" not in capsys.readouterr().out
    (tmp_path / "diagnostic").mkdir()
    (tmp_path / "diagnostic" / "diagnostic.tsv").write_text(diagnostic)
    for data_dir in (tmp_path, folder):
        examples = task.read_splits(["ax"], DataFiles(str(data_dir)))["ax"]
        assert examples.texts_a == [b"ax"]
    (tmp_path / "diagnostic").rename(tmp_path / "AX")
    (tmp_path / "AX" / "diagnostic.tsv").rename(tmp_path / "AX" / "AX.tsv")
    splits = task.read_splits(names, DataFiles(str(tmp_path)))
    found = [splits[name].targets["labels"].item() for name in names[:3]]
    assert [task.labels[label] for label in found] == ["contradiction", "entailment", "neutral"]
    texts = [splits[name].texts_a[0] for name in names[3:]]
    assert texts == [b"test_matched", b"test_mismatched", b"ax"]
    assert splits["test"].ids == ["7"] and splits["test"].targets == {}
    assert task.read_splits(["ax"], DataFiles(str(folder)))["ax"].texts_a == [b"ax"]

    (tmp_path / "train.tsv").write_text(
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
        "5\t1\t2\ta\tb\t1\n6\t3\t4\ta broken\n line\t0\n5\t1\t2\t\tb\t0\textra\n"
    )
    examples = TASKS["qqp"].read_files(str(tmp_path), "train")
    assert examples.texts_a == [b"a", b""] and examples.ids == ["5", "5"]
    assert examples.notes == (
        "skipped lines that lack columns: 2",
        "lines with too many columns, whose extra columns are ignored: 1, the first is line 5",
        "1 with a repeated id",
    )
    (tmp_path / "test.tsv").write_text("id\tquestion1\tquestion2\n0\ta\n")
    with pytest.raises(ValueError, match="test.tsv, line 2: 2 columns, but there must be 3"):
        TASKS["qqp"].read_files(str(tmp_path), "test")


@pytest.mark.parametrize(
    ("name", "content", "labels"),
    [
        ("mrpc", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\ta\tb\n", [1]),
        ("mrpc", "#1 String\t#2 String\tQuality\na\tb\t-1\n", None),
        ("stsb", "sentence1\tsentence2\tscore\na\tb\t-1.0\n", None),
        ("cola", "gj04\t0\t*\ta\n", [0]),
        ("cola", "index\tsentence\n0\ta\n", None),
        ("cola", "label\tsentence\n1\ta\n", [1]),
    ],
)
def test_a_file_is_scored_where_it_has_labels(name, content, labels, tmp_path):
    """Oracle: by hand; the first line of CoLA's files may name the columns."""
    (tmp_path / "a.tsv").write_text(content)
    files = DataFiles(test_file=str(tmp_path / "a.tsv"), dev_file=str(tmp_path / "a.tsv"))
    task = TASKS[name].with_files(files)
    examples = task.read_splits(["test"], files)["test"]
    assert examples.texts_a == [b"a"]
    assert labels == (examples.targets["labels"].tolist() if examples.targets else None)
    if labels:
        assert task.read_splits(["dev"], files)["dev"].targets["labels"] == labels


def unlabelled(*ids: str) -> types.SimpleNamespace:
    examples = TextExamples([b"a"] * len(ids), None, {}, [*ids])
    return types.SimpleNamespace(targets={}, examples=examples)


@pytest.mark.parametrize(
    ("name", "logits", "labels"),
    [
        ("cola", [[1, 0], [0, 1]], ["0", "1"]),
        ("rte", [[1, 0], [0, 1]], ["entailment", "not_entailment"]),
        ("mnli", [[0, 1, 0], [0, 0, 1]], ["neutral", "contradiction"]),
    ],
)
def test_submissions_of_classes(name, logits, labels, tmp_path):
    """Oracle: the names and labels of GLUE's server."""
    task, features = TASKS[name], unlabelled("7", "8")
    outputs = {"logits": np.array(logits)}
    for split in task.test_splits:
        names = task.write_predictions(str(tmp_path), split, outputs, features)
        (file,) = SUBMISSION.keys() & names
        expected = f"index\tprediction\n7\t{labels[0]}\n8\t{labels[1]}\n"
        assert (tmp_path / file).read_text() == expected
    written = {path.name for path in tmp_path.iterdir()} & SUBMISSION.keys()
    expected = {"cola": {"CoLA.tsv"}, "rte": {"RTE.tsv"}}
    assert written == expected.get(name, {"MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"})
    names = task.write_predictions(str(tmp_path), "dev", outputs, features)
    assert names == ["predictions_dev.tsv"]


def test_submission_of_numbers(tmp_path):
    """Oracle: three decimals from 0 to 5."""
    outputs, features = {"values": np.float32([-0.25, 1 / 3, 5.01])}, unlabelled("0", "1", "2")
    names = TASKS["stsb"].write_predictions(str(tmp_path), "test", outputs, features)
    assert names == ["predictions_test.tsv", "STS-B.tsv"]
    expected = "index\tprediction\n0\t0.000\n1\t0.333\n2\t5.000\n"
    assert (tmp_path / "STS-B.tsv").read_text() == expected


@pytest.mark.parametrize(
    ("name", "targets", "note"),
    [
        ("sst2", {"labels": np.ones(4, np.int32)}, ', all of them "positive"'),
        ("sst2", {"labels": np.array([1, 0, 1, 1])}, ', 1 "negative", 3 "positive"'),
        ("stsb", {"values": np.full(4, 2.6, np.float32)}, ", all of them 2.6"),
        ("stsb", {"values": np.array([2.6, 2.6, 2.6, 2.5], np.float32)}, ""),
        ("stsb", {}, ""),
    ],
)
def test_odd_data_is_counted(name, targets, note):
    """Oracle: the counts, in the line that describes a split."""
    texts = [b"good", b" ", b"bad", b""]
    examples = TextExamples(texts, None, targets, notes=("one note",))
    vocab = Vocabulary((*SPECIAL_TOKENS, "good", "bad"))
    features = TASKS[name].featurize(examples, WordPieceTokenizer(vocab), 8)
    covered = "1.0 tokens per word, 0.0% [UNK]"
    assert features.describe() == f"4 examples, {covered}, 2 with an empty text, one note{note}"


@pytest.fixture
def read_dev(write, tmp_path):
    """A function (name of a task, content of its dev set) -> the examples."""

    def read(name: str, data: str | bytes) -> TextExamples:
        write("dev.tsv", data)
        return TASKS[name].read_files(str(tmp_path), "dev")

    return read


def test_quotes_line_ends_and_odd_bytes_are_kept_as_they_are(read_dev):
    """Oracle: the bytes of the file; only line ends and tabs divide it."""
    data = '\ufeffsentence\tlabel\r\n"an open quote\t1\r\na\u2028b\x0bc\rd\0e\t0\r\n\r\n'.encode()
    examples = read_dev("sst2", data + b"bad \xff byte\t1")
    assert examples.texts_a == [b'"an open quote', "a\u2028b\x0bc\rd\0e".encode(), b"bad \xff byte"]
    assert examples.targets["labels"].tolist() == [1, 0, 1]


def scored(*scores: object) -> str:
    lines = [f"{i}\ta\tb\t{score}\n" for i, score in enumerate(scores)]
    return "index\tsentence1\tsentence2\tscore\n" + "".join(lines)


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        ("sst2", b"\n", " is empty"),
        ("sst2", b"sentence\tgold\na\t1\n", "has no column 'label'"),
        ("sst2", b"sentence\tlabel\na\t1\nb\t2\n", ", line 3: label '2' is not one of 0, 1"),
        ("sst2", b"sentence\tlabel\nno label\n", ", line 2: 1 column, but there must be 2"),
        ("sst2", "sentence\tlabel\na\t1\n".encode("utf-16"), "is UTF-16: save it as UTF-8"),
        ("sst2", b"index\tsentence\n0\ta dev set without labels\n", "has no column 'label'"),
        *(
            ("stsb", scored(5.0, score), f", line 3: score '{score}' is not a number")
            for score in ("five", "nan", "1_0", "")
        ),
    ],
)
def test_bad_files_are_named(read_dev, name, data, match):
    """Oracle: the name of the file, and the line."""
    with pytest.raises(ValueError, match=f"dev.tsv.*{match}"):
        read_dev(name, data)


def test_scores_out_of_range_are_counted(read_dev, capsys):
    """Oracle: by hand."""
    examples = read_dev("stsb", scored(5, -0.5, 0, 7))
    assert examples.targets["values"].tolist() == [5, -0.5, 0, 7]
    line = "dev.tsv: 2 of 4 values of score are not from 0 to 5, the first in line 3."
    assert line in capsys.readouterr().out


# The other tasks have the labels 0 and 1 or, STS-B, numbers.
ENTAILMENT = ("MNLI-m.tsv", "MNLI-mm.tsv", "QNLI.tsv", "RTE.tsv", "AX.tsv")


def predict(folder, name: str, count: int) -> str:
    folder.mkdir(exist_ok=True)
    label = "entailment" if name in ENTAILMENT else "1"
    rows = "".join(f"{index}\t{label}\n" for index in range(count))
    (folder / name).write_text(f"index\tprediction\n{rows}")
    return str(folder)


def submit(runs: list[str], folder) -> str:
    path = str(folder / "submission.zip")
    glue_submission.run(glue_submission.Options(runs=tuple(runs), output_file=path))
    return path


def test_the_files_of_all_runs_lie_flat_in_the_zip(tmp_path, capsys):
    """Oracle: the names of the server's files; the files in the runs."""
    names = [name for name in SUBMISSION if name != "QQP.tsv"]
    runs = [predict(tmp_path / name, name, SUBMISSION[name]) for name in names]
    predict(tmp_path / "MNLI-m.tsv", "AX.tsv", 1104)
    runs.remove(str(tmp_path / "AX.tsv"))
    with zipfile.ZipFile(submit(runs, tmp_path)) as zipped:
        assert zipped.namelist() == names
        for name in names:
            assert zipped.read(name) == (tmp_path / name / name).read_bytes()
    printed = capsys.readouterr().out
    assert "submission.zip: CoLA.tsv, SST-2.tsv, MRPC.tsv" in printed
    assert "WARNING: missing 1 of 11 files: QQP.tsv." in printed


def test_what_is_not_a_submission_is_named(tmp_path):
    """Oracle: the sizes and the labels of the test sets; nothing is written."""

    def refuse(match: str, *runs: str) -> None:
        with pytest.raises((ValueError, FileNotFoundError), match=match):
            submit(runs, tmp_path)
        assert not (tmp_path / "submission.zip").exists()

    whole, again = (predict(tmp_path / name, "WNLI.tsv", 146) for name in "ab")
    refuse("no runs: give the run folders")
    with pytest.raises(ValueError, match="--output_file=run/flags.json: .* end with .zip"):
        glue_submission.Options(runs=("run",), output_file="run/flags.json")
    (tmp_path / "submission.zip").write_text("mine")
    with pytest.raises(FileExistsError, match="submission.zip exists: .*--overwrite"):
        submit([whole], tmp_path)
    (tmp_path / "submission.zip").unlink()
    refuse("nowhere holds no predictions .*--do_predict --output_dir=nowhere", whole, "nowhere")
    refuse(re.escape(f"{whole}/WNLI.tsv and {again}/WNLI.tsv are for the same task"), whole, again)
    (tmp_path / "seeds/seed-1").mkdir(parents=True)
    (tmp_path / "seeds/seed-1/flags.json").write_text("{}")
    (tmp_path / "seeds/results.json").write_text('{"best": "seed-1"}')
    refuse(f"seeds holds several runs .* the best run, {tmp_path}/seeds/s", f"{tmp_path}/seeds")
    (tmp_path / "many").mkdir()
    (tmp_path / "many/flags.json").write_text('{"task": "wnli,rte"}')
    refuse("many has several tasks: give the folder of one, .*many/wnli", f"{tmp_path}/many")
    (tmp_path / "b" / "WNLI.tsv").write_bytes(b"index\tprediction\n0\t1\n1\n")
    refuse("b/WNLI.tsv, line 3: prediction '' is not one of 0, 1", again)
    (tmp_path / "b" / "WNLI.tsv").write_bytes(b"\xff\n0\t1\n")
    refuse("b/WNLI.tsv has 1 prediction,", again)
    for name, label, known in (
        ("WNLI.tsv", "\xff", "is not one of 0, 1"),
        ("AX.tsv", "not_entailment", "is not one of entailment, neutral, contradiction"),
        ("STS-B.tsv", "nan", "is not a number"),
    ):
        odd = predict(tmp_path / f"odd-{name}", name, 1)
        (tmp_path / f"odd-{name}" / name).write_text(f"index\tprediction\n0\t{label}\n")
        refuse(f"odd-{name}/{name}, line 2: prediction '{label}' {known}", odd)
    part = predict(tmp_path / "c", "RTE.tsv", 277)
    refuse("RTE.tsv has 277 predictions, but the official test set has 3,000", whole, part)
    (tmp_path / "a" / "WNLI.tsv").write_text("index\tprediction\n" + "0\t1\n" * 146)
    refuse("WNLI.tsv has 146 .* 146 examples with the indices 0 to 145", whole)

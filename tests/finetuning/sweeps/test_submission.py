"""The zip file for GLUE's server."""

import re
import zipfile

import pytest

from bert_tf import glue_submission
from bert_tf.finetuning.tasks.glue import SUBMISSION

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
    refuse("no runs: name the output folders")
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

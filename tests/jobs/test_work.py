"""The engine of all jobs, with a small one: each letter of a text is a chunk, written large.

At the end, jobs of all kinds, killed with SIGKILL at any moment, and on Apache Beam.
"""

import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from jobs import killing

from bert_tf.base import output_files
from bert_tf.base.common_options import RunnerOptions
from bert_tf.base.made import Made, describe_files, kept_files
from bert_tf.base.output_files import atomic_write, check_output_files, join_files
from bert_tf.examples import steps
from bert_tf.jobs.work import unfinished_work
from bert_tf.jobs.workers import open_runner
from tfrecords.vocabulary import SPECIAL_TOKENS

ROOT = pathlib.Path(__file__).parents[2]


class Job:
    """Writes the letters into a file; `computed` are those of the last run."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.output, self.folder = folder / "out.txt", folder / "out.unfinished"
        self.computed, self.fails = "", {}

    def run(self, text: str = "abcd", overwrite: bool = False) -> None:
        self.computed, output = "", str(self.output)
        made = Made({"text": text})
        with unfinished_work(str(self.folder), made, overwrite) as work:
            work.missing([output])
            work.start(made)
            with open_runner(RunnerOptions(), 1) as run_chunks:
                read = lambda group: [(1, letter) for letter in text]  # noqa: E731
                work.compute(run_chunks, "chunks", 1, read, self._make, total=len(text))
            parts = [file for file, _ in work.counts("chunks")]
            work.write_output(0, output, lambda path: self._join(parts, path))

    def _make(self, path: str, letter: str) -> dict:
        self._do(letter)
        self.computed += letter
        atomic_write(path, letter.upper())
        return {"letters": 1}

    def _join(self, parts: list[str], path: str) -> dict:
        self._do("join")
        join_files(parts, path)
        return {}

    def _do(self, step: str) -> None:
        if error := self.fails.get(step):
            raise error


@pytest.fixture
def job(tmp_path) -> Job:
    return Job(tmp_path)


def stop(job: Job, step: str, error: Exception | None = None, **flags) -> None:
    """Runs the job until an error in a step; by default, the disk is full."""
    job.fails = {step: error or OSError("disk full")}
    with pytest.raises(type(job.fails[step]), match=str(job.fails[step])):
        job.run(**flags)
    job.fails = {}


def test_only_what_is_missing_is_computed(job):
    """Oracles: the text in capitals; which letters were computed when."""
    job.output.write_text("mine")
    with pytest.raises(FileExistsError, match=r"out.txt exists: .*--overwrite"):
        job.run()
    assert not job.folder.exists()
    stop(job, "c", overwrite=True)
    assert job.computed == "ab" and job.output.read_text() == "mine"
    with pytest.raises(ValueError, match="unfinished was made from .*text=abcd, not abce"):
        job.run("abce")
    job.run()  # It was told to overwrite.
    assert job.computed == "cd" and job.output.read_text() == "ABCD" and not job.folder.exists()
    stop(job, "c", overwrite=True)
    job.run("xyz", overwrite=True)
    assert job.computed == "xyz" and job.output.read_text() == "XYZ" and not job.folder.exists()


@pytest.mark.parametrize("file", ["00000000-00000001.data", "00000000-00000001.json", "*.json"])
@pytest.mark.parametrize("to", [None, "", "{}", '{"cou', "flip"])
def test_damaged_state_is_made_again(job, file, to):
    """Oracle: the text in capitals."""
    stop(job, "join")
    for path in (job.folder / "chunks").glob(file):
        if to is None:
            path.unlink()
        else:
            data = path.read_text()
            path.write_text(data.translate({ord("B"): "C", ord("1"): "2"}) if to == "flip" else to)
    job.run()
    assert job.output.read_text() == "ABCD" and job.computed == ("abcd" if "*" in file else "b")


def test_finished_steps_outlive_a_user_error_unless_they_are_new(job):
    """Oracle: which letters are computed."""
    stop(job, "c", ValueError("too large"))
    assert not job.folder.exists()
    stop(job, "c")
    stop(job, "c", ValueError("too large"))
    job.run()
    assert job.computed == "cd"


def test_work_of_another_version_is_computed_again(job):
    """Oracle: which letters are computed."""
    stop(job, "c")
    file = job.folder / "job.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"bert_tf": "0.0.1"}))
    job.run()
    assert job.computed == "abcd"


def test_what_appears_meanwhile_stays(job):
    """Oracles: the user's file; the text in capitals once it is elsewhere."""
    stop(job, "join")
    job.output.write_text("mine")
    for _ in range(2):
        with pytest.raises(FileExistsError, match="out.txt exists"):
            job.run()
    assert job.output.read_text() == "mine"
    job.output.unlink()
    job.run()
    assert job.output.read_text() == "ABCD" and not job.computed


def test_two_runs_at_once_are_an_error(job, monkeypatch):
    """Oracle: a lock that is held."""
    monkeypatch.setattr(output_files, "_PATIENCE", 0)
    job.folder.mkdir()
    with open(job.folder / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="out.unfinished is in use by"):
            job.run()
    job.run()


@pytest.mark.parametrize(
    "name", ["chunks/letters.txt", "parts/7-7.data", "job.json", "outputs/00000.json"]
)
def test_a_folder_of_someone_else_is_not_cleared(job, name):
    """Oracle: a file of the user in a folder that has the name of the unfinished work."""
    mine = job.folder / name
    mine.parent.mkdir(parents=True)
    mine.write_text("{}")
    for overwrite in (False, True):
        with pytest.raises(ValueError, match="unfinished contains .*, but no job.json"):
            job.run(overwrite=overwrite)
    assert mine.read_text() == "{}"


def test_other_files_in_the_work_folder_are_left_alone(job, tmp_path):
    """Oracle: files of the user in the folder; a link to another disk."""
    (tmp_path / "disk").mkdir()
    job.folder.mkdir()
    (job.folder / "chunks").symlink_to(tmp_path / "disk")
    (job.folder / "novel.txt").write_text("Chapter 1")
    (job.folder / "job.json").write_text('{"bert_tf": "an earlier one"}')
    job.run(overwrite=True)
    assert {*os.listdir(job.folder)} == {"novel.txt", "chunks"} and job.output.read_text() == "ABCD"
    with pytest.raises(ValueError, match="novel.txt lies in .*unfinished, where unfinished"):
        inputs = [None, f"{job.folder}/novel.txt"]
        check_output_files([str(job.output)], inputs, work_folder=str(job.folder))


@pytest.mark.parametrize("step", ["a", "d", "join"])
def test_the_work_folder_may_go_at_any_time(job, step, monkeypatch):
    """Oracles: one line; the text in capitals."""
    remove = lambda done: done == step and shutil.rmtree(job.folder)  # noqa: E731
    monkeypatch.setattr(job, "_do", remove)
    with pytest.raises(OSError, match="out.unfinished"):
        job.run()
    monkeypatch.undo()
    shutil.rmtree(job.folder, ignore_errors=True)
    job.output.unlink(missing_ok=True)
    job.run()
    assert job.output.read_text() == "ABCD"


def test_finished_output_is_compared_with_its_manifest(tmp_path):
    """Oracles: by hand; the checksum of "a" from sha256sum."""
    a, b, text = (str(tmp_path / name) for name in ("a", "b", "text"))
    for path in (a, text):
        pathlib.Path(path).write_text("a")
    digest = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    made = Made({"text": "x"}, describe_files([text]))
    before = Made.from_dict(json.loads(json.dumps(made.to_dict())))
    other, recorded = Made({"text": "y"}), {a: digest, b: None}
    assert kept_files("m", before, made, recorded, False) == {a}
    for before, why in ((other, "text=y, not x"), (Made(), "nothing says which")):
        with pytest.raises(ValueError, match=f"{a} was made from .*{why}.*--overwrite"):
            kept_files("m", before, made, recorded, False)
        assert kept_files("m", before, made, recorded, True) == set()
    pathlib.Path(a).write_text("b")
    with pytest.raises(ValueError, match=f"{a}: the checksum differs from that in m: .*overwrite"):
        kept_files("m", made, made, recorded, False)
    assert kept_files("m", made, made, recorded, True) == set()
    os.remove(a)
    os.symlink("absent", b)
    with pytest.raises(FileExistsError, match=f"{b} exists"):
        kept_files("m", made, made, recorded, False)


@pytest.fixture
def folder(tmp_path) -> pathlib.Path:
    """Holds a vocabulary, and lines of letters with and without spaces."""
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *"abcdefghi"]))
    texts = ["\n".join(" ".join("abcdefghi"[: 1 + d * s % 9]) for s in range(6)) for d in range(30)]
    for part in range(2):
        (tmp_path / f"text-{part}.txt").write_text("\n\n".join(texts[part::2]))
    (tmp_path / "words.txt").write_text("\n".join(texts).replace(" ", ""))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "num_files"), [("create_data", 4), ("extend_vocabulary", 4), ("compute_lines", 3)]
)
def test_a_killed_run_resumes(job, num_files, folder):
    """Oracle: the bytes of an undisturbed run; those of two processes, and after ten kills."""
    program = [sys.executable, "-m", "tests.jobs.killing", str(folder), job]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] == 10 and len(found["files"]) == num_files
    assert found["different"] == [[]] * 12


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("job", [killing.create_data, killing.compute_lines])
def test_beam_writes_the_same_bytes(job, folder, monkeypatch):
    """Oracles: the files of this process; the error of a job, in one line."""
    pytest.importorskip("apache_beam")
    for change in killing.SMALL:
        monkeypatch.setattr(*change)
    job(folder, num_workers=1)
    expected = killing.content(folder / "out")
    shutil.rmtree(folder / "out")
    job(folder, runner="DirectRunner")
    assert killing.content(folder / "out") == expected
    shutil.rmtree(folder / "out")
    module, name = (killing, "_write_part") if "lines" in job.__name__ else (steps, "save_chunk")
    monkeypatch.setattr(module, name, _fail)
    with pytest.raises(ValueError, match="too large") as error:
        job(folder, runner="DirectRunner")
    assert "Traceback" not in str(error.value)


def _fail(*_):
    raise ValueError("too large")


def test_a_missing_beam_is_an_error_that_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(ValueError, match=r"pip install apache-beam"):
        killing.compute_lines(folder, runner="DirectRunner")

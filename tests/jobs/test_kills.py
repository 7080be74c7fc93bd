"""Jobs of all kinds: killed with SIGKILL at any moment, and on Apache Beam."""

import json
import pathlib
import shutil
import subprocess
import sys

import pytest
from jobs import killing

from bert_tf.examples import steps
from tfrecords.vocabulary import SPECIAL_TOKENS

ROOT = pathlib.Path(__file__).parents[2]


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

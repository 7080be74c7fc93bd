"""Tests the Beam runner. Oracle: the bytes of the local run."""

import sys

import pytest

from bert_tf.create_pretraining_data import run


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_beam_makes_the_same_bytes(options, folder):
    pytest.importorskip("apache_beam")
    run(options(output_file=f"{folder}/local/data.tfrecord"))
    run(
        options(output_file=f"{folder}/beam/data.tfrecord", runner="DirectRunner", num_workers=None)
    )
    files = sorted(path.name for path in (folder / "local").iterdir())
    assert files == sorted(path.name for path in (folder / "beam").iterdir())
    assert len(files) == 4
    for name in files:
        assert (folder / "local" / name).read_bytes() == (folder / "beam" / name).read_bytes()
    (folder / "text-1.txt").write_text("{not JSON\n")
    (folder / "text-1.txt").rename(folder / "bad.jsonl")
    with pytest.raises(ValueError, match="bad.jsonl") as error:
        run(options(input_file=f"{folder}/bad.jsonl", runner="DirectRunner", num_workers=None))
    assert "Traceback" not in str(error.value)


def test_a_missing_beam_is_an_error_that_says_what_to_install(options, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(ValueError, match=r"pip install apache-beam"):
        run(options(runner="DirectRunner", num_workers=None))

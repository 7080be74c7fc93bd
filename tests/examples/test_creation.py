"""Tests creating files and resuming. Oracles: an uninterrupted run's bytes, hashlib, all passes."""

import hashlib
import json
import os
import pathlib
import shutil
from unittest import mock

import pytest
import tensorflow as tf

from bert_tf.create_pretraining_data import run
from bert_tf.examples import creation, job, steps
from tfrecords import inspect

INPUTS = b'{"shards": [], "inputs": ["text.txt"]}'


@pytest.fixture(autouse=True)
def many_chunks_and_parts(monkeypatch):
    monkeypatch.setattr(job, "_MIN_BLOCK_BYTES", 100)
    monkeypatch.setattr(job, "_MIN_PARTS", 6)


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> pathlib.Path:
    return tmp_path_factory.mktemp("copy") / "out"


@pytest.fixture
def finished(folder, options, copy) -> dict[str, bytes]:
    """The output files of an undisturbed run, which all tests share, and their content."""
    if copy.exists():
        shutil.copytree(copy, folder / "out")
    else:
        run(options())
        shutil.copytree(folder / "out", copy)
    return _bytes(folder)


def _bytes(folder: pathlib.Path, name: str = "out") -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / name).iterdir())}


def test_the_files_are_those_of_the_manifest_and_of_all_passes(folder, options, monkeypatch):
    """Oracles: hashlib; the records of all passes, as they are made."""
    made = []
    real = steps.make_pass

    def spy(*arguments):
        records, counts = real(*arguments)
        made.extend(records)
        return records, counts

    monkeypatch.setattr(steps, "make_pass", spy)
    statistics = run(options())
    manifest = json.loads((folder / "out" / "data.manifest.json").read_text())
    shards = [folder / "out" / f"data.tfrecord-{shard:05}-of-00003" for shard in range(3)]
    assert sorted((folder / "out").iterdir()) == [folder / "out" / "data.manifest.json", *shards]
    found = []
    for path, entry in zip(shards, manifest["shards"], strict=True):
        records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        values = {"file": path.name, "records": len(records), "bytes": path.stat().st_size}
        assert entry.items() >= (values | {"sha256": digest}).items()
        found += records
    assert sorted(found) == sorted(made) and found != made
    assert statistics.examples.examples == len(made)
    assert [entry["sha256"] for entry in manifest["inputs"]] == [
        hashlib.sha256((folder / f"text-{part}.txt").read_bytes()).hexdigest() for part in range(2)
    ]
    assert manifest["settings"]["dupe_factor"] == 4
    assert manifest["vocabulary"] == (folder / "vocab.txt").read_text()
    assert creation.CreationStatistics.from_dict(manifest["statistics"]) == statistics


@pytest.mark.parametrize("function", ["tokenize_block", "join_shard"])
def test_old_files_stay_until_the_new_text_proves_to_be_good(
    folder, finished, options, monkeypatch, function
):
    """Oracles: the old manifest; the uninterrupted run."""
    run(options(overwrite=True, random_seed=1))
    full = OSError("disk full")
    steps_done = mock.Mock(side_effect=[mock.DEFAULT, full], wraps=getattr(steps, function))
    with monkeypatch.context() as patch, pytest.raises(OSError, match="disk full"):
        patch.setattr(steps, function, steps_done)
        run(options(overwrite=True))
    assert (folder / "out" / "data.manifest.json").exists() == (function == "tokenize_block")
    if function != "tokenize_block":
        monkeypatch.setattr(steps, "tokenize_block", pytest.fail)
    run(options())
    assert _bytes(folder) == finished


def test_only_a_lost_shard_is_made_again(folder, finished, options):
    lost, kept = (folder / "out" / f"data.tfrecord-0000{shard}-of-00003" for shard in (1, 2))
    lost.unlink()
    before = kept.stat()
    run(options())
    assert _bytes(folder) == finished
    assert kept.stat().st_mtime_ns == before.st_mtime_ns


def test_the_same_command_again_does_nothing(folder, options, monkeypatch):
    statistics = run(options())
    monkeypatch.setattr(creation, "_make_files", None)
    assert run(options()) == statistics
    # A new time of modification makes no difference if the checksum is the same.
    os.utime(folder / "text-0.txt", (1, 1))
    assert run(options()) == statistics


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_predictions_per_seq": 2}, "max_predictions_per_seq=3, not 2"),
        ({"masking": "whole_word"}, "masking=wordpiece, not whole_word"),
        ({"num_shards": 2}, "output_file="),
        ({"input_file": "{}/text-0.txt"}, "text-1.txt. is gone"),
    ],
)
def test_other_settings_over_old_output_are_an_error(folder, finished, options, change, message):
    change = {
        name: value.replace("{}", str(folder)) if isinstance(value, str) else value
        for name, value in change.items()
    }
    with pytest.raises(ValueError, match=message):
        run(options(**change))
    assert _bytes(folder) == finished
    run(options(**change, overwrite=True))
    with pytest.raises(ValueError, match="overwrite"):
        run(options())
    names = {path.name for path in (folder / "out").iterdir()}
    shards = change.get("num_shards", 3)
    assert names == {"data.manifest.json"} | {
        f"data.tfrecord-{shard:05}-of-{shards:05}" for shard in range(shards)
    }


def test_overwrite_leaves_files_of_other_names_alone(folder, options):
    """Oracle: a file with the name of a shard that was written into another folder."""
    files = f"{folder}/out/a.tfrecord,{folder}/b.tfrecord"
    run(options(output_file=files, num_shards=None))
    (folder / "out/b.tfrecord").write_bytes(b"mine")
    run(options(output_file=f"{folder}/out/a.tfrecord", num_shards=None, overwrite=True))
    assert (folder / "out/b.tfrecord").read_bytes() == b"mine"


def _change_a_byte(path: pathlib.Path) -> None:
    """Changes the last digit of a JSON file, the last byte of any other; the size stays."""
    data = bytearray(path.read_bytes())
    place = max(map(data.rfind, b"12345678")) if path.suffix == ".json" else -1
    data[place] ^= 1
    path.write_bytes(data)


def test_finished_shards_are_compared_by_checksum(folder, finished, options, monkeypatch):
    """Oracle: the bytes of the undisturbed run, of an unfinished job and of a finished one."""
    shard, mine = folder / "out/data.tfrecord-00001-of-00003", folder / "out/mine"
    mine.write_bytes(b"mine")
    _change_a_byte(shard)
    damaged = shard.read_bytes()
    with pytest.raises(ValueError, match=f"{shard}: the checksum differs.*--overwrite"):
        run(options())
    assert shard.read_bytes() == damaged
    run(options(overwrite=True))
    assert _bytes(folder) == finished | {"mine": b"mine"}
    (folder / "out/data.manifest.json").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(creation, "write_manifest", mock.Mock(side_effect=OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            run(options(overwrite=True))
    for path in (shard, folder / "out/data.unfinished/outputs/00002.json"):
        _change_a_byte(path)
    run(options())
    assert _bytes(folder) == finished | {"mine": b"mine"}


@pytest.mark.parametrize(
    "content", [b"{", b'{"shards": []}', INPUTS, b'{"shards": [], "statistics": {"text": 3}}']
)
def test_overwrite_replaces_a_damaged_manifest(folder, finished, options, content):
    (folder / "out" / "data.manifest.json").write_bytes(content)
    with pytest.raises(ValueError, match="data.manifest.json .*--overwrite"):
        run(options())
    run(options(overwrite=True))
    assert _bytes(folder) == finished


def test_text_without_examples_leaves_the_old_files(folder, finished, options):
    (folder / "text-0.txt").write_text("\n")
    (folder / "text-1.txt").write_text("\n")
    with pytest.raises(ValueError, match="no text"):
        run(options(overwrite=True))
    assert _bytes(folder) == finished


def test_a_manifest_of_someone_else_removes_nothing(folder, finished, options):
    """Oracle: the user's files and folders, which it lists as shards."""
    mine = folder / "out" / "mine.tfrecord-00000-of-00001"
    mine.mkdir()
    for path in (folder / "out" / "notes.txt", mine / "notes.txt", folder / "up.tfrecord"):
        path.write_text("mine")
    shutil.copy(folder / "up.tfrecord", old := folder / "out" / "old.tfrecord")
    manifest = folder / "out" / "data.manifest.json"
    values = json.loads(manifest.read_text())
    entry = values["shards"][0] | {"sha256": hashlib.sha256(b"mine").hexdigest()}
    names = ["", ".", "..", "notes.txt", mine.name, f"../{folder.name}", "../up.tfrecord"]
    values["shards"] = [entry | {"file": name} for name in (*names, old.name)]
    manifest.write_text(json.dumps(values | {"settings": {}}))
    before = {path for path in folder.rglob("*") if "data." not in path.name}
    run(options(overwrite=True))
    assert before - {*folder.rglob("*")} == {old}  # it has the name and the content of a shard
    assert manifest.read_bytes() == finished[manifest.name]


def test_a_manifest_that_appears_meanwhile_stays(folder, finished, options, monkeypatch):
    """Oracles: the user's file; the bytes of the undisturbed run once it is elsewhere."""
    shutil.rmtree(folder / "out")
    real, mine = creation.make_shards, folder / "out" / "data.manifest.json"
    with monkeypatch.context() as patch, pytest.raises(FileExistsError, match="manifest.json exis"):
        patch.setattr(creation, "make_shards", lambda *x: real(*x) or mine.write_text("mine"))
        run(options())
    with pytest.raises(FileExistsError, match="data.manifest.json exists"):
        run(options())
    assert mine.read_text() == "mine"
    mine.unlink()
    run(options())
    assert _bytes(folder) == finished


def test_no_input_lies_where_unfinished_work_goes(folder, options):
    """Oracle: the input, beside a description of a job that this program could have written."""
    place = folder / "out" / "data.unfinished"
    place.mkdir(parents=True)
    (place / "job.json").write_text('{"bert_tf": "0.1.0", "settings": {}, "inputs": []}')
    (place / "output.txt").write_text("The cat sat.\n")
    with pytest.raises(ValueError, match="output.txt lies in .*data.unfinished, where unfinished"):
        run(options(input_file=f"{place}/output.txt", overwrite=True))
    assert (place / "output.txt").read_text() == "The cat sat.\n"


def test_any_file_name_works(folder, options):
    """Oracle: the same bytes under another name."""
    for name in ("plain.tfrecord", "data", "da[t]a.tf_record", "with space.tfrecord"):
        run(options(num_shards=None, output_file=f"{folder}/out/{name}"))
    files = _bytes(folder)
    assert files["plain.tfrecord"] == files["data"]
    assert files["da[t]a.tf_record"] == files["with space.tfrecord"] == files["data"]


def test_files_in_several_folders_are_in_one_manifest(folder, options, capsys):
    """Oracle: inspect, which finds every file by its manifest."""
    names = f"{folder}/out/a.tfrecord,{folder}/other/../other/b.tfrecord"
    run(options(num_shards=None, output_file=names))
    files = f"{folder}/out/a.tfrecord,{folder}/other/b.tfrecord"
    inspect.run(inspect.Options(input_file=files))
    assert "matches " + str(folder / "out" / "a.manifest.json") in capsys.readouterr().out


def test_short_documents_count_with_their_padding(folder, options, monkeypatch):
    """Oracle: 40 documents of 4 tokens are as large as 40 rows of 16; a long one has its tokens."""
    (folder / "text-0.txt").write_text("a b\nc d\n\n" * 40)
    (folder / "text-1.txt").write_text("a b c d\n" * 10)
    found = []
    real = creation.plan_shards
    monkeypatch.setattr(creation, "plan_shards", lambda x, *a: found.extend(x) or real(x, *a))
    for file in ("text-0.txt", "text-1.txt"):
        run(options(input_file=f"{folder}/{file}", output_file=f"{folder}/{file}.tfrecord"))
    assert sum(found[:-1]) == 40 * 16 and found[-1] == 40

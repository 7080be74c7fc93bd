"""Tests creating files and resuming. Oracles: an uninterrupted run's bytes, hashlib, all passes."""

import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from unittest import mock

import pytest
import tensorflow as tf

from bert_tf.base import folder_lock
from bert_tf.create_pretraining_data import run
from bert_tf.examples import creation, plan, steps
from tfrecords import inspect

INPUTS = b'{"shards": [], "inputs": ["text.txt"]}'


@pytest.fixture(autouse=True)
def many_chunks_and_parts(monkeypatch):
    monkeypatch.setattr(plan, "_MIN_BLOCK_BYTES", 100)
    monkeypatch.setattr(plan, "_MIN_PARTS", 6)


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
    """Returns the content of every output file."""
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


@pytest.mark.slow
def test_workers_do_not_change_a_byte(folder, finished, options):
    shutil.rmtree(folder / "out")
    run(options(num_workers=2))
    assert _bytes(folder) == finished


@pytest.mark.parametrize(
    ("function", "at"),
    [("tokenize_block", 0), ("tokenize_block", 2), ("make_part", 2), ("join_shard", 2)],
)
def test_a_run_that_failed_resumes(folder, finished, options, monkeypatch, function, at):
    """Oracle: the uninterrupted run. Only the block that failed is tokenized again."""
    run(options(overwrite=True, random_seed=1))
    real, calls = getattr(steps, function), []

    def breaking(*arguments):
        calls.append(repr(arguments[2:]))
        if len(calls) == at + 1:
            raise OSError("No space left on device")
        return real(*arguments)

    monkeypatch.setattr(steps, function, breaking)
    with pytest.raises(OSError, match="No space left"):
        run(options(overwrite=True))
    assert (folder / "out" / "data.unfinished").exists()
    # The old files stay until the new text proves to be good.
    assert (folder / "out" / "data.manifest.json").exists() == (function == "tokenize_block")
    if function != "tokenize_block":
        monkeypatch.setattr(steps, "tokenize_block", pytest.fail)
    run(options())
    assert _bytes(folder) == finished
    if function == "tokenize_block":
        assert len(calls) == len(set(calls)) + 1


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


def test_changed_text_over_old_output_is_an_error(folder, options):
    run(options())
    with open(folder / "text-1.txt", "a") as file:
        file.write("\na b c\n")
    with pytest.raises(ValueError, match=r"input 2 \(.*text-1.txt\) had .* bytes and has"):
        run(options())


def test_files_of_unknown_origin_are_not_replaced(folder, options):
    (folder / "out").mkdir()
    strange = folder / "out" / "data.tfrecord-00001-of-00003"
    strange.write_bytes(b"mine")
    with pytest.raises(ValueError, match="00001-of-00003 was made .*nothing says.*--overwrite"):
        run(options())
    assert _bytes(folder) == {strange.name: b"mine"}
    run(options(overwrite=True))
    assert strange.read_bytes() != b"mine"


def test_two_runs_at_once_are_an_error(folder, options, monkeypatch):
    monkeypatch.setattr(folder_lock, "_PATIENCE", 0)
    path = folder / "out" / "data.unfinished"
    path.mkdir(parents=True)
    with open(path / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="data.unfinished is in use by"):
            run(options())
    run(options())


def test_overwrite_leaves_files_of_other_names_alone(folder, options):
    """Oracle: a file with the name of a shard that was written into another folder."""
    files = f"{folder}/out/a.tfrecord,{folder}/b.tfrecord"
    run(options(output_file=files, num_shards=None))
    (folder / "out/b.tfrecord").write_bytes(b"mine")
    run(options(output_file=f"{folder}/out/a.tfrecord", num_shards=None, overwrite=True))
    assert (folder / "out/b.tfrecord").read_bytes() == b"mine"


@pytest.mark.slow
def test_a_killed_run_resumes(folder, options, monkeypatch):
    """Oracle: the bytes of the uninterrupted run. Kills a real process with SIGKILL."""
    monkeypatch.undo()  # The process to be killed plans with the usual constants.
    run(options())
    expected = _bytes(folder)
    names = ("input_file", "output_file", "num_shards", "vocab_file", "max_seq_length")
    names += ("max_predictions_per_seq", "dupe_factor")
    flags = [f"--{name}={getattr(options(), name)}" for name in names]
    command = [sys.executable, "-m", "bert_tf.create_pretraining_data", "--num_workers=2", *flags]
    shutil.rmtree(folder / "out")
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    chunks = folder / "out" / "data.unfinished" / "chunks"
    while process.poll() is None and not chunks.exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert chunks.exists()
    run(options())
    assert _bytes(folder) == expected


@pytest.mark.parametrize(
    ("damage", "to"),
    [
        *((f, to) for f in ("chunks/*.chunk", "parts/*0.tfrecord") for to in ("", "cut", "flip")),
        *(("chunks/*.json", to) for to in ("", "cut", "{}", "flip")),
    ],
)
def test_damaged_state_is_made_again(folder, finished, options, monkeypatch, damage, to):
    """Oracle: the bytes of the undisturbed run."""
    shutil.rmtree(folder / "out")
    with monkeypatch.context() as patch:
        patch.setattr(steps, "join_shard", None)
        with pytest.raises(TypeError):
            run(options())
    for path in (folder / "out" / "data.unfinished").glob(damage):
        if not to:
            path.unlink()
        elif to == "flip":
            _change_a_byte(path)
        else:
            path.write_bytes(b"{}" if to == "{}" else path.read_bytes()[:20])
    run(options())
    assert _bytes(folder) == finished


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
    for path in (shard, folder / "out/data.unfinished/shards/00002.json"):
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


@pytest.mark.parametrize("name", ["data.tfrecord-00001-of-00003", "data.manifest.json"])
@pytest.mark.parametrize("step", ["tokenize", "make_shards"])
def test_what_appears_meanwhile_stays(folder, finished, options, monkeypatch, name, step):
    """Oracles: the user's file; the bytes of the undisturbed run once it is elsewhere."""
    shutil.rmtree(folder / "out")
    real, mine = getattr(creation, step), folder / "out" / name

    def disturbed(*arguments):
        real(*arguments) if step == "tokenize" or "manifest" in name else None
        mine.write_text("mine")
        real(*arguments)

    with monkeypatch.context() as patch, pytest.raises(FileExistsError, match=f"{name} exists"):
        patch.setattr(creation, step, disturbed)
        run(options())
    with pytest.raises((FileExistsError, ValueError), match=name):
        run(options())
    assert mine.read_text() == "mine"
    mine.unlink()
    run(options())
    assert _bytes(folder) == finished


@pytest.mark.parametrize(
    "name", ["chunks/letters.txt", "chunks/7.chunk", "output.jsonl", "job.json"]
)
def test_a_folder_of_someone_else_is_not_cleared(folder, options, name):
    """Oracle: a file of the user in a folder that has the name of the unfinished work."""
    mine = folder / "out" / "data.unfinished" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("{}")
    for overwrite in (False, True):
        with pytest.raises(ValueError, match="data.unfinished contains .*, but no job.json"):
            run(options(overwrite=overwrite))
    assert mine.read_text() == "{}"


def test_no_input_lies_where_unfinished_work_goes(folder, options):
    """Oracle: the input, beside a description of a job that this program could have written."""
    place = folder / "out" / "data.unfinished"
    place.mkdir(parents=True)
    (place / "job.json").write_text('{"bert_tf": "0.1.0", "settings": {}, "inputs": []}')
    (place / "output.txt").write_text("The cat sat.\n")
    with pytest.raises(ValueError, match="output.txt lies in .*data.unfinished, where unfinished"):
        run(options(input_file=f"{place}/output.txt", overwrite=True))
    assert (place / "output.txt").read_text() == "The cat sat.\n"


def test_the_work_folder_may_go_at_any_time(folder, finished, options, monkeypatch):
    """Oracles: one line; the bytes of the undisturbed run."""
    shutil.rmtree(folder / "out")
    for function in ("tokenize_block", "make_part", "join_shard"):
        real = getattr(steps, function)

        def removing(*arguments, real=real):
            shutil.rmtree(folder / "out" / "data.unfinished")
            return real(*arguments)

        with monkeypatch.context() as patch, pytest.raises(OSError, match="data.unfinished"):
            patch.setattr(steps, function, removing)
            run(options())
        shutil.rmtree(folder / "out" / "data.unfinished", ignore_errors=True)
    run(options())
    assert _bytes(folder) == finished


def test_any_file_name_works(folder, options):
    """Oracle: the same bytes under another name."""
    for name in ("plain.tfrecord", "data", "da[t]a.tf_record", "with space.tfrecord"):
        run(options(num_shards=None, output_file=f"{folder}/out/{name}"))
    files = _bytes(folder)
    assert files["plain.tfrecord"] == files["data"]
    assert files["da[t]a.tf_record"] == files["with space.tfrecord"] == files["data"]


def test_other_files_in_the_work_folder_are_left_alone(folder, options):
    """Oracle: a file of the user in the folder that the command needs; a link to another disk."""
    mine = folder / "out" / "data.unfinished"
    mine.mkdir(parents=True)
    (mine / "novel.txt").write_text("Chapter 1")
    (folder / "disk").mkdir()
    (mine / "chunks").symlink_to(folder / "disk")
    (mine / "job.json").write_text('{"bert_tf": "an earlier one"}')
    run(options(overwrite=True))
    assert (mine / "novel.txt").read_text() == "Chapter 1"


def test_files_in_several_folders_are_in_one_manifest(folder, options, capsys):
    """Oracle: inspect, which finds every file by its manifest."""
    names = f"{folder}/out/a.tfrecord,{folder}/other/../other/b.tfrecord"
    run(options(num_shards=None, output_file=names))
    files = f"{folder}/out/a.tfrecord,{folder}/other/b.tfrecord"
    inspect.run(inspect.Options(input_file=files))
    assert "matches " + str(folder / "out" / "a.manifest.json") in capsys.readouterr().out


def test_finished_steps_outlive_a_user_error(folder, finished, options, monkeypatch):
    """Oracle: the bytes of the undisturbed run. No chunk is made again."""
    shutil.rmtree(folder / "out")
    for error in (OSError("No space left"), ValueError("no such segmenter")):
        with monkeypatch.context() as patch:
            patch.setattr(steps, "make_part", mock.Mock(side_effect=error))
            with pytest.raises(type(error), match=str(error)):
                run(options())
    monkeypatch.setattr(steps, "tokenize_block", pytest.fail)
    run(options())
    assert _bytes(folder) == finished


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


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_beam_makes_the_same_bytes(options, folder):
    pytest.importorskip("apache_beam")
    run(options(output_file=f"{folder}/local/data.tfrecord"))
    run(
        options(output_file=f"{folder}/beam/data.tfrecord", runner="DirectRunner", num_workers=None)
    )
    assert len(_bytes(folder, "local")) == 4
    assert _bytes(folder, "local") == _bytes(folder, "beam")
    (folder / "text-1.txt").write_text("{not JSON\n")
    (folder / "text-1.txt").rename(folder / "bad.jsonl")
    with pytest.raises(ValueError, match="bad.jsonl") as error:
        run(options(input_file=f"{folder}/bad.jsonl", runner="DirectRunner", num_workers=None))
    assert "Traceback" not in str(error.value)


def test_a_missing_beam_is_an_error_that_says_what_to_install(options, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(ValueError, match=r"pip install apache-beam"):
        run(options(runner="DirectRunner", num_workers=None))

"""Writing, and locked folders. Oracles: the records read back, the contents of the folder.

Locks belong to open files, so threads can stand in for processes.
"""

import errno
import fcntl
import os
import pathlib
import shutil
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import tensorflow as tf
from support import one_line

from bert_tf.base import output_files
from bert_tf.base.output_files import (
    atomic_write,
    check_new_folder,
    check_output_files,
    join_files,
    locked,
    whole_file,
    whole_folder,
)
from tfrecords.features import write_records

RECORDS = [b"a", b"b", b"c", b"d", b"e"]


def _read(path, compression="") -> list[bytes]:
    return list(tf.data.TFRecordDataset(str(path), compression).as_numpy_iterator())


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_records_are_written_and_concatenated(tmp_path, compression):
    paths = [tmp_path / "made" / "0", tmp_path / "made" / "1"]
    for index, path in enumerate(paths):
        write_records(str(path), RECORDS[index::2], compression)
    assert _read(paths[0], compression) == [b"a", b"c", b"e"]
    assert (paths[0].read_bytes()[:2] == b"\x1f\x8b") == (compression == "GZIP")
    whole = tmp_path / "whole"
    join_files([str(path) for path in paths], str(whole))
    assert _read(whole, compression) == [b"a", b"c", b"e", b"b", b"d"]
    assert sorted(paths[0].parent.iterdir()) == paths
    assert sorted(tmp_path.iterdir()) == [tmp_path / "made", whole]


def test_a_failure_leaves_only_the_old_file(tmp_path):
    path = tmp_path / "records"
    path.write_bytes(b"old")

    def broken():
        yield b"new"
        raise KeyError

    with pytest.raises(KeyError):
        write_records(str(path), broken())
    with pytest.raises(OSError, match="cannot write .*records: .*missing"):
        join_files([str(tmp_path / "missing")], str(path))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_unwritable_path_is_an_os_error_and_leaves_nothing(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match="cannot write .*file/records"):
        write_records(str(tmp_path / "file" / "records"), RECORDS)
    with pytest.raises(OSError, match="cannot write .*file/small"):
        atomic_write(str(tmp_path / "file" / "small"), "text")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_folders_that_cannot_be_replaced(tmp_path, monkeypatch):
    """Oracles: the folder that a link points to; the message for the current folder."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    with whole_folder(str(tmp_path / "link")) as folder:
        atomic_write(f"{folder}/file", "text")
    assert (tmp_path / "empty" / "file").read_text() == "text"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ValueError, match="^. cannot be replaced: name a new folder in it"):
        check_new_folder(".")


def test_what_killed_processes_left_goes(tmp_path):
    """Oracles: the names that stay: of living processes, of other hosts, and a user's own."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    mine = output_files.temporary_name(f"{tmp_path}/new")
    assert mine != output_files.temporary_name(f"{tmp_path}/new")
    left = mine.replace(f"-{os.getpid()}-", f"-{dead.pid}-")
    kept = [mine, left.replace(".tmp-", ".tmp-0"), f"{tmp_path}/new.tmp-1", f"{left}.txt"]
    for path in (*kept, left, f"{left[:-8]}01234567/old"):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        pathlib.Path(path).touch()
    output_files._remove_left.cache_clear()
    with whole_folder(f"{tmp_path}/new") as folder:
        atomic_write(f"{folder}/file", "text")
    assert sorted(map(str, tmp_path.iterdir())) == sorted([*kept, f"{tmp_path}/new"])
    assert os.listdir(f"{tmp_path}/new") == ["file"]


@pytest.mark.parametrize("changed", ["_BOOT", "_PID_SPACE"])
def test_what_other_machines_and_containers_write_stays(tmp_path, monkeypatch, changed):
    """Oracle: the file of a process that exists there, with a number that is free here."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    name = output_files.temporary_name(f"{tmp_path}/new")
    theirs = tmp_path / name.replace(f"-{os.getpid()}-", f"-{dead.pid}-")
    theirs.touch()
    (tmp_path / "id").write_text("d7d14841-c465-4d6e-ac6d-78c52048cc74")
    for is_there in (True, False):
        if is_there:
            monkeypatch.setattr(output_files, changed, f"{tmp_path}/id")
        output_files._host.cache_clear()
        output_files._remove_left.cache_clear()
        atomic_write(f"{tmp_path}/new", "text")
        assert theirs.exists() == is_there
        monkeypatch.undo()


def test_what_appears_meanwhile_stays(tmp_path):
    """Oracle: what a user put there: a file, a folder that holds one, a link to nowhere."""
    file, folder, link = (tmp_path / name for name in ("file", "folder", "link"))
    for write in (lambda path: whole_file(path, overwrite=False), whole_folder):
        for path in (file, folder) if write is whole_folder else (file, folder, link):
            with pytest.raises((OSError, ValueError), match="exists|is a file"), write(str(path)):
                if path == folder:
                    folder.mkdir()
                    (folder / "diary").write_text("mine")
                elif path == link:
                    link.symlink_to("nowhere")
                else:
                    file.write_text("mine")
        assert file.read_text() == (folder / "diary").read_text() == "mine"
        assert link.is_symlink() == (write is not whole_folder)
        assert len([*tmp_path.iterdir()]) == 2 + link.is_symlink()
        for path in (file, folder / "diary", link):
            path.unlink(missing_ok=True)
        folder.rmdir()


def test_no_output_is_an_input(tmp_path):
    """Oracle: other names of a file: relative, with a scheme, links; and those of new files."""
    (tmp_path / "in").write_text("mine")
    (tmp_path / "link").symlink_to("in")
    os.link(tmp_path / "in", tmp_path / "hard")
    names = ["in", "link", "hard", "../" + tmp_path.name + "/in"]
    for name in (*(f"{tmp_path}/{x}" for x in names), f"file://{tmp_path}/in"):
        with pytest.raises(ValueError, match="--plot: .* is an input file too"):
            check_output_files([name], [f"{tmp_path}/in", None], flag="plot")
    with pytest.raises(ValueError, match="is named twice"):
        check_output_files([f"{tmp_path}/new", f"{tmp_path}/./new"], [])


@pytest.mark.parametrize(
    "path", ["hf:datasets/me/data/a", "hf:me/model", "keras:a", "tfhub:me/a", "hf://datasets/me/a"]
)
@pytest.mark.parametrize(
    "write",
    [
        lambda path: atomic_write(path, "text"),
        lambda path: check_output_files([path], []),
        check_new_folder,
        lambda path: locked(path).__enter__(),
        lambda path: whole_folder(path).__enter__(),
    ],
)
def test_places_that_can_only_be_read(tmp_path, monkeypatch, write, path):
    """Oracle: the names of downloads in `storage` and `checkpoint`; the folder stays empty."""
    monkeypatch.chdir(tmp_path)
    with one_line(f"^{path} can only be read: name an output on a disk"):
        write(path)
    assert os.listdir() == []


def test_atomic_write(tmp_path):
    path = tmp_path / "new" / "small.txt"
    for data in ("grüße", b"\x00\xff"):
        atomic_write(str(path), data)
        assert path.read_bytes() == (data if isinstance(data, bytes) else data.encode())
    assert list(path.parent.iterdir()) == [path]


def test_the_second_is_refused_and_told_who_is_first(tmp_path, monkeypatch):
    """Oracle: this process and machine; the folder is gone when nothing was left in it."""
    monkeypatch.setattr(output_files, "_PATIENCE", 0.0)
    folder = tmp_path / "new" / "run"
    with locked(str(folder)):
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        for _ in range(2):
            with pytest.raises(OSError, match=f"run is in use by {holder}: wait until"):
                with locked(str(folder)):
                    pass
        assert (folder / "lock").read_text() == holder
    assert not folder.exists()


def test_a_folder_that_was_removed_is_an_error(tmp_path):
    """Oracles: one line; an error of the block itself stays, and what came in its place, too."""
    folder = tmp_path / "run"
    for failure, message in ((None, "run was removed while"), (ValueError("mine"), "^mine$")):
        with one_line(message), locked(str(folder)):
            shutil.rmtree(folder)
            folder.mkdir()
            (folder / "lock").write_text("another's")
            if failure:
                raise failure
        assert (folder / "lock").read_text() == "another's"
        shutil.rmtree(folder)


def test_what_a_kill_leaves_behind_is_no_lock(tmp_path):
    """Oracle: the files of the folder."""
    (tmp_path / "lock").write_text("process 1 on a machine that is no more, with a long name")
    with pytest.raises(ZeroDivisionError), locked(str(tmp_path)):
        assert (tmp_path / "lock").read_text().startswith(f"process {os.getpid()} on ")
        (tmp_path / "mine").touch()
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == ["mine"]


def test_a_file_of_this_name_stays(tmp_path):
    """Oracle: its content."""
    for content in (b"mine", b"\xff", b"process 1 on a\nmachine"):
        (tmp_path / "lock").write_bytes(content)
        with pytest.raises(ValueError, match="lock is a file of another program"):
            with locked(str(tmp_path)):
                pass
        assert (tmp_path / "lock").read_bytes() == content


def test_a_process_that_is_just_ending_is_waited_for(tmp_path, monkeypatch):
    """Oracle: the lock of an open file, which the kernel closes a moment after a kill."""
    monkeypatch.setattr(output_files, "_PATIENCE", 60.0)
    ending = open(tmp_path / "lock", "w")  # noqa: SIM115
    fcntl.flock(ending, fcntl.LOCK_EX)
    threading.Timer(0.1, ending.close).start()
    with locked(str(tmp_path)):
        assert ending.closed


def test_at_most_one_of_many_is_inside(tmp_path, monkeypatch):
    """Oracle: a list of those inside, while holders come and go and the folder with them."""
    monkeypatch.setattr(output_files, "_PATIENCE", 0.0)
    folder, inside, counts = str(tmp_path / "run"), [], []

    def enter(number: int) -> bool:
        try:
            with locked(folder):
                inside.append(number)
                counts.append(len(inside))
                os.listdir(folder)  # lets others run
                inside.remove(number)
        except OSError as error:
            assert "is in use by" in str(error)
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        entered = sum(pool.map(enter, range(800)))
    assert entered and counts == [1] * entered


def test_a_file_system_without_locks_is_said_to_have_none(tmp_path, monkeypatch, capsys):
    """Oracle: the error that the manual of flock gives for it; any other stays an error."""

    def refuse(number):
        def flock(*_):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(fcntl, "flock", flock)

    refuse(errno.ENOLCK)
    with locked(str(tmp_path)):
        pass
    printed = capsys.readouterr().out
    assert f"WARNING: the file system of {tmp_path} has no locks (No locks available)" in printed
    refuse(errno.EIO)
    with pytest.raises(OSError, match="Input/output error"), locked(str(tmp_path)):
        pass

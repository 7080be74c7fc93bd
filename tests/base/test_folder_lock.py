"""One process at a time in a folder. Locks belong to open files, so threads can stand in."""

import errno
import fcntl
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from bert_tf.base import folder_lock
from bert_tf.base.folder_lock import locked


def test_the_second_is_refused_and_told_who_is_first(tmp_path, monkeypatch):
    """Oracle: this process and machine; the folder is gone when nothing was left in it."""
    monkeypatch.setattr(folder_lock, "_PATIENCE", 0.0)
    folder = tmp_path / "new" / "run"
    with locked(str(folder)):
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        for _ in range(2):
            with pytest.raises(OSError, match=f"run is in use by {holder}: wait until"):
                with locked(str(folder)):
                    pass
        assert (folder / "lock").read_text() == holder
    assert not folder.exists()


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
    monkeypatch.setattr(folder_lock, "_PATIENCE", 60.0)
    ending = open(tmp_path / "lock", "w")  # noqa: SIM115
    fcntl.flock(ending, fcntl.LOCK_EX)
    threading.Timer(0.1, ending.close).start()
    with locked(str(tmp_path)):
        assert ending.closed


def test_at_most_one_of_many_is_inside(tmp_path, monkeypatch):
    """Oracle: a list of those inside, while holders come and go and the folder with them."""
    monkeypatch.setattr(folder_lock, "_PATIENCE", 0.0)
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

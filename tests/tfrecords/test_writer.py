"""Writing. Oracles: the records read back with TensorFlow, and the contents of the folder."""

import os

import pytest
import tensorflow as tf

from tfrecords.writer import atomic_write, check_new_folder, join_files, whole_folder, write_records

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


def test_a_folder_holds_nothing_of_a_killed_process(tmp_path):
    """Oracle: the file of this process alone; in a container, its number is often the same."""
    left = tmp_path / f"new.tmp-{os.getpid()}"
    left.mkdir()
    (left / "old").touch()
    with whole_folder(str(tmp_path / "new")) as folder:
        atomic_write(f"{folder}/file", "text")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]
    assert not left.exists()


def test_atomic_write(tmp_path):
    path = tmp_path / "new" / "small.txt"
    for data in ("grüße", b"\x00\xff"):
        atomic_write(str(path), data)
        assert path.read_bytes() == (data if isinstance(data, bytes) else data.encode())
    assert list(path.parent.iterdir()) == [path]

"""Archives: as published, and those that are unsafe, endless or damaged."""

import errno
import io
import os
import tarfile
import tempfile
import zipfile

import pytest

from bert_tf.weights import opening as checkpoint


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files, empty at the start."""
    path = tmp_path / "tmp"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


FILES = {"bert_config.json": b"{}", "bert_model.ckpt.index": b"weights" * 9}


def make(path, files: dict[str, bytes]) -> str:
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                archive.writestr(name, data)
    else:
        with tarfile.open(path, "w:gz") as archive:
            for name, data in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return str(path)


@pytest.mark.parametrize("ending", [".zip", ".tar.gz", ".tgz"])
@pytest.mark.parametrize("folder", ["", "wwm_uncased_L-24/", "./"])
def test_archives_as_published(tmp_path, ending, folder):
    """Oracle: Google's miniatures have their files at the top, its large models in a folder."""
    files = {folder + name: data for name, data in FILES.items()} | {"__MACOSX/._x": b""}
    path = make(tmp_path / f"uncased_L-2{ending}", files)
    assert checkpoint.is_archive(path)
    found = checkpoint.extract(path)
    assert os.path.basename(found) == (folder.strip("./") or "uncased_L-2")
    for name, data in FILES.items():
        with open(os.path.join(found, name), "rb") as file:
            assert file.read() == data


def test_what_is_no_archive(tmp_path):
    (tmp_path / "folder.zip").mkdir()
    (tmp_path / "bert_model.ckpt").touch()
    for name in ("folder.zip", "absent.zip", "bert_model.ckpt"):
        assert not checkpoint.is_archive(str(tmp_path / name))


def problem(path: str, temporary) -> str:
    """Returns the one line about an archive that cannot be extracted and leaves nothing behind."""
    with pytest.raises((ValueError, OSError)) as caught:
        checkpoint.extract(path)
    assert not os.listdir(temporary) and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("ending", [".zip", ".tgz"])
@pytest.mark.parametrize("name", ["../outside", "folder/../../outside", "/outside"])
def test_a_path_that_climbs_out_is_refused(tmp_path, temporary, ending, name):
    path = make(tmp_path / f"a{ending}", FILES | {name: b""})
    message = f"{path} is unsafe: {name!r} is not a file inside its folder"
    assert problem(path, temporary) == message
    assert not (tmp_path / "outside").exists()


def test_links_and_devices_are_refused(tmp_path, temporary):
    """Oracle: made with the flags of such members."""
    path, message = tmp_path / "a.tgz", "is unsafe: 'bad' is not a file inside its folder"
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.GNUTYPE_SPARSE):
        with tarfile.open(path, "w:gz", format=tarfile.GNU_FORMAT) as archive:
            member = tarfile.TarInfo("bad")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
        assert problem(str(path), temporary) == f"{path} {message}"
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        member = zipfile.ZipInfo("bad")
        member.external_attr = 0o120777 << 16
        archive.writestr(member, "/etc/passwd")
    assert problem(str(path), temporary) == f"{path} {message}"


@pytest.mark.parametrize("ending", [".zip", ".tgz"])
def test_a_full_disk_is_named(tmp_path, temporary, ending, monkeypatch):
    """Oracle: the line that says what to do, and nothing is left."""
    path = make(tmp_path / f"a{ending}", {"bert_model.ckpt.data": bytes(10**6)})

    def write(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", write)
    monkeypatch.setattr("tarfile.copyfileobj", write)
    assert problem(path, temporary).endswith("on device): set TMPDIR to a folder with more room")


@pytest.mark.parametrize("ending", [".zip", ".tar.gz"])
def test_a_damaged_archive_is_named(tmp_path, temporary, ending):
    """Oracle: cut short, changed, and not an archive at all."""
    path = make(tmp_path / f"a{ending}", {"bert_model.ckpt.data": os.urandom(5000)})
    with open(path, "rb") as file:
        data = file.read()
    middle = len(data) // 2
    changed = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    for damaged in (data[:middle], data[:-9], changed, b"<html>", b""):
        with open(path, "wb") as file:
            file.write(damaged)
        message = problem(path, temporary)
        assert message.startswith(f"cannot extract {path} (")
        assert message.endswith("): download or copy it again")

"""Archives of checkpoints, extracted to temporary folders."""

import atexit
import gzip
import io
import lzma
import os
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib

import tensorflow as tf

_ENDINGS = (".zip", ".tar.gz", ".tgz")
# What Python's libraries raise for damaged files; a RuntimeError for encrypted ones.
_DAMAGE = (
    *(OSError, EOFError, RuntimeError, UnicodeError, OverflowError, struct.error),
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError),
)
# Trained weights hardly shrink. Test data does, so small archives may grow more than that.
_MAX_GROWTH = 100
_ALWAYS_ALLOWED = 2**26
_MAX_FILES = 10_000
# Python 3.11.0 to 3.11.3 have no filters.
_FILTER = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def is_archive(path: str) -> bool:
    """Returns whether a path is a file whose name is that of an archive."""
    return path.endswith(_ENDINGS) and tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path)


def extract(path: str) -> str:
    """Extracts an archive to a temporary folder, which is removed when the process ends.

    Returns:
        the folder with the files, which has the name of the archive, or of the only folder in it.
    """
    temporary = tempfile.mkdtemp(prefix="bert_tf-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    ending = next(ending for ending in _ENDINGS if path.endswith(ending))
    # Without leading dots, as ".." would be another folder.
    name = os.path.basename(path).removesuffix(ending).lstrip(".")
    folder = os.path.join(temporary, name or "archive")
    os.mkdir(folder)
    try:
        local = path
        if "://" in path:
            # TensorFlow's files lack some of what Python's libraries need.
            tf.io.gfile.copy(path, local := f"{folder}{ending}")
        with open(local, "rb") as file:
            unpack = _unzip if ending == ".zip" else _untar
            unpack(file, folder, _Room(path, os.path.getsize(local), folder))
    except BaseException as error:
        shutil.rmtree(temporary)
        if isinstance(error, tf.errors.OpError):
            raise OSError(f"cannot read {path}: {error.message}") from error
        if isinstance(error, _DAMAGE):
            reason = str(error) or "it is incomplete"
            raise OSError(f"cannot extract {path} ({reason}): download or copy it again") from error
        raise
    names = [name for name in os.listdir(folder) if not name.startswith((".", "__MACOSX"))]
    inner = os.path.join(folder, *names[:1])
    return inner if len(names) == 1 and os.path.isdir(inner) else folder


class _Room:
    """How much more an archive of a size in bytes may expand to in a folder."""

    def __init__(self, path: str, size: int, folder: str):
        free = shutil.disk_usage(folder).free
        self._path, self._files = path, _MAX_FILES
        self._limit = self._bytes = min(max(_MAX_GROWTH * size, _ALWAYS_ALLOWED), free)

    def take(self, size: int) -> None:
        """Subtracts bytes; raises a ValueError if they are too many."""
        self._bytes -= size
        if self._bytes < 0:
            raise ValueError(
                f"{self._path} expands to more than {self._limit:,} bytes, the limit of its size "
                "and of the disk: if the disk is full, set TMPDIR to a folder with more room"
            )

    def take_file(self, name: str, regular: bool) -> None:
        """Subtracts a file; raises a ValueError if it is unsafe or one too many."""
        if not regular or not name or name.startswith("/") or ".." in name.split("/"):
            raise ValueError(f"{self._path} is unsafe: {name!r} is no regular file in its folder")
        self._files -= 1
        if self._files < 0:
            raise ValueError(f"{self._path} holds more than {_MAX_FILES:,} files")


def _unzip(file: io.IOBase, folder: str, room: _Room) -> None:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            room.take_file(member.filename, kind in (0, stat.S_IFREG, stat.S_IFDIR))
            # Never more than this is extracted.
            room.take(member.file_size)
        archive.extractall(folder)


class _Limited(gzip.GzipFile):
    """A stream that counts the bytes that are read: names of files can be large, too."""

    room: _Room

    def read(self, size: int) -> bytes:
        data = super().read(size)
        self.room.take(len(data))
        return data


def _untar(file: io.IOBase, folder: str, room: _Room) -> None:
    stream = _Limited(fileobj=file)
    stream.room = room
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            regular = member.isreg() and not member.issparse()
            room.take_file(member.name, regular or member.isdir())
            archive.extract(member, folder, set_attrs=False, **_FILTER)
    # The checksum is at the end.
    while stream.read(2**20):
        pass

"""Writes files and folders atomically: they appear complete or not at all.

Until then, they are called NAME.tmp-HOST-PROCESS-RANDOM. If a process is killed, the next one on
the same machine that writes to the folder removes such files, unless the machine was restarted. A
folder can be locked meanwhile.
"""

import contextlib
import errno
import fcntl
import functools
import hashlib
import json
import os
import pathlib
import re
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

import tensorflow as tf

from bert_tf.base.files import absolute_path, named_errors
from bert_tf.base.storage import storage

# What to do about a file that a command finds where it would write.
REPLACE = "name another file, or replace it with --overwrite"

# What numbers processes: a machine since its start, and in it a container. Both may share the name
# of the host with others.
_BOOT, _PID_SPACE = "/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"
# What names a download. A file of such a name would not be found again.
_DOWNLOAD = re.compile("(hf|keras|tfhub):")
TEMPORARY = r"\.tmp-[0-9a-f]{8}-\d+-[0-9a-f]{8}"
LOCK = "lock"
# Seconds. A killed process holds its locks until the system has freed its memory.
_PATIENCE = 3.0
# The errors of file systems without locks.
_UNSUPPORTED = frozenset((errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL))


def temporary_name(path: str) -> str:
    """Returns a new name for a file or folder, to use until it is complete."""
    check_can_write(path)
    if "://" not in path:
        _remove_left(os.path.dirname(path) or ".")
    return f"{path}.tmp-{_host()}-{os.getpid()}-{secrets.token_hex(4)}"


@functools.cache
def _host() -> str:
    """Returns eight digits, the same for all processes that have different numbers."""
    try:
        numbered_by = f"{pathlib.Path(_BOOT).read_text()} {os.stat(_PID_SPACE).st_ino}"
    except OSError:  # not Linux
        numbered_by = socket.gethostname()
    return hashlib.sha256(numbered_by.encode()).hexdigest()[:8]


@functools.cache
def _remove_left(folder: str) -> None:
    """Removes what killed processes of this machine left in a folder; looks only once."""
    name_of_ours = re.compile(rf"\.tmp-{_host()}-(\d+)-[0-9a-f]{{8}}$")
    with contextlib.suppress(OSError, tf.errors.OpError):  # no folder, or others were faster
        for name in os.listdir(folder):
            if (ours := name_of_ours.search(name)) and not _is_alive(int(ours[1])):
                path = f"{folder}/{name}"
                (remove_folder if os.path.isdir(path) else remove)(path)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return True


@contextlib.contextmanager
def whole_file(path: str, overwrite: bool = True) -> Iterator[str]:
    """Yields the name of a temporary file that becomes `path` when the block succeeds.

    If the block raises, the temporary file is removed and `path` stays as it was. The folder is
    created if necessary. Without `overwrite`, it is an error if `path` exists by then.
    """
    # In the same folder, because a rename is atomic only within a file system.
    temporary = temporary_name(path)
    try:
        with named_errors(f"cannot write {path}"):
            if folder := os.path.dirname(path):
                tf.io.gfile.makedirs(folder)
            yield temporary
            publish(temporary, path, overwrite)
    finally:
        remove(temporary)


def publish(temporary: str, path: str, overwrite: bool = True) -> None:
    """Gives a complete file its name; without `overwrite`, it is an error if `path` exists."""
    if not overwrite:
        check_free(path)
    with named_errors(f"cannot write {path}"):
        tf.io.gfile.rename(temporary, path, overwrite=True)


def check_can_write(path: str) -> None:
    """Raises a ValueError for a place that can only be read, such as the Hugging Face Hub."""
    if _DOWNLOAD.match(path) or storage(path) is not tf.io.gfile:
        raise ValueError(
            f"{path} can only be read: name an output on a disk, or in a cloud that TensorFlow can "
            "write to"
        )


def check_free(*paths: str, advice: str = REPLACE) -> None:
    """Raises a FileExistsError that ends with `advice` if one of the paths exists."""
    for path in paths:
        if tf.io.gfile.exists(path) or os.path.islink(path):
            raise FileExistsError(f"{path} exists: {advice}")


def make_folder(path: str) -> None:
    """Creates a folder and its parents if they do not exist."""
    with named_errors(f"cannot create the folder {path}"):
        tf.io.gfile.makedirs(path)


def check_new_folder(path: str) -> None:
    """Raises a ValueError unless `path` is new or an empty folder."""
    check_can_write(path)
    if not tf.io.gfile.exists(path):
        return
    if not tf.io.gfile.isdir(path):
        raise ValueError(f"{path} is a file: name a new folder")
    if tf.io.gfile.listdir(path):
        raise ValueError(f"{path} exists and is not empty: remove it or name another folder")
    if os.path.ismount(path) or os.path.abspath(path) == os.getcwd():
        raise ValueError(f"{path} cannot be replaced: name a new folder in it")


@contextlib.contextmanager
def whole_folder(path: str) -> Iterator[str]:
    """Yields a temporary folder that becomes `path` when the block succeeds.

    If the block raises, or if `path` holds files by then, the temporary folder is removed.
    Creates parent folders.
    """
    check_new_folder(path)
    path = absolute_path(path).rstrip("/")
    temporary = temporary_name(path)
    try:
        with named_errors(f"cannot write {path}"):
            tf.io.gfile.makedirs(temporary)
            yield temporary
            check_new_folder(path)
            if "://" in path:
                remove_folder(path)  # an empty one, which a rename replaces only on disk
            tf.io.gfile.rename(temporary, path, overwrite=True)
    finally:
        remove_folder(temporary)


def remove_folder(path: str) -> None:
    """Removes a folder and everything in it, if it exists."""
    if tf.io.gfile.isdir(path):
        tf.io.gfile.rmtree(path)


def remove(*paths: str) -> None:
    """Removes the files that exist; ignores the others."""
    for path in paths:
        if tf.io.gfile.exists(path):
            tf.io.gfile.remove(path)


def atomic_write(path: str, data: bytes | str, overwrite: bool = True) -> None:
    """Writes `data` to `path` atomically; see `whole_file`."""
    mode = "wb" if isinstance(data, bytes) else "w"
    with whole_file(path, overwrite) as temporary, tf.io.gfile.GFile(temporary, mode) as file:
        file.write(data)


def write_json(path: str, values: Any, indent: int = 2, **arguments: Any) -> None:
    """Writes `values` as JSON, atomically; `arguments` are others of `json.dumps`."""
    atomic_write(path, json.dumps(values, indent=indent, **arguments) + "\n")


def join_files(parts: Sequence[str], path: str) -> None:
    """Concatenates files into `path` atomically: TFRecord files, even compressed, stay valid."""
    with whole_file(path) as temporary, tf.io.gfile.GFile(temporary, "wb") as target:
        for part in parts:
            with tf.io.gfile.GFile(part, "rb") as source:
                while block := source.read(2**20):
                    target.write(block)


def check_output_files(
    files: Sequence[str],
    inputs: Sequence[str | None],
    overwrite: bool = True,
    flag: str = "output_file",
    work_folder: str | None = None,
) -> None:
    """Checks that output files replace neither inputs nor each other.

    Without `overwrite`, they must be new. Errors name the `flag`. Inputs that are None are ignored.
    None may lie in the `work_folder`, whose files are removed.
    """
    if not files:
        raise ValueError(f"--{flag} names no file: give it a name")
    used = {_identity(file): "is an input file too" for file in inputs if file}
    for file in files:
        check_can_write(file)
        if problem := used.get(_identity(file)):
            raise ValueError(f"--{flag}: {file} {problem}: choose another name")
        used[_identity(file)] = "is named twice"
        if file.endswith("/") or tf.io.gfile.isdir(file):
            raise ValueError(f"--{flag}: {file} is a directory: name a file in it")
    for file in filter(None, inputs if work_folder else ()):
        if absolute_path(file).startswith(f"{absolute_path(work_folder)}/"):
            raise ValueError(
                f"{file} lies in {work_folder}, where unfinished work goes: move it, or choose "
                f"another --{flag}"
            )
    if not overwrite:
        check_free(*files)


def _identity(path: str) -> object:
    """Returns a value that all names of a file share, hard links included."""
    path = absolute_path(path)
    if not os.path.exists(path):
        return path
    stat = os.stat(path)
    return stat.st_dev, stat.st_ino


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Locks a folder for the block, and creates it if it does not exist.

    The lock is a file in the folder, which names the process that holds it. It also keeps out other
    machines on network file systems with locks, such as NFS, and ends with the process. On `gs://`,
    nothing is locked. At the end, the file is removed, and so is the folder if it is empty.

    Raises:
        OSError: another process holds the lock, or the folder was removed by the end of the block.
    """
    check_can_write(folder)
    if "://" in folder:
        yield
        return
    with _acquire(folder) as file:
        try:
            yield
            if not _is_at(file, file.name):
                raise OSError(f"{folder} was removed while files were written to it")
        finally:
            # If the folder was removed in the meantime, the file may be another process's.
            if _is_at(file, file.name):
                os.remove(file.name)
            # On NFS, a removed file stays in its folder until it is closed.
            file.close()
            with contextlib.suppress(OSError):  # not empty
                os.rmdir(folder)


def _acquire(folder: str) -> TextIO:
    """Returns the lock file, which is locked until it is closed."""
    path = os.path.join(folder, LOCK)
    while True:
        try:
            make_folder(folder)
        except OSError:
            # A process that removes it in the same moment is no reason to fail; others remain.
            make_folder(folder)
        # The process that held the lock may remove the file, or the folder, at any moment.
        with contextlib.suppress(FileNotFoundError):
            file = open(path, "a+", encoding="utf-8", errors="replace")  # noqa: SIM115
            _lock(file, folder)
            if _is_at(file, path):
                break
            file.close()
    file.seek(0)
    if not re.fullmatch(r"(process \d+ on .*)?", file.read()):
        file.close()
        raise ValueError(f"{path} is a file of another program: move it or choose another folder")
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}")
    file.flush()
    os.fsync(file.fileno())
    return file


def _lock(file: TextIO, folder: str) -> None:
    """Locks a file; gives a process that was just killed time to end."""
    give_up = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > give_up:
                with file:
                    file.seek(0)
                    holder = file.read() or "another process"
                raise OSError(
                    f"{folder} is in use by {holder}: wait until it ends, or stop it, or choose "
                    "another folder"
                ) from None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                file.close()
                raise
            print(
                f"WARNING: the file system of {folder} has no locks ({error.strerror}): make sure "
                "that no other process writes to it."
            )
            return
        time.sleep(0.05)


def _is_at(file: TextIO, path: str) -> bool:
    """Returns whether an open file is still the one with this path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False

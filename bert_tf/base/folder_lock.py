"""Keeps a second process out of a folder while the first one works in it."""

import contextlib
import errno
import fcntl
import os
import re
import socket
import time
from collections.abc import Iterator
from typing import TextIO

from bert_tf.base.output_files import make_folder

LOCK = "lock"
# Seconds. A killed process holds its locks until the system has freed its memory.
_PATIENCE = 3.0
# The errors of file systems without locks.
_UNSUPPORTED = frozenset((errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL))


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Locks a folder for the block, and creates it if it does not exist.

    The lock is a file named `lock` in the folder, which names the process that holds it. The
    operating system releases it when the process ends, for whatever reason. On network file systems
    with locks, such as NFS, it also keeps out processes on other machines. On `gs://`, nothing is
    locked. At the end, the file is removed, and so is the folder if it is empty.
    """
    if "://" in folder:
        yield
        return
    with _acquire(folder) as file:
        try:
            yield
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

"""Finds and reads files through TensorFlow, with errors of one line that name the file."""

import contextlib
import dataclasses
import difflib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import tensorflow as tf

from bert_tf.base.storage import full_name, storage

# How the small file begins that Git has in place of a large one.
LFS_POINTER = b"version https://git-lfs."
# What describes other files, and what no glob matches.
MANIFEST_END = ".manifest.json"


def plain_message(error: tf.errors.OpError) -> str:
    """Returns TensorFlow's message without the names of graph nodes."""
    return re.sub(r"^\{\{.*?\}\} | \[Op:.*$", "", error.message)


@contextlib.contextmanager
def named_errors(what: str) -> Iterator[None]:
    """Turns errors of TensorFlow in the block into an OSError; `what` says what fails."""
    try:
        yield
    except tf.errors.OpError as error:
        raise OSError(f"{what}: {plain_message(error)}") from error


@contextlib.contextmanager
def whole(
    path: str, *errors: type[Exception], advice: str = ": download or copy it again"
) -> Iterator[None]:
    """Turns errors in the block that a library raises for damaged files into an OSError."""
    try:
        yield
    except errors as error:
        raise OSError(f"{path} is damaged or incomplete{advice}") from error


@contextlib.contextmanager
def errors_at(where: str) -> Iterator[None]:
    """Names the place, such as a file, before the message of a ValueError in the block."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


@contextlib.contextmanager
def reading(path: str) -> Iterator[tf.io.gfile.GFile]:
    """Opens a file to read bytes; TensorFlow's errors become an OSError that names the file."""
    check_no_pipe(path)
    with named_errors(f"cannot read {path}"), storage(path).GFile(path, "rb") as file:
        yield file


def check_no_pipe(path: str) -> None:
    """Raises an OSError for a pipe, a socket or a device, which cannot be read twice."""
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise OSError(f"{path} is a pipe, a socket or a device: name a regular file")


def read_file(path: str, size: int = -1) -> bytes:
    """Returns a file, or its first `size` bytes; raises an OSError, also for Git LFS pointers."""
    with reading(path) as file:
        data = file.read(size)
    if data.startswith(LFS_POINTER):
        raise OSError(f"{path} is a Git LFS pointer, not the file itself: run git lfs pull")
    return data


def read_json(path: str, kind: Any = dict[str, Any]) -> Any:
    """Reads a JSON file and checks its types, see `parse_json`; returns {} if there is no file."""
    if not tf.io.gfile.exists(path):
        return {}
    try:
        return parse_json(read_file(path), kind)
    except ValueError as error:
        raise ValueError(
            f"{path} is damaged or another program's ({error}): restore it, or move it away"
        ) from None


def parse_json(text: str | bytes, kind: Any = dict[str, Any]) -> Any:
    """Parses a JSON text and checks that its values have the declared types.

    Args:
        kind: a type of Python, or {key: kind} with the keys that the program reads: an object may
            have others, of any kind, and need not have those that end with "?". A tuple holds
            alternatives. An integer is a `float`, too. So list[{"path": str, "size?": int | None}].
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
        raise ValueError("it contains several JSON values, as JSON lines do, not one") from None
    except RecursionError as error:
        raise ValueError(str(error)) from None
    check_kind(value, kind)
    return value


def fields_kind(cls: type) -> dict[str, Any]:
    """Returns the kind of an object with the fields of a dataclass; defaults may be missing."""
    hints, fields = get_type_hints(cls), dataclasses.fields(cls)
    return {
        x.name if x.default is dataclasses.MISSING else f"{x.name}?": hints[x.name] for x in fields
    }


# The names of types in messages.
_KINDS = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    NoneType: "null",
}


def check_kind(value: Any, kind: Any, name: str = "") -> None:
    """Raises a ValueError that names the first value of another kind; see `parse_json`."""
    what = name or "it"
    kinds = kind.__args__ if isinstance(kind, UnionType) else kind
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    found = {dict if isinstance(x, dict) else get_origin(x) or x: x for x in kinds}
    if Any in found:
        return
    outer = float if type(value) is int and int not in found else type(value)
    if outer not in found:
        raise ValueError(f"{what} is {value!r:.80}, not {' or '.join(map(_KINDS.get, found))}")
    kind = found[outer]
    if isinstance(kind, dict):
        for key, expected in kind.items():
            plain = key.removesuffix("?")
            if plain in value:
                check_kind(value[plain], expected, f"{name}.{plain}".removeprefix("."))
            elif plain == key:
                raise ValueError(f"{what} has no {key!r}")
    elif inner := get_args(kind):
        items = value.items() if outer is dict else enumerate(value)
        for key, item in items:
            check_kind(item, inner[-1], f"{name}[{key!r}]")


def names_in(folder: str) -> list[str]:
    """Returns the names of the files and folders in a folder; none if it does not exist."""
    found = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    # On gs://, those of folders end with a slash.
    return [name.rstrip("/") for name in found]


def lines_sha256(lines: Iterable[str]) -> str:
    """Returns the checksum of lines, regardless of the line endings in their file."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def file_sha256(path: str, on_read: Callable[[int], object] = lambda size: None) -> str:
    """Returns the checksum of a file in hexadecimal; `on_read` gets the size of each block read."""
    digest = hashlib.sha256()
    with reading(path) as file:
        while block := file.read(2**22):
            digest.update(block)
            on_read(len(block))
    return digest.hexdigest()


def current_entries(entries: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Leaves out what a later entry of a log replaces: entries of its step and of later ones.

    A run that was killed and resumed takes the steps after its last checkpoint again.
    """
    kept: list[Mapping[str, Any]] = []
    for entry in entries:
        while kept and kept[-1]["step"] >= entry["step"]:
            kept.pop()
        kept.append(entry)
    return kept


def output_stream(file: tf.io.gfile.GFile) -> SimpleNamespace:
    """Returns a file for zipfile and pyarrow, without `seek`, which cloud storage cannot do."""
    write = lambda data: file.write(data) or len(data)  # noqa: E731
    return SimpleNamespace(write=write, flush=file.flush, closed=False)


def absolute_path(path: str) -> str:
    """Returns the canonical path of a file, to recognize it under different names."""
    path = path.removeprefix("file://")
    return path if "://" in path else os.path.realpath(path)


def expand_files(patterns: str, allow_empty: bool = False, flag: str = "input_file") -> list[str]:
    """Returns the files matched by a comma-separated list of names and globs, sorted per glob.

    With `allow_empty`, some of them, though not all, may be empty. Errors name the flag.
    """
    with errors_at(f"--{flag}"):
        files = [file for _, matches in match_files(patterns) for file in matches]
        if not files:
            raise ValueError("no input file given")
        empty = [file for file in files if not _size(file)]
        if empty and not (allow_empty and len(empty) < len(files)):
            raise ValueError(f"{empty[0]} is empty: leave it out")
        names: dict[str, str] = {}
        for file in files:
            path = absolute_path(file)
            if path in names:
                other = "" if names[path] == file else f", also as {names[path]}"
                raise ValueError(f"{file} is named twice{other}: name it once")
            names[path] = file
    return files


def check_single(path: str) -> None:
    """Raises an error unless a path names a single file."""
    store = storage(path)
    if store.isdir(path):
        raise IsADirectoryError(f"{path} is a directory: name one of its files")
    if not store.exists(path):
        if any(_matches(name.strip()) for name in path.split(",")):
            raise ValueError(f"{path} is a list or a pattern of files: name one file, or join them")
        raise FileNotFoundError(f"{path}: no such file")


def match_files(patterns: str) -> list[tuple[str, list[str]]]:
    """Returns each name or glob of a comma-separated list with the files that it matches, sorted.

    Globs do not match manifests. Names of existing files may contain commas.
    """
    if files := _named(patterns):
        return [(patterns, files)]
    found, parts = [], patterns.split(",")
    while parts:
        ends = [1, *range(len(parts), 1, -1)]
        names = (",".join(parts[:end]).strip() for end in ends)
        matches = ((name, _matches(name)) for name in names)
        name, files = next((match for match in matches if match[1]), (parts[0].strip(), []))
        if files:
            found.append((name, files))
        elif os.path.islink(name):
            raise ValueError(f"{name} is a link to {os.readlink(name)}, which does not exist")
        elif name:
            raise ValueError(f"no file matches {name}")
        parts = parts[name.count(",") + 1 :]
    return found


def _matches(pattern: str) -> list[str]:
    # An existing file is taken literally even if its name contains glob characters.
    if not pattern:
        return []
    if files := _named(pattern):
        return files
    pattern = full_name(pattern)
    try:
        found = storage(pattern).glob(pattern)
    except UnicodeDecodeError:
        raise ValueError(f"{pattern} matches a name that is not UTF-8: rename the file") from None
    return sorted(file for file in found if not file.endswith(MANIFEST_END))


def _named(name: str) -> list[str]:
    """Returns the full name of an existing file or folder, or none."""
    name = full_name(name)
    return [name] if storage(name).exists(name) else []


def _size(file: str) -> int:
    """Returns the size of a file; raises a ValueError if it is not one."""
    check_no_pipe(file)
    stat = storage(file).stat(file)
    if stat.is_directory:
        raise ValueError(f"{file} is a directory: name its files, for example {file}/*")
    return stat.length


def shortened(items: Sequence[str], most: int = 5) -> str:
    """Returns the first few items separated by commas, and the number of the others."""
    more = f" and {len(items) - most:,} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def similar(name: str, names: Sequence[str]) -> str:
    """Returns the names most like a wrong one, as the end of a message; "" if there are none."""
    known = {other.lower(): other for other in names}
    found = [known[x] for x in difflib.get_close_matches(name.lower(), known)]
    return f"; similar names are {', '.join(found)}" if found else ""


def normalized(path: str) -> str:
    """Returns a path without "./" and the like."""
    return path if "://" in path else os.path.normpath(path)

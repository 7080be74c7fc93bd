"""Finds the files that flags name."""

import difflib
import os
from collections.abc import Sequence

import tensorflow as tf

from bert_tf.base.files import check_no_pipe, errors_at
from bert_tf.base.output_files import absolute_path

# What describes other files, and what no glob matches.
MANIFEST_END = ".manifest.json"


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
    if tf.io.gfile.isdir(path):
        raise IsADirectoryError(f"{path} is a directory: name one of its files")
    if not tf.io.gfile.exists(path):
        if any(_matches(name.strip()) for name in path.split(",")):
            raise ValueError(f"{path} is a list or a pattern of files: name one file, or join them")
        raise FileNotFoundError(f"{path}: no such file")


def match_files(patterns: str) -> list[tuple[str, list[str]]]:
    """Returns each name or glob of a comma-separated list with the files that it matches, sorted.

    Globs do not match manifests. Names of existing files may contain commas.
    """
    if tf.io.gfile.exists(patterns):
        return [(patterns, [patterns])]
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
    if tf.io.gfile.exists(pattern):
        return [pattern]
    try:
        found = tf.io.gfile.glob(pattern)
    except UnicodeDecodeError:
        raise ValueError(f"{pattern} matches a name that is not UTF-8: rename the file") from None
    return sorted(file for file in found if not file.endswith(MANIFEST_END))


def _size(file: str) -> int:
    """Returns the size of a file; raises a ValueError if it is no file."""
    check_no_pipe(file)
    stat = tf.io.gfile.stat(file)
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

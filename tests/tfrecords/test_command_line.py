"""Commands as users type them."""

import shlex

from tfrecords.command_help import command_line, unused_name


def test_a_command_survives_the_shell():
    """Oracle: shlex, which splits as a POSIX shell does."""
    line = command_line(
        "a.b", "two words", file="it's my text*.txt", count=3, fast=True, cased=False, nothing=None
    )
    assert shlex.split(line) == [
        "python",
        "-m",
        "a.b",
        "--file=it's my text*.txt",
        "--count=3",
        "--fast",
        "--nocased",
        "two words",
    ]


def test_unused_names_keep_their_suffix(tmp_path, monkeypatch):
    """Oracle: the files that exist."""
    monkeypatch.chdir(tmp_path)
    assert unused_name("run.v1.txt") == "run.v1.txt"
    for name in ("run", "data.tfrecord", "data-2.tfrecord"):
        (tmp_path / name).touch()
    assert (unused_name("run"), unused_name("data.tfrecord")) == ("run-2", "data-3.tfrecord")

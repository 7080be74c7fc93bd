"""JSON files of declared kinds, and the files that flags name. Oracles: values by hand."""

import contextlib
import os
import pathlib
import re
from typing import Any

import pytest
from support import one_line

from bert_tf.base.files import expand_files, file_sha256, match_files, read_file, read_json
from tfrecords.manifest import (
    check_complete,
    check_finished,
    find_manifests,
    read_manifest,
    write_manifest,
)
from tfrecords.records import compression_of
from tfrecords.vocabulary import read_vocab_lines

_MODULE = {"path": str, "size?": int | None, "tags?": str | list[str], "scores?": dict[str, float]}


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ('[{"path": "a", "size": null, "tags": ["x"], "other": {}}]', list[_MODULE], None),
        ('[{"path": "a", "tags": "x", "scores": {"1": 2, "2": 0.5}}]', list[_MODULE], None),
        ('\ufeff{"path": [1, {}]}', dict[str, Any], None),
        ("[]", _MODULE, "it is [], not an object"),
        ("{}", _MODULE, "it has no 'path'"),
        ('[{"path": 3}]', list[_MODULE], "[0].path is 3, not a string"),
        ('{"path": "a", "size": true}', _MODULE, "size is True, not an integer or null"),
        ('{"path": "a", "tags": ["x", {}]}', _MODULE, "tags[1] is {}, not a string"),
        ('{"path": "", "scores": {"x": "y"}}', _MODULE, "scores['x'] is 'y', not a number"),
        ("[" * 100_000, list[Any], "maximum recursion depth exceeded"),
        ('{"path": "a"}\n{}', _MODULE, "it contains several JSON values, as JSON lines do"),
        ('{"path": "a"', _MODULE, "Expecting ',' delimiter"),
    ],
)
def test_json_holds_the_declared_kinds(tmp_path, text, kind, message):
    path = str(tmp_path / "file.json")
    assert read_json(path, kind) == {}
    (tmp_path / "file.json").write_text(text, encoding="utf-8")
    if not message:
        assert read_json(path, kind)
        return
    line = re.escape(f"{path} is damaged or another program's ({message}")
    with one_line(f"^{line}.*: restore it, or move it away$"):
        read_json(path, kind)


def test_expand_files(tmp_path):
    for name in ("b.txt", "a.txt", "c[0].txt"):
        (tmp_path / name).write_text("text")
    found = expand_files(f"{tmp_path}/[ab].txt, {tmp_path}/c[0].txt")
    assert found == [str(tmp_path / name) for name in ("a.txt", "b.txt", "c[0].txt")]
    (tmp_path / "empty.txt").touch()
    (tmp_path / "link").symlink_to("nowhere")
    pathlib.Path(os.fsdecode(os.fsencode(tmp_path) + b"/bytes\xe9")).touch()
    for patterns, message in [
        (f"{tmp_path}/a.txt,{tmp_path}/x*", r"no file matches .*/x\*"),
        (f"{tmp_path}/e*", "empty.txt is empty"),
        (f"{tmp_path}", "is a directory"),
        (" ,", "no input file given"),
        (f"{tmp_path}/link", "is a link to nowhere, which does not exist"),
        (f"{tmp_path}/bytes*", "not UTF-8: rename"),
    ]:
        with pytest.raises(ValueError, match=f"^--data: .*{message}"):
            expand_files(patterns, flag="data")


def test_pipes_are_named(tmp_path):
    """Oracle: the message. Reading them waits until somebody writes."""
    (tmp_path / "a.txt").write_text("text")
    os.mkfifo(tmp_path / "b.txt")
    for read in (
        lambda pipe: expand_files(f"{tmp_path}/*.txt", allow_empty=True),
        read_file,
        file_sha256,
        compression_of,
        read_vocab_lines,
    ):
        with pytest.raises(OSError, match=f"^{tmp_path}/b.txt is a pipe, a socket or a device"):
            read(f"{tmp_path}/b.txt")


def test_names_with_commas(tmp_path, monkeypatch):
    """Oracle: the files made here. A list of existing files stays a list."""
    monkeypatch.chdir(tmp_path)
    for name in ("x,y", "x,y,z", "u", "v,w", "w"):
        pathlib.Path(name).write_text("text")
    for patterns, found in {
        "x,y": [("x,y", ["x,y"])],
        "u, x,y": [("u", ["u"]), ("x,y", ["x,y"])],
        "x,y,z,u,": [("x,y,z", ["x,y,z"]), ("u", ["u"])],
        "x,?": [("x,?", ["./x,y"])],
        "?,w": [("?", ["./u", "./w"]), ("w", ["w"])],
    }.items():
        assert match_files(patterns) == found
    with pytest.raises(ValueError, match="no file matches x$"):
        match_files("u,x,z")


def test_a_file_named_twice_is_an_error(tmp_path, monkeypatch):
    """Oracle: four ways to name one file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "link.txt").symlink_to("a.txt")
    for other in ("./a.txt", str(tmp_path / "a.txt"), "link.txt", "[ab].txt"):
        with pytest.raises(ValueError, match=r"a.txt.* is named twice|link.txt is named twice"):
            expand_files(f"a.txt,{other}")
    with pytest.raises(ValueError, match="link.txt is named twice, also as .*a.txt: name it once"):
        expand_files("*.txt")


@pytest.fixture
def shards(tmp_path, monkeypatch):
    """Four shards of 3 bytes in the folder data, and their manifest."""
    monkeypatch.chdir(tmp_path)
    names = [f"t.tfrecord-{shard:05}-of-00004" for shard in range(4)]
    entries = [{"file": name, "bytes": 3, "records": 1, "sha256": ""} for name in names]
    write_manifest("data/t.manifest.json", {"shards": entries})
    for name in names:
        (tmp_path / "data" / name).write_text("abc")
    return tmp_path / "data"


def check(patterns: str) -> None:
    files = expand_files(patterns)
    sizes = {file: 3 for file in files}
    check_finished(sizes, find_manifests(files))
    check_complete(patterns, sizes, find_manifests(files))


def test_a_missing_shard_is_named_unless_the_others_are(shards):
    """Oracle: shard 2, which is removed; a glob that does not match it, and names without one."""
    check("data/t.tfrecord-*")
    (shards / "t.tfrecord-00002-of-00004").unlink()
    missing = "data/t.tfrecord-00002-of-00004: missing, but listed in .*data/t.manifest.json"
    for patterns in ("data/t.tfrecord-*", "./data/t*", "*/t*", f"{shards}/t.*[^9]"):
        with pytest.raises(ValueError, match=missing):
            check(patterns)
    check("data/t.tfrecord-0000[01]*")
    check(",".join(f"data/t.tfrecord-0000{shard}-of-00004" for shard in (0, 1, 3)))
    (shards / "t.tfrecord-00003-of-00004").unlink()
    with pytest.raises(ValueError, match="00002-of-00004, data.*00003-of-00004: missing"):
        check("data/t*")


def test_files_that_are_not_those_of_the_manifest_are_named(shards):
    """Oracles: a shard that an earlier job left behind; a size or sum that differs."""
    size = {"data/t.tfrecord-00001-of-00004": 2}
    with pytest.raises(ValueError, match="00001-of-00004 has 2 bytes, but 3 according to data/t.m"):
        check_complete("data/t.tfrecord-00001-of-00004", size, find_manifests(size))
    manifest = read_manifest("data/t.manifest.json")
    for examples in (4, 5):
        statistics = {"examples": {"examples": examples}}
        write_manifest("data/t.manifest.json", manifest | {"statistics": statistics})
        match = "data/t.manifest.json: the shards have 4 records, but 5 according to the statistics"
        with one_line(match) if examples == 5 else contextlib.nullcontext():
            check("data/t*")
    write_manifest("data/t.manifest.json", manifest)
    (shards / "t.tfrecord-00000-of-00002").write_text("abc")
    with pytest.raises(ValueError, match="00000-of-00002 is not one of the files that data/t.m"):
        check("data/t*")


def test_records_that_are_still_being_created_are_named(shards):
    """Oracle: the folder of data creation; earlier records stay usable until they are replaced."""
    (shards / "t.unfinished").mkdir()
    check("data/t.tfrecord-*")
    (shards / "t.manifest.json").unlink()
    with pytest.raises(ValueError, match="still running or was interrupted, .*data/t.unfinished"):
        check("data/t.tfrecord-*")

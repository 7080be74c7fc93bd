"""Manifests. Oracles: hand-written names and files, and Python's own json and hashlib."""

import hashlib
import json

import pytest

from tfrecords import manifest as manifests
from tfrecords.manifest import manifest_path, read_manifest, shard_entry, write_manifest


@pytest.mark.parametrize(
    ("file", "manifest"),
    [
        ("out/train.tfrecord-00000-of-00004", "out/train.manifest.json"),
        ("train.tfrecord-100000-of-200000", "train.manifest.json"),
        ("train-0.tfrecord", "train-0.manifest.json"),
        ("gs://b/a.tfrecord/records", "gs://b/a.tfrecord/records.manifest.json"),
        ("a-1-of-2", "a-1-of-2.manifest.json"),
    ],
)
def test_manifest_path(file, manifest):
    assert manifest_path(file) == manifest


def test_round_trip(tmp_path):
    shard = tmp_path / "größe.tfrecord"
    data = bytes(range(256)) * 40_000  # more than one block
    shard.write_bytes(data)
    entry = shard_entry(str(shard), 7)
    digest = hashlib.sha256(data).hexdigest()
    assert entry == {"file": shard.name, "bytes": len(data), "records": 7, "sha256": digest}
    manifest = {"shards": [entry], "settings": {"b": 1, "a": None}}
    path = tmp_path / "new" / "größe.manifest.json"
    write_manifest(str(path), manifest)
    assert read_manifest(str(path)) == json.loads(path.read_text()) == manifest
    first = path.read_bytes()
    write_manifest(str(path), dict(reversed(manifest.items())))
    assert path.read_bytes() == first
    assert list(path.parent.iterdir()) == [path]
    for function in (read_manifest, lambda path: shard_entry(path, 1)):
        with pytest.raises(OSError, match="cannot read .*absent"):
            function(str(tmp_path / "absent"))


def test_a_manifest_is_found_beside_its_shards(tmp_path):
    shard = str(tmp_path / "x.tfrecord-00001-of-00002")
    """Oracle: the manifest that was written, once for all of its shards."""
    assert manifests.find_manifests([shard]) == {}
    path = tmp_path / "x.manifest.json"
    write_manifest(str(path), {"shards": []})
    found = manifests.find_manifests([shard, shard.replace("1-of", "0-of")])
    assert found == {str(path): {"shards": []}}


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        *((content, "") for content in ("", "{", "[]", "{}", '{"shards": [{"file": "a"}]}', "ÿ")),
        ('{"shards": 1}', "shards is 1, not a list"),
        ('{"shards": [], "vocabulary": ["a"]}', "vocabulary is .*, not a string"),
        ('{"shards": [], "settings": {"max_seq_length": "9"}}', "settings.max_seq_length is '9'"),
        ('{"shards": [], "inputs": ["a"]}', "inputs.0. is 'a', not an object"),
    ],
)
def test_damaged_manifests_are_named(tmp_path, content, wrong):
    """Oracle: the message names the file and the value."""
    path = tmp_path / "a.manifest.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(ValueError, match=f"{path} is damaged or not a manifest .*{wrong}"):
        read_manifest(str(path))

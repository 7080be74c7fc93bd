"""The manifest beside the shards of one data set: what they contain and how they were created.

A manifest is a JSON object. Only `shards` is required:

    shards      list of {"file", "bytes", "records", "sha256"}; "file" is relative to the folder of
                the manifest
    settings    the settings of data creation by name, such as "max_seq_length" and "do_lower_case";
                "vocab_file" is the checksum of the vocabulary (`Vocabulary.sha256`)
    inputs      list of {"file", "bytes", "modified", "sha256"?}: the text files that the records
                were created from; "modified" is in nanoseconds
    statistics  sums over the records
    vocabulary  all tokens in the order of their ids, joined by "\\n"
    bert_tf     the version of bert_tf that created the records
"""

import fnmatch
import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from bert_tf.base.files import (
    MANIFEST_END,
    errors_at,
    file_sha256,
    match_files,
    normalized,
    parse_json,
    read_file,
    shortened,
)
from bert_tf.base.output_files import atomic_write
from tfrecords.vocabulary import Vocabulary

_INPUT = {"file": str, "bytes": int, "sha256?": str}
_SHARD = _INPUT | {"records": int}
_SETTINGS = {
    "do_lower_case?": bool | None,
    "masked_lm_prob?": float,
    "masking?": str,
    "max_predictions_per_seq?": int,
    "max_seq_length?": int,
    "objective?": str,
    "vocab_file?": str,
}
_MANIFEST = {
    "shards": list[_SHARD],
    "settings?": _SETTINGS,
    "inputs?": list[_INPUT],
    "statistics?": {"examples?": {"examples?": int}},
    "vocabulary?": str,
    "tokenizer?": dict[str, Any],
}


def manifest_path(shard: str) -> str:
    """Returns DIR/NAME.manifest.json for DIR/NAME.tfrecord and DIR/NAME.tfrecord-00000-of-00004."""
    folder, name = os.path.split(shard)
    name = re.sub(r"-\d{5,}-of-\d{5,}$", "", name).removesuffix(".tfrecord")
    return os.path.join(folder, name + MANIFEST_END)


def unfinished_path(shard: str) -> str:
    """Returns the path of the folder in which data creation keeps its unfinished work."""
    return manifest_path(shard).removesuffix(MANIFEST_END) + ".unfinished"


def write_manifest(path: str, manifest: dict, overwrite: bool = True) -> None:
    """Writes a manifest; see `atomic_write`. Equal manifests give equal bytes."""
    text = json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False)
    atomic_write(path, f"{text}\n", overwrite)


def read_manifest(path: str) -> dict[str, Any]:
    """Reads a manifest; raises a ValueError that names the first value of another kind."""
    try:
        return parse_json(read_file(path), _MANIFEST)
    except ValueError as error:
        raise ValueError(f"{path} is damaged or not a manifest ({error}): move it away") from None


def find_manifests(files: Iterable[str]) -> dict[str, dict]:
    """Returns the manifests beside shards, by path; each is read once."""
    paths = dict.fromkeys(map(manifest_path, files))
    return {path: read_manifest(path) for path in paths if tf.io.gfile.exists(path)}


def stored_vocabulary(path: str, manifest: dict) -> Vocabulary | None:
    """Returns the vocabulary in a manifest, or None if it has none."""
    if "vocabulary" not in manifest:
        return None
    with errors_at(path):
        lines = manifest["vocabulary"].split("\n")
        return Vocabulary.from_values(lines, manifest.get("tokenizer", {}))


def shard_entry(path: str, records: int) -> dict:
    """Returns the manifest's entry for a finished shard with `records` records."""
    # Before the size is looked up, so that a missing file is an OSError.
    digest = file_sha256(path)
    return {
        "file": os.path.basename(path),
        "bytes": tf.io.gfile.stat(path).length,
        "records": records,
        "sha256": digest,
    }


def check_complete(patterns: str, files: Mapping[str, int], manifests: Mapping[str, dict]) -> None:
    """Checks that files are those that the manifests beside them list, and that none is missing.

    A file is missing if its manifest lists it and a glob matches its name. To read only some of the
    files, users name them or give a narrower glob. `files` are those that the patterns match, with
    their sizes in bytes. The numbers of records must add up to that in the statistics, if there are
    any.
    """
    for path, manifest in manifests.items():
        records = sum(entry["records"] for entry in manifest["shards"])
        stated = manifest.get("statistics", {}).get("examples", {}).get("examples", records)
        if records != stated:
            raise ValueError(
                f"{path}: the shards have {records:,} records, but {stated:,} according to the "
                "statistics: copy it again, or create the examples again"
            )
    listed = listed_files(manifests)
    # Python writes [!a] where TensorFlow also understands [^a].
    globs = [normalized(name).replace("[^", "[!") for name, _ in match_files(patterns)]
    matched = [file for file in listed if any(fnmatch.fnmatchcase(file, x) for x in globs)]
    if missing := [file for file in matched if not tf.io.gfile.exists(file)]:
        raise ValueError(
            f"{shortened(missing)}: missing, but listed in {manifest_path(missing[0])}: restore "
            "what is missing, or, to do without, name the other files one by one, separated by "
            "commas"
        )
    for file, size in files.items():
        path, entry = manifest_path(file), listed.get(normalized(file))
        if path in manifests and entry is None:
            raise ValueError(
                f"{file} is not one of the files that {path} lists: leave it out, or move it away "
                "from the manifest"
            )
        if entry and size != entry["bytes"]:
            raise ValueError(
                f"{file} has {size:,} bytes, but {entry['bytes']:,} according to {path}: copy or "
                "create it again"
            )


def check_finished(files: Mapping[str, int], manifests: Mapping[str, dict]) -> None:
    """Raises a ValueError if data creation, which writes manifests last, has not finished."""
    for path, file in {manifest_path(file): file for file in files}.items():
        folder = unfinished_path(file)
        if path not in manifests and tf.io.gfile.isdir(folder):
            raise ValueError(
                f"{file}: data creation is still running or was interrupted, because {folder} "
                "exists: wait for it, run the same create_pretraining_data again, or remove that "
                "folder to use the files as they are"
            )


def listed_files(manifests: Mapping[str, dict]) -> dict[str, dict]:
    """Returns the entries of manifests by the normalized path of the file."""
    return {
        normalized(os.path.join(os.path.dirname(path), entry["file"])): entry
        for path, manifest in manifests.items()
        for entry in manifest["shards"]
    }

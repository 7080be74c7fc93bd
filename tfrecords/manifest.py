"""The manifest beside the shards of one data set: what they contain and how they were created.

A manifest is a JSON object. Only `shards` is required:

    shards      list of {"file", "bytes", "records", "sha256"}; "file" is relative to the folder of
                the manifest
    settings    the settings of data creation by name, such as "max_seq_length" and "do_lower_case";
                "vocab_file" is the checksum of the vocabulary (`Vocabulary.sha256`)
    inputs      list of {"file", "bytes", "modified", "sha256"}: the text files that the records
                were created from; "modified" is in nanoseconds
    statistics  sums over the records
    vocabulary  all tokens in the order of their ids, joined by "\\n"
    bert_tf     the version of bert_tf that created the records
"""

import json
import os
import re
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from bert_tf.base.files import errors_at, file_sha256, parse_json, read_file
from bert_tf.base.input_files import MANIFEST_END
from bert_tf.base.output_files import atomic_write
from tfrecords.vocabulary import Vocabulary

_INPUT = {"file": str, "bytes": int, "sha256": str}
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
    "statistics?": dict[str, dict[str, Any] | int],
    "vocabulary?": str,
    "tokenizer?": dict[str, Any],
}


def manifest_path(shard: str) -> str:
    """Returns the path of the manifest beside a shard.

    It is `DIR/NAME.manifest.json` for both `DIR/NAME.tfrecord-00000-of-00004` and
    `DIR/NAME.tfrecord`.
    """
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
        raise ValueError(f"{path} is damaged or not a manifest ({error})") from None


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

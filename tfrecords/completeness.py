"""Compares files with the manifests beside them."""

import fnmatch
import os
from collections.abc import Mapping

import tensorflow as tf

from bert_tf.base.input_files import match_files, normalized, shortened
from tfrecords.manifest import manifest_path, unfinished_path


def check_complete(patterns: str, files: Mapping[str, int], manifests: Mapping[str, dict]) -> None:
    """Checks that files are those that the manifests beside them list, and that none is missing.

    A file is missing if its manifest lists it and a glob matches its name. To read only some of the
    files, users name them or give a narrower glob. `files` are those that the patterns match, with
    their sizes in bytes.
    """
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

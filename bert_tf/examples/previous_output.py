"""Compares a job with what earlier runs left behind: an unfinished job, or finished files.

A job is described by the version of bert_tf, the settings and the checksums of the inputs. Output
of the same job is kept and completed. Output of another job is replaced only with --overwrite.
"""

import os
from collections.abc import Sequence

import tensorflow as tf

from bert_tf import __version__
from bert_tf.examples.job import Job
from bert_tf.examples.work_folder import WorkFolder, read_json, remove_files
from tfrecords.manifest import file_sha256, is_list_of_inputs, manifest_path, read_manifest
from tfrecords.progress import progress_bar


def describe_job(job: Job, folder: WorkFolder) -> dict:
    """Returns what identifies a job: version, settings, and checksums of the input files.

    Files whose size and modification time match those that an earlier run recorded are not read.

    Raises:
        OSError: an input cannot be read.
    """
    recorded: dict[str, dict] = {}
    for description in (read_json(manifest_path(job.output_files[0])), folder.read_job()):
        inputs = description.get("inputs", []) if description else []
        if is_list_of_inputs(inputs):
            recorded |= {entry["file"]: entry for entry in inputs}
    return {
        "bert_tf": __version__,
        "settings": job.settings(),
        "inputs": _fingerprints(job.input_files, recorded),
    }


def restore_finished(
    job: Job, folder: WorkFolder, description: dict, overwrite: bool
) -> dict | None:
    """Prepares the work folder for the job, and returns the manifest if nothing is left to do.

    Keeps the state of an unfinished run of the same job, restores that of a finished run whose
    files are partly missing, and clears anything else.

    Raises:
        ValueError: the state or the output belongs to another job, and `overwrite` is False.
    """
    unfinished = folder.read_job()
    if unfinished and not _difference(unfinished, description):
        return None
    path = manifest_path(job.output_files[0])
    manifest = _read_previous_manifest(path, overwrite)
    if manifest and not _difference(manifest, description):
        folder.clear()
        for shard, entry in enumerate(manifest["shards"]):
            folder.finish_shard(shard, entry)
        complete = all(folder.has_shard(*item) for item in enumerate(job.output_files))
        return manifest if complete else None
    if not overwrite:
        for where, other in ((folder.path, unfinished), (path, manifest)):
            if other:
                raise ValueError(
                    f"{where} says that the files were created {_difference(other, description)}: "
                    "name another --output_file, or replace them with --overwrite"
                )
        _check_unknown_files(job, os.path.basename(path))
    folder.clear()
    return None


def remove_other_output(job: Job, description: dict) -> None:
    """Removes the manifest of another job, and its shards unless this job replaces them."""
    path = manifest_path(job.output_files[0])
    manifest = _read_previous_manifest(path, overwrite=True)
    if manifest and not _difference(manifest, description):
        return
    entries = manifest["shards"] if manifest else []
    # No manifest can reach into another folder.
    names = {entry["file"] for entry in entries if entry["file"] == os.path.basename(entry["file"])}
    names -= {os.path.basename(file) for file in job.output_files}
    remove_files([path, *(os.path.join(os.path.dirname(path), name) for name in names)])


def _check_unknown_files(job: Job, manifest_name: str) -> None:
    for file in job.output_files:
        if tf.io.gfile.exists(file):
            raise ValueError(
                f"{file} exists, but there is no {manifest_name} beside it that describes it: name "
                "another --output_file, or replace it with --overwrite"
            )


def _read_previous_manifest(path: str, overwrite: bool) -> dict | None:
    """Returns the manifest; None if there is none, or a damaged one that may be overwritten."""
    if not tf.io.gfile.exists(path):
        return None
    try:
        manifest = read_manifest(path)
        if not manifest.keys() >= {"bert_tf", "settings", "inputs", "statistics"}:
            raise ValueError(f"{path} does not describe how the files were created")
    except ValueError as error:
        if overwrite:
            return None
        raise ValueError(f"{error}: replace it with --overwrite") from None
    return manifest


def _difference(old: dict, new: dict) -> str | None:
    """Returns the first difference between two jobs; None if they are the same."""
    if old.get("bert_tf") != new["bert_tf"]:
        return f"by bert_tf {old.get('bert_tf')} (this is {new['bert_tf']})"
    settings = old.get("settings", {})
    for name, value in new["settings"].items():
        if settings.get(name) != value:
            return f"with --{name}={settings.get(name)} (now it is {value})"
    return _input_difference(old.get("inputs", []), new["inputs"])


def _input_difference(old: list[dict], new: list[dict]) -> str | None:
    if len(old) != len(new):
        return f"from {len(old)} input files (now there are {len(new)})"
    for before, now in zip(old, new, strict=True):
        if before["sha256"] != now["sha256"]:
            if before["file"] != now["file"]:
                return f"from {before['file']} (now it is {now['file']})"
            return f"from {now['file']} before it changed"
    return None


def _fingerprints(files: Sequence[str], recorded: dict[str, dict]) -> list[dict]:
    """Returns size, time and checksum of every file."""
    stats = {file: tf.io.gfile.stat(file) for file in files}
    entries = []
    with progress_bar(
        total=sum(stat.length for stat in stats.values()),
        desc="Computing checksums",
        unit="B",
        unit_scale=True,
        delay=2,
    ) as progress:
        for file, stat in stats.items():
            entry = {"file": file, "bytes": stat.length, "modified": stat.mtime_nsec}
            before = recorded.get(file, {})
            if entry.items() <= before.items():
                entries.append(before)
                progress.update(stat.length)
            else:
                entries.append(entry | {"sha256": file_sha256(file, progress.update)})
    return entries

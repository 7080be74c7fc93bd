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
from bert_tf.runs.provenance import check_same, describe_file, description_of, differences
from tfrecords.manifest import file_sha256, is_list_of_inputs, manifest_path, read_manifest
from tfrecords.progress import progress_bar

_ADVICE = "name another --output_file, or replace it with --overwrite"


def describe_job(job: Job, folder: WorkFolder) -> dict:
    """Returns what identifies a job: version, settings, and checksums of the input files.

    Files whose size and modification time match those that an earlier run recorded are not read.
    """
    recorded: dict[str, dict] = {}
    for description in (read_json(manifest_path(job.output_files[0])), folder.read_job()):
        inputs = description.get("inputs", []) if description else []
        if is_list_of_inputs(inputs):
            recorded |= {entry["file"]: entry for entry in inputs}
    inputs = _with_checksums(job.input_files, recorded)
    return {"bert_tf": __version__, "settings": job.settings(), "inputs": inputs}


def restore_finished(
    job: Job, folder: WorkFolder, description: dict, overwrite: bool
) -> dict | None:
    """Prepares the work folder for the job, and returns the manifest if nothing is left to do.

    Keeps the state of an unfinished run of the same job, restores that of a finished run whose
    files are partly missing, and clears anything else.
    """
    unfinished = folder.read_job()
    if _is_same(unfinished, description):
        return None
    path = manifest_path(job.output_files[0])
    manifest = _read_manifest(path)
    if _is_same(manifest, description):
        folder.clear()
        for shard, entry in enumerate(manifest["shards"]):
            folder.finish_shard(shard, entry)
        complete = all(folder.has_shard(*item) for item in enumerate(job.output_files))
        return manifest if complete else None
    if not overwrite:
        now = description_of(description)
        if unfinished:
            check_same(folder.path, description_of(unfinished), now, _ADVICE)
        for file in filter(tf.io.gfile.exists, [path, *job.output_files]):
            check_same(file, description_of(manifest), now, _ADVICE)
    folder.clear()
    return None


def remove_other_output(job: Job, description: dict) -> None:
    """Removes the manifest of another job, and its shards unless this job replaces them."""
    path = manifest_path(job.output_files[0])
    manifest = _read_manifest(path)
    if _is_same(manifest, description):
        return
    entries = manifest["shards"] if manifest else []
    # No manifest can reach into another folder.
    names = {entry["file"] for entry in entries if entry["file"] == os.path.basename(entry["file"])}
    names -= {os.path.basename(file) for file in job.output_files}
    remove_files([path, *(os.path.join(os.path.dirname(path), name) for name in names)])


def _read_manifest(path: str) -> dict | None:
    """Returns a manifest; None if there is none, or a damaged one."""
    try:
        manifest = read_manifest(path) if tf.io.gfile.exists(path) else {}
    except ValueError:
        return None
    return manifest if manifest.keys() >= {"bert_tf", "settings", "inputs", "statistics"} else None


def _is_same(manifest: dict | None, description: dict) -> bool:
    return not any(differences(description_of(manifest), description_of(description)))


def _with_checksums(files: Sequence[str], recorded: dict[str, dict]) -> list[dict]:
    entries = [describe_file(file) for file in files]
    with progress_bar(
        total=sum(entry["bytes"] for entry in entries),
        desc="Computing checksums",
        unit="B",
        unit_scale=True,
        delay=2,
    ) as progress:
        for entry in entries:
            before = recorded.get(entry["file"], {})
            if entry.items() <= before.items():
                entry |= before
                progress.update(entry["bytes"])
            else:
                entry["sha256"] = file_sha256(entry["file"], progress.update)
    return entries

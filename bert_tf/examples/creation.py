"""Creates the output files of a job, or those that are missing.

Text flows one way. Blocks of text are tokenized into chunks, and `dupe_factor` passes over each
chunk create examples. The examples of several passes are shuffled together into a part, and the
parts of a shard are joined. `plan` decides which passes go where, `steps` does the work, and
`work_folder` keeps the state on disk.

google-research/bert holds all examples in memory and shuffles them once. Here, memory does not grow
with the input, and examples are shuffled in three steps: the passes over all chunks are dealt to
the shards in random order; the examples of a part, some dozens of passes, are shuffled together;
and a shard consists of its parts, one after the other. The copies of a text therefore lie far
apart, and neighboring examples come from all over the corpus, but the order is not a uniform
permutation of all examples. (The reader shuffles again.)

The same input, settings and seed give the same bytes, wherever the work runs. After a failure, a
kill or a power cut, the same call creates only what is missing. The manifest is written last.

A job is described by the version of bert_tf, the settings and the checksums of the inputs. Output
of the same job is kept and completed. Output of another job is replaced only with --overwrite.
"""

import dataclasses
import json
import os
import re
from collections.abc import Sequence

import tensorflow as tf

from bert_tf import __version__
from bert_tf.base.files import file_sha256
from bert_tf.base.folder_lock import locked
from bert_tf.base.input_files import shortened
from bert_tf.base.output_files import REPLACE, atomic_write, check_free, remove
from bert_tf.base.progress import progress_bar, say
from bert_tf.base.provenance import check_same, describe_file, description_of, differences
from bert_tf.examples.counts import CreationStatistics, ExampleCounts, TextCounts
from bert_tf.examples.creation_options import DataOptions
from bert_tf.examples.estimate import estimate
from bert_tf.examples.job import Job, make_job
from bert_tf.examples.plan import plan_shards
from bert_tf.examples.report import LONGER_DOCUMENTS, example_report, next_steps, text_report
from bert_tf.examples.steps import make_shards, tokenize, useful_workers
from bert_tf.jobs.work_folder import WorkFolder, finish, is_finished, read_counts, read_json
from bert_tf.jobs.workers import RunChunks, num_processes, open_runner
from tfrecords.manifest import read_manifest, unfinished_path, write_manifest
from tfrecords.vocabulary import warn_about_casing


def create_pretraining_data(options: DataOptions) -> CreationStatistics | None:
    """Creates the files and prints statistics; with --dry_run, only prints an estimate."""
    job = make_job(options)
    warn_about_casing(job.vocab, job.options.do_lower_case, options.vocab_file)
    num_workers = num_processes(options.num_workers, useful_workers(job))
    if options.dry_run:
        print(estimate(job, num_workers))
        return None
    with open_runner(options.runner, num_workers, options.beam_options) as run_chunks:
        statistics = _create(job, run_chunks, options.overwrite)
    say(example_report(statistics, job))
    print(f"Wrote {job.manifest} and {shortened(job.output_files, most=1)}.")
    files = options.output_file + ("-*" if options.num_shards else "")
    say(next_steps(job, files, statistics.examples.examples))
    return statistics


def _create(job: Job, run_chunks: RunChunks, overwrite: bool) -> CreationStatistics:
    """Creates the missing output files of a job, then their manifest; reports on the text."""
    folder, description = WorkFolder(unfinished_path(job.output_files[0])), _describe_job(job)
    with locked(folder.path):
        resumes = tf.io.gfile.exists(folder.job_file)
        if _is_same(unfinished := read_json(folder.job_file), description):
            overwrite = overwrite or unfinished.get("overwrite", False)
        try:
            manifest = _restore_finished(job, folder, description, overwrite)
            if manifest:
                say(text_report(CreationStatistics.from_dict(manifest["statistics"]).text, job))
            else:
                unfinished = description | {"overwrite": overwrite}
                atomic_write(folder.job_file, json.dumps(unfinished))
                manifest = _make_files(job, folder, run_chunks, description, overwrite)
        except ValueError:
            # The same call would fail here again. But an earlier run may have taken hours, and
            # with other settings its work may still be of use.
            if not resumes:
                folder.remove()
            raise
        folder.remove()
    return CreationStatistics.from_dict(manifest["statistics"])


def _make_files(
    job: Job, folder: WorkFolder, run_chunks: RunChunks, description: dict, overwrite: bool
) -> dict:
    """Creates the shards and the manifest; returns the latter."""
    places = {folder.shard_file(n): file for n, file in enumerate(job.output_files)}
    if not overwrite:
        check_free(*(file for place, file in places.items() if not read_counts(place)))
    tokenize(run_chunks, job, folder)
    folder.check()
    chunks = {name: CreationStatistics.from_dict(x) for name, x in folder.chunk_counts().items()}
    statistics = sum(chunks.values(), CreationStatistics())
    _check_text(job, statistics.text)
    # Warnings come before the examples, which may take hours.
    say(text_report(statistics.text, job))
    # The tokens of each chunk, or the padded length of its documents if they are short.
    sizes = {
        name: max(chunk.text.tokens, chunk.text.documents * job.options.max_seq_length)
        for name, chunk in chunks.items()
        if chunk.text.tokens
    }
    shards = plan_shards(
        [*sizes.values()], job.options.dupe_factor, len(places), job.options.random_seed
    )
    _remove_other_output(job, description, overwrite)
    planned = zip(shards, places.items(), strict=True)
    missing = [shard for shard, place in planned if not is_finished(*place)]
    make_shards(run_chunks, job, folder, [*sizes], missing, overwrite)
    entries = list(map(read_counts, places))
    for entry in entries:
        statistics.examples += ExampleCounts(**entry["counts"])
    manifest = description | {
        "vocabulary": "\n".join(job.vocab.lines),
        "statistics": dataclasses.asdict(statistics),
        "shards": entries,
    }
    if values := job.vocab.tokenizer_values():
        manifest["tokenizer"] = values
    write_manifest(job.manifest, manifest, overwrite)
    return manifest


def _check_text(job: Job, counts: TextCounts) -> None:
    if not counts.documents:
        raise ValueError(
            f"no text in {job.source}: all lines are blank or have no character that the tokenizer "
            "keeps"
        )
    objective, single = job.options.objective, counts.single_sentences == counts.documents
    if counts.sentences == 1 or (objective == "sop" and single):
        raise ValueError(
            f"--objective={objective} needs documents of several sentences, but every document in "
            f"{job.source} is a single one. {LONGER_DOCUMENTS}"
        )


def _describe_job(job: Job) -> dict:
    """Returns what identifies a job: version, settings, and checksums of the input files."""
    digests = zip(job.input_files, _checksums(job.input_files), strict=True)
    inputs = [describe_file(file) | {"sha256": digest} for file, digest in digests]
    return {"bert_tf": __version__, "settings": job.settings(), "inputs": inputs}


def _checksums(files: Sequence[str]) -> list[str]:
    bar = dict(desc="Computing checksums", unit="B", unit_scale=True, delay=2)
    with progress_bar(total=sum(tf.io.gfile.stat(file).length for file in files), **bar) as shown:
        return [file_sha256(file, shown.update) for file in files]


def _restore_finished(
    job: Job, folder: WorkFolder, description: dict, overwrite: bool
) -> dict | None:
    """Prepares the work folder for the job, and returns the manifest if nothing is left to do.

    Keeps the state of an unfinished run of the same job, restores that of a finished run whose
    files are partly missing, and clears anything else.
    """
    unfinished = read_json(folder.job_file)
    if _is_same(unfinished, description):
        return None
    path = job.manifest
    manifest = _read_manifest(path)
    if _is_same(manifest, description):
        folder.clear()
        return manifest if _keep_shards(job, folder, manifest, overwrite) else None
    if not overwrite:
        now = description_of(description)
        if unfinished:
            check_same(folder.path, description_of(unfinished), now, REPLACE)
        for file in filter(tf.io.gfile.exists, [path, *job.output_files]):
            check_same(file, description_of(manifest), now, REPLACE)
    folder.clear()
    return None


def _keep_shards(job: Job, folder: WorkFolder, manifest: dict, overwrite: bool) -> bool:
    """Keeps the shards of a finished run; returns whether all are there.

    Without `overwrite`, raises a ValueError for a shard that differs from the manifest.
    """
    listed = dict(zip(job.output_files, manifest["shards"], strict=False))
    found = list(filter(tf.io.gfile.exists, listed))
    digests = zip(found, _checksums(found), strict=True)
    changed = [file for file, digest in digests if digest != listed[file]["sha256"]]
    if changed and not overwrite:
        raise ValueError(
            f"{shortened(changed)}: the checksum differs from that in {job.manifest}: remove it to "
            "create it again, or replace it with --overwrite"
        )
    kept = {*found} - {*changed}
    if len(kept) == len(job.output_files):
        return True
    for shard, file in enumerate(listed):
        if file in kept:
            finish(folder.shard_file(shard), listed[file], file)
    return False


def _remove_other_output(job: Job, description: dict, overwrite: bool) -> None:
    """Removes the manifest and, if another job wrote it, those shards that this one does not write.

    Without `overwrite`, raises a FileExistsError for the manifest of another job.
    """
    path = job.manifest
    manifest = _read_manifest(path)
    if _is_same(manifest, description):
        return remove(path)
    if not overwrite:
        return check_free(path)
    # Only shards in the same folder whose checksums are those in the manifest.
    folder, entries = os.path.dirname(path), manifest["shards"] if manifest else []
    listed = {os.path.join(folder, str(entry["file"])): entry["sha256"] for entry in entries}
    others = filter(_is_shard, listed.keys() - {*job.output_files})
    remove(*(x for x in others if os.path.dirname(x) == folder and file_sha256(x) == listed[x]))
    remove(path)


def _is_shard(path: str) -> bool:
    """Returns whether a file exists and has the name of a TFRecord file or of a shard of one."""
    named = re.search(r"\.tfrecord$|-\d{5}-of-\d{5}$", path)
    return bool(named) and tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path)


def _read_manifest(path: str) -> dict | None:
    """Returns a manifest; None if it is missing, damaged or written by another program."""
    try:
        manifest = read_manifest(path) if tf.io.gfile.exists(path) else {}
        CreationStatistics.from_dict(manifest["statistics"])
        for entry in manifest["shards"]:
            ExampleCounts(**entry["counts"])
    except (KeyError, TypeError, ValueError):
        return None
    return manifest if manifest.keys() >= {"bert_tf", "settings", "inputs"} else None


def _is_same(manifest: dict | None, description: dict) -> bool:
    return not any(differences(description_of(manifest), description_of(description)))

"""Creates the output files of a job, or those that are missing.

Blocks of text are tokenized into chunks, and `dupe_factor` passes over each chunk create examples.

google-research/bert holds all examples in memory and shuffles them once. Here, memory does not grow
with the input, and examples are shuffled in three steps: the passes over all chunks are dealt to
the shards in random order; the examples of a part, some dozens of passes, are shuffled together;
and a shard consists of its parts, one after the other. Neighboring examples therefore come from all
over the corpus, but the order is not a uniform permutation. (The reader shuffles again.)

The same input, settings and seed give the same bytes, wherever the work runs. Output of the same
job is kept and completed, also after a power cut. The manifest is written last.
"""

import dataclasses
import os
import re

import tensorflow as tf

from bert_tf.base.files import file_sha256, shortened
from bert_tf.base.made import Made, describe_files, kept_files
from bert_tf.base.output_files import check_free, remove
from bert_tf.base.progress import say
from bert_tf.examples import describing as report
from bert_tf.examples.chunk import CreationStatistics, ExampleCounts, TextCounts
from bert_tf.examples.creation_options import DataOptions
from bert_tf.examples.job import Job, make_job, plan_shards
from bert_tf.examples.steps import make_shards, tokenize, useful_workers
from bert_tf.jobs.work import UnfinishedWork, finish, read_counts, unfinished_work
from bert_tf.jobs.workers import RunChunks, num_processes, open_runner
from tfrecords.manifest import read_manifest, unfinished_path, write_manifest
from tfrecords.vocabulary import warn_about_casing


def create_pretraining_data(options: DataOptions) -> CreationStatistics | None:
    """Creates the files and prints statistics; with --dry_run, only prints an estimate."""
    job = make_job(options)
    warn_about_casing(job.vocab, job.options.do_lower_case, options.vocab_file)
    if options.dry_run:
        print(report.estimate(job, num_processes(options.num_workers, useful_workers(job))))
        return None
    with open_runner(options, useful_workers(job)) as run_chunks:
        statistics = _create(job, run_chunks)
    say(report.example_report(statistics, job))
    print(f"Wrote {job.manifest} and {shortened(job.output_files, most=1)}.")
    files = options.output_file + ("-*" if options.num_shards else "")
    say(report.next_steps(job, files, statistics.examples.examples))
    return statistics


def _create(job: Job, run_chunks: RunChunks) -> CreationStatistics:
    """Creates the missing output files of a job, then their manifest; reports on the text."""
    made = Made(job.settings(), describe_files(job.input_files))
    path = unfinished_path(job.output_files[0])
    with unfinished_work(path, made, job.options.overwrite) as work:
        manifest = _read_manifest(job.manifest)
        shards = _kept_shards(job, work, made, manifest)
        if len(shards) == len(job.output_files):
            say(report.text_report(CreationStatistics.from_dict(manifest["statistics"]).text, job))
        else:
            work.start(made)
            for number, entry in shards.items():
                finish(work.output_place(number), entry, job.output_files[number])
            manifest = _make_files(job, work, run_chunks, made)
    return CreationStatistics.from_dict(manifest["statistics"])


def _kept_shards(job: Job, work: UnfinishedWork, made: Made, manifest: dict) -> dict[int, dict]:
    """Returns the manifest's entries of the shards that a finished run of the same job left."""
    before = Made.from_dict(manifest)
    same = before.matches(made)
    if work.resumes and not same:
        return {}  # The work folder says which shards there are.
    entries = dict(zip(job.output_files, manifest["shards"], strict=True)) if same else {}
    recorded = {job.manifest: None} | dict.fromkeys(job.output_files)
    recorded |= {file: entry["sha256"] for file, entry in entries.items()}
    kept = kept_files(job.manifest, before, made, recorded, work.overwrite)
    return {n: entries[file] for n, file in enumerate(job.output_files) if file in kept}


def _make_files(job: Job, work: UnfinishedWork, run_chunks: RunChunks, made: Made) -> dict:
    """Creates the shards and the manifest; returns the latter."""
    missing = work.missing(job.output_files)
    tokenize(run_chunks, job, work)
    chunks = {file: CreationStatistics.from_dict(x) for file, x in work.counts("chunks")}
    statistics = sum(chunks.values(), CreationStatistics())
    _check_text(job, statistics.text)
    # Warnings come before the examples, which may take hours.
    say(report.text_report(statistics.text, job))
    # The tokens of each chunk, or the padded length of its documents if they are short.
    sizes = {
        file: max(chunk.text.tokens, chunk.text.documents * job.options.max_seq_length)
        for file, chunk in chunks.items()
        if chunk.text.tokens
    }
    shards = plan_shards(
        [*sizes.values()], job.options.dupe_factor, len(job.output_files), job.options.random_seed
    )
    _remove_other_output(job, made, work.overwrite)
    make_shards(run_chunks, job, work, [*sizes], {n: shards[n] for n in missing})
    entries = [read_counts(work.output_place(n)) for n in range(len(job.output_files))]
    for entry in entries:
        statistics.examples += ExampleCounts(**entry["counts"])
    manifest = made.to_dict() | {
        "vocabulary": "\n".join(job.vocab.lines),
        "statistics": dataclasses.asdict(statistics),
        "shards": entries,
    }
    if values := job.vocab.tokenizer_values():
        manifest["tokenizer"] = values
    write_manifest(job.manifest, manifest, work.overwrite)
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
            f"{job.source} is a single one. {report.LONGER_DOCUMENTS}"
        )


def _remove_other_output(job: Job, made: Made, overwrite: bool) -> None:
    """Removes the manifest and, if another job wrote it, shards that this one does not write."""
    path = job.manifest
    manifest = _read_manifest(path)
    if Made.from_dict(manifest).matches(made):
        return remove(path)
    if not overwrite:
        return check_free(path)
    # Only shards in the same folder whose checksums are those in the manifest.
    folder, entries = os.path.dirname(path), manifest.get("shards", [])
    listed = {os.path.join(folder, str(entry["file"])): entry["sha256"] for entry in entries}
    others = filter(_is_shard, listed.keys() - {*job.output_files})
    remove(*(x for x in others if os.path.dirname(x) == folder and file_sha256(x) == listed[x]))
    remove(path)


def _is_shard(path: str) -> bool:
    """Returns whether a file exists and has the name of a TFRecord file or of a shard of one."""
    named = re.search(r"\.tfrecord$|-\d{5}-of-\d{5}$", path)
    return bool(named) and tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path)


def _read_manifest(path: str) -> dict:
    """Returns a manifest; {} if it is missing, damaged or written by another program."""
    try:
        manifest = read_manifest(path) if tf.io.gfile.exists(path) else {}
        CreationStatistics.from_dict(manifest["statistics"])
        for entry in manifest["shards"]:
            ExampleCounts(**entry["counts"])
    except (KeyError, TypeError, ValueError):
        return {}
    return manifest if manifest.keys() >= {"bert_tf", "settings", "inputs"} else {}

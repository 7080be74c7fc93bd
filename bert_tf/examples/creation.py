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
"""

import dataclasses

import tensorflow as tf

from bert_tf.examples.creation_options import DataOptions
from bert_tf.examples.documents import TextCounts
from bert_tf.examples.estimate import estimate
from bert_tf.examples.job import Job, make_job
from bert_tf.examples.pipeline import ExampleCounts
from bert_tf.examples.plan import plan_shards
from bert_tf.examples.previous_output import describe_job, remove_other_output, restore_finished
from bert_tf.examples.report import (
    CreationStatistics,
    example_report,
    longer_documents,
    next_steps,
    text_report,
)
from bert_tf.examples.runner import LocalRunner, open_runner, useful_workers
from bert_tf.examples.work_folder import WorkFolder, remove_files
from bert_tf.workers import num_processes
from tfrecords.casing import warn_about_casing
from tfrecords.manifest import manifest_path, write_manifest
from tfrecords.progress import say


def create_pretraining_data(options: DataOptions) -> CreationStatistics | None:
    """Creates the files and prints statistics; with --dry_run, only prints an estimate."""
    job = make_job(options)
    warn_about_casing(job.examples.vocab, job.text.lower_case, options.vocab_file)
    num_workers = num_processes(options.num_workers, useful_workers(job))
    if options.dry_run:
        print(estimate(job, num_workers))
        return None
    with open_runner(options.runner, num_workers, options.beam_options) as runner:
        statistics = _create(job, runner, options.overwrite)
    say(example_report(statistics, job))
    first, *others = job.output_files
    written = f"{first} ... {others[-1]}" if others else first
    print(f"Wrote {written} and {manifest_path(first)}.")
    files = options.output_file + ("-*" if options.num_shards else "")
    say(next_steps(job, files, statistics.examples.examples))
    return statistics


def _create(job: Job, runner: LocalRunner, overwrite: bool) -> CreationStatistics:
    """Creates the missing output files of a job, then their manifest; reports on the text.

    Args:
        job: what to create.
        runner: runs the steps.
        overwrite: whether to replace files of another job.
    """
    folder = WorkFolder.beside(job.output_files[0])
    with folder.locked():
        resumes = folder.has_job()
        try:
            description = describe_job(job, folder)
            manifest = restore_finished(job, folder, description, overwrite)
        except (ValueError, OSError):
            if not resumes:
                folder.remove()
            raise
        if manifest:
            say(text_report(TextCounts(**manifest["statistics"]["text"]), job))
        else:
            folder.write_job(description)
            try:
                manifest = _make_files(job, folder, runner, description)
            except ValueError:
                # The same call would fail here again. But an earlier run may have taken hours, and
                # with other settings its work may still be of use.
                if not resumes:
                    _remove_new_files(job, folder)
                raise
        folder.remove()
        return CreationStatistics.from_dict(manifest["statistics"])


def _make_files(job: Job, folder: WorkFolder, runner: LocalRunner, description: dict) -> dict:
    """Creates the shards and the manifest; returns the latter."""
    runner.tokenize(job, folder)
    chunks = folder.chunk_counts()
    statistics = _sum_chunks(chunks)
    _check_text(job, statistics.text)
    # Warnings come before the examples, which may take hours.
    say(text_report(statistics.text, job))
    sizes = {name: _size(job, counts) for name, counts in chunks.items() if counts["tokens"]}
    num_shards = len(job.output_files)
    shards = plan_shards([*sizes.values()], job.dupe_factor, num_shards, job.random_seed)
    remove_other_output(job, description)
    missing = []
    for shard, file in enumerate(job.output_files):
        if not folder.has_shard(shard, file):
            folder.forget_shard(shard)
            missing.append(shards[shard])
    runner.make_shards(job, folder, [*sizes], missing)
    entries = [folder.shard_entry(shard) for shard in range(num_shards)]
    for entry in entries:
        statistics.examples += ExampleCounts(**entry["counts"])
    manifest = description | {
        "vocabulary": "\n".join(job.examples.vocab.lines),
        **({"tokenizer": values} if (values := job.examples.vocab.tokenizer_values()) else {}),
        "statistics": dataclasses.asdict(statistics),
        "shards": entries,
    }
    write_manifest(manifest_path(job.output_files[0]), manifest)
    return manifest


def _size(job: Job, counts: dict) -> int:
    """Returns the tokens of a chunk, or the padded length of its documents if they are short."""
    return max(counts["tokens"], counts["text"]["documents"] * job.examples.max_seq_length)


def _sum_chunks(chunks: dict[str, dict]) -> CreationStatistics:
    statistics = CreationStatistics()
    for counts in chunks.values():
        statistics.text += TextCounts(**counts["text"])
        statistics.long_sentences += counts["long_sentences"]
    return statistics


def _check_text(job: Job, counts: TextCounts) -> None:
    if not counts.documents:
        raise ValueError(
            f"no text in {job.source}: all lines are blank or have no character that the tokenizer "
            "keeps"
        )
    if counts.sentences == 1:
        raise ValueError(
            f"only one sentence in {job.source}, but examples need several."
            f"{longer_documents(counts, job)}"
        )
    if job.examples.objective == "sop" and counts.single_sentences == counts.documents:
        raise ValueError(
            f"--objective=sop needs documents of two sentences or more, but every document in "
            f"{job.source} is a single sentence.{longer_documents(counts, job)} --objective=mlm "
            "needs no pairs of sentences."
        )


def _remove_new_files(job: Job, folder: WorkFolder) -> None:
    """Removes the work folder, and the shards if no manifest of earlier files covers them."""
    if not tf.io.gfile.exists(manifest_path(job.output_files[0])):
        finished = (
            file for shard, file in enumerate(job.output_files) if folder.shard_entry(shard)
        )
        remove_files(finished)
    folder.remove()

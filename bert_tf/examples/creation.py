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
from dataclasses import dataclass, field
from typing import Protocol

import tensorflow as tf

from bert_tf.examples.documents import TextCounts
from bert_tf.examples.job import Job
from bert_tf.examples.pipeline import ExampleCounts
from bert_tf.examples.plan import ShardPart, plan_shards
from bert_tf.examples.previous_output import describe_job, remove_other_output, restore_finished
from bert_tf.examples.text_report import longer_documents, text_report
from bert_tf.examples.work_folder import WorkFolder, remove_files
from tfrecords.manifest import manifest_path, write_manifest
from tfrecords.progress import say


@dataclass
class CreationStatistics:
    """Counts of what was read and created.

    Attributes:
        long_sentences: sentences that are longer than any example.
    """

    text: TextCounts = field(default_factory=TextCounts)
    long_sentences: int = 0
    examples: ExampleCounts = field(default_factory=ExampleCounts)

    @classmethod
    def from_dict(cls, values: dict) -> "CreationStatistics":
        return cls(
            TextCounts(**values["text"]),
            values["long_sentences"],
            ExampleCounts(**values["examples"]),
        )


class Runner(Protocol):
    """Runs the steps on this machine (`local.LocalRunner`) or on Beam (`beam.BeamRunner`)."""

    def tokenize(self, job: Job, folder: WorkFolder) -> None:
        """Turns every block of the input into a chunk."""

    def make_shards(
        self, job: Job, folder: WorkFolder, chunk_names: list[str], shards: list[list[ShardPart]]
    ) -> None:
        """Creates shards, each given as a list of its parts."""


def create(job: Job, runner: Runner, overwrite: bool = False) -> CreationStatistics:
    """Creates the missing output files of a job, then their manifest; reports on the text.

    Args:
        job: what to create.
        runner: runs the steps.
        overwrite: whether to replace files of another job.

    Raises:
        ValueError: existing files were created with other settings or from other input, and the
            message names the difference; or the text yields no examples, and no new files are left
            behind.
        OSError: an input cannot be read, or a file cannot be written. The same call then resumes.
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


def _make_files(job: Job, folder: WorkFolder, runner: Runner, description: dict) -> dict:
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

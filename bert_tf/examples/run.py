"""Runs data creation: from the flags to the files and the report."""

from bert_tf.examples.creation import CreationStatistics, create
from bert_tf.examples.estimate import estimate
from bert_tf.examples.job import make_job
from bert_tf.examples.options import DataOptions
from bert_tf.examples.report import example_report, next_steps, written
from bert_tf.examples.runner import open_runner, useful_workers
from bert_tf.workers import num_processes
from tfrecords.casing import warn_about_casing
from tfrecords.progress import say


def create_pretraining_data(options: DataOptions) -> CreationStatistics | None:
    """Creates the files and prints statistics; with --dry_run, only prints an estimate.

    Raises:
        ValueError, OSError: one line that names the flag or file and says what to do.
    """
    job = make_job(options)
    warn_about_casing(job.examples.vocab, job.text.lower_case, options.vocab_file)
    num_workers = num_processes(options.num_workers, useful_workers(job))
    if options.dry_run:
        print(estimate(job, num_workers))
        return None
    with open_runner(options.runner, num_workers, options.beam_options) as runner:
        statistics = create(job, runner, options.overwrite)
    say(example_report(statistics, job))
    files = options.output_file + ("-*" if options.num_shards else "")
    print(written(job))
    say(next_steps(job, files, statistics.examples.examples))
    return statistics

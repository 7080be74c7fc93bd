"""Opens the runner of a job: processes on this machine, or Apache Beam."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from bert_tf.examples.creation import Runner
from bert_tf.examples.job import Job
from bert_tf.examples.local import LocalRunner
from bert_tf.workers import Workers, available_cores

# Starting a worker takes as long as creating examples from this much text on one core (counting
# each byte once per pass).
_BYTES_PER_WORKER = 2**27


@contextlib.contextmanager
def open_runner(name: str, num_workers: int, beam_options: str | None) -> Iterator[Runner]:
    """Yields the runner, with its worker processes running.

    Args:
        name: "local", or the name of a runner of Apache Beam.
        num_workers: processes of the local runner.
        beam_options: further Beam options, as on its command line.

    Raises:
        ValueError: Beam is not installed.
    """
    if name == "local":
        with Workers(num_workers) as workers:
            yield LocalRunner(workers)
    else:
        # Beam is an optional dependency.
        from bert_tf.examples.beam import BeamRunner

        yield BeamRunner(name, beam_options or "")


def useful_workers(job: Job) -> int:
    """Returns how many workers start in less time than they save."""
    if job.tfds or job.text.split_sentences or job.text.segmenter:
        return available_cores()
    size = sum(tf.io.gfile.stat(file).length for file in job.input_files)
    passes = job.dupe_factor + 2  # Tokenizing takes as long as two passes.
    return 1 + size * passes // _BYTES_PER_WORKER

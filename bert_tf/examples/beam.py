"""Runs data creation on Apache Beam, with the same steps and bytes as on one machine.

The work folder and the output folder must be visible to all workers (`gs://`, `hdfs://` or a
network disk). The first pipeline tokenizes, and the second one creates the shards.
"""

import shlex

from bert_tf.examples.job import Job
from bert_tf.examples.plan import ShardPart
from bert_tf.examples.steps import make_shard, read_group, tokenize_block
from bert_tf.examples.work_folder import WorkFolder
from tfrecords.progress import say

try:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
except ImportError:
    raise ValueError(
        "--runner needs Apache Beam, which is not installed: pip install apache-beam"
    ) from None


class BeamRunner:
    """Runs the steps as Beam pipelines.

    Args:
        runner: "DirectRunner", "DataflowRunner", "FlinkRunner" or "SparkRunner".
        options: further Beam options, as on its command line.
    """

    def __init__(self, runner: str, options: str = "") -> None:
        self._options = PipelineOptions([f"--runner={runner}", *shlex.split(options)])
        # Workers import what they need by name. The main session contains nothing else for them.
        self._options.view_as(SetupOptions).save_main_session = False

    def tokenize(self, job: Job, folder: WorkFolder) -> None:
        """Turns every block of the input into a chunk."""
        say("Tokenizing ...")
        with beam.Pipeline(options=self._options) as pipeline:
            _ = (
                pipeline
                | beam.Create(range(len(job.groups)))
                | "Spread groups" >> beam.Reshuffle()
                | "Read" >> beam.FlatMap(lambda group: read_group(job, folder, group))
                | "Spread blocks" >> beam.Reshuffle()
                | "Tokenize" >> beam.Map(lambda numbered: tokenize_block(job, folder, *numbered))
            )

    def make_shards(
        self, job: Job, folder: WorkFolder, chunk_names: list[str], shards: list[list[ShardPart]]
    ) -> None:
        """Creates shards, each given as a list of its parts."""
        say(f"Creating {len(shards)} files ...")
        with beam.Pipeline(options=self._options) as pipeline:
            _ = (
                pipeline
                | beam.Create(shards)
                | "Spread shards" >> beam.Reshuffle()
                | "Make" >> beam.Map(lambda parts: make_shard(job, folder, chunk_names, parts))
            )

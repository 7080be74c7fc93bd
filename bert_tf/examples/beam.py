"""Data creation on Apache Beam: the same pieces of work, so the same bytes.

The workers share the work folder and the output folder, which must be where all of them see them
(`gs://`, `hdfs://`, a network disk). One pipeline tokenizes, a second makes the shards.
"""

import shlex

from bert_tf.examples.plan import Segment
from bert_tf.examples.work import Work, make_shard, read_group, tokenize_part

try:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
except ImportError:
    raise ValueError(
        "--runner needs Apache Beam, which is not installed: pip install 'bert-tf[beam]'"
    ) from None


class BeamRunner:
    """Does the work on a Beam runner.

    Args:
        runner: "DirectRunner", "DataflowRunner", "FlinkRunner", "SparkRunner".
        options: further options of Beam, as on its command line.
    """

    def __init__(self, runner: str, options: str = "") -> None:
        self._options = PipelineOptions([f"--runner={runner}", *shlex.split(options)])
        # What workers get is pickled by reference; the main session holds nothing of use.
        self._options.view_as(SetupOptions).save_main_session = False

    def tokenize(self, work: Work) -> None:
        """Leaves every chunk of the input in the work folder."""
        print("Tokenizing ...", flush=True)
        with beam.Pipeline(options=self._options) as pipeline:
            _ = (
                pipeline
                | beam.Create(range(len(work.groups)))
                | "Spread groups" >> beam.Reshuffle()
                | "Read" >> beam.FlatMap(lambda group: read_group(work, group))
                | "Spread blocks" >> beam.Reshuffle()
                | "Tokenize" >> beam.Map(lambda part: tokenize_part(work, part))
            )

    def make(self, work: Work, names: list[str], shards: list[list[Segment]]) -> None:
        """Leaves the shards, given by their segments, under their final names."""
        print(f"Making {len(shards)} files ...", flush=True)
        with beam.Pipeline(options=self._options) as pipeline:
            _ = (
                pipeline
                | beam.Create(shards)
                | "Spread shards" >> beam.Reshuffle()
                | "Make" >> beam.Map(lambda shard: make_shard(work, names, shard))
            )

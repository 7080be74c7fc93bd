"""Shows how a training step on the CPU spends its time, by kind of operation.

  python benchmarks/profile_step.py --preset=base --precision=bfloat16

Trains on random batches without padding, records some steps with TensorFlow's profiler, and adds up
the time of each kind, excluding nested operations. Operations that run in parallel all count in
full, so the sum may exceed the time of a step.
"""

import collections
import glob
import tempfile
import time

from pretraining_step import add_sizes, make_trainer, random_batch
from turns import argument_parser, print_table

from bert_tf.base import command

command.import_tensorflow()

import tensorflow as tf  # noqa: E402
from tensorflow.tsl.profiler.protobuf import xplane_pb2  # noqa: E402

from bert_tf.config import preset_config  # noqa: E402

# Records all operations, not only the expensive ones.
_LEVEL = 3


def main() -> None:
    """Prints a table with a row for each kind of operation."""
    parser = argument_parser(__doc__)
    add_sizes(parser)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rows", type=int, default=25)
    options = parser.parse_args()
    sizes = options.batch_size, options.seq_length, options.predictions
    batch = random_batch(*sizes, preset_config(options.preset).vocab_size)
    trainer = make_trainer(options.preset, options.precision)
    iterator = iter(tf.data.Dataset.from_tensors(batch).repeat())
    trainer.train(iterator, 2)
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(
            folder, tf.profiler.experimental.ProfilerOptions(host_tracer_level=_LEVEL)
        ):
            started = time.perf_counter()
            trainer.train(iterator, options.steps)
            seconds = time.perf_counter() - started
        (path,) = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
        with open(path, "rb") as file:
            space = xplane_pb2.XSpace.FromString(file.read())
    times, counts = _by_kind(space)
    step = seconds / options.steps
    print(f"{step * 1e3:,.1f} ms per step\n")
    rows = [(kind, counts[kind], spent) for kind, spent in times.most_common(options.rows)]
    cells = {}
    for kind, count, spent in [*rows, ("all", sum(counts.values()), sum(times.values()))]:
        spent /= 1e12 * options.steps
        count /= options.steps
        cells[kind] = [f"{count:,.0f}", f"{1e3 * spent:,.2f}", f"{spent / step:.1%}"]
    print_table(["number per step", "ms per step", "share of the step"], cells)


def _by_kind(space) -> tuple[collections.Counter, collections.Counter]:
    """Returns the picoseconds and the number of operations of each kind."""
    times, counts = collections.Counter(), collections.Counter()
    for plane in space.planes:
        # Only events of operations have a second name, their kind.
        kinds = {number: event.display_name for number, event in plane.event_metadata.items()}
        for line in plane.lines:
            events = [event for event in line.events if kinds[event.metadata_id]]
            outer: list[tuple[str, int]] = []
            for event in sorted(events, key=lambda event: (event.offset_ps, -event.duration_ps)):
                kind = kinds[event.metadata_id]
                while outer and event.offset_ps >= outer[-1][1]:
                    outer.pop()
                if outer:
                    times[outer[-1][0]] -= event.duration_ps
                outer.append((kind, event.offset_ps + event.duration_ps))
                times[kind] += event.duration_ps
                counts[kind] += 1
    return times, counts


if __name__ == "__main__":
    main()

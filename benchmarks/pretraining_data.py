"""Times create_pretraining_data on one and two cores against the TensorFlow Model Garden's script.

  python benchmarks/pretraining_data.py --text=wiki.txt --vocab=vocab.txt \\
    --garden=/path/to/garden/bin/python

--garden names the Python of a separate environment with tf-models-official. Without it, only
bert_tf runs. All contenders get the same text, vocabulary and flags, and run one after the other,
pinned to their cores. The times include the start of TensorFlow. The table shows the median of
--rounds rounds.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import tensorflow as tf
from turns import argument_parser, print_table


def main() -> None:
    """Runs all contenders and prints a table."""
    parser = argument_parser(__doc__, 3, "garden")
    parser.add_argument("--text", required=True)
    parser.add_argument("--vocab", required=True)
    parser.add_argument("--dupe_factor", type=int, default=10)
    options = parser.parse_args()
    ours = [sys.executable, "-m", "bert_tf.create_pretraining_data"]
    runs = {
        "bert_tf, 1 core": ([*ours, "--num_workers=1"], {0}),
        "bert_tf, 2 cores": ([*ours, "--num_workers=2"], {0, 1}),
    }
    if options.garden:
        garden = [options.garden, "-m", "official.nlp.data.create_pretraining_data"]
        runs["Model Garden, 1 core"] = (garden, {0})
    size = os.path.getsize(options.text) / 1e6
    print(f"{options.text}: {size:.1f} MB, dupe_factor {options.dupe_factor}")
    times: dict[str, list[tuple]] = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, (command, cores) in runs.items():
            times[name].append(_run(command, cores, options))
    rows = {}
    for name, rounds in times.items():
        seconds, cpu, memory, examples = (
            statistics.median(column) for column in zip(*rounds, strict=True)
        )
        rate = f"{examples / seconds:,.0f}"
        rows[name] = [f"{seconds:.1f}", f"{examples:,.0f}", rate, f"{cpu:.1f}", f"{memory:,.0f}"]
    print_table(["seconds", "examples", "examples/s", "CPU seconds", "peak memory, MB"], rows)


def _run(
    command: list[str], cores: set[int], options: argparse.Namespace
) -> tuple[float, float, float, int]:
    """Returns wall seconds, CPU seconds, peak memory of the largest process in MB, and records."""
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "out.tfrecord"
        flags = dict(
            input_file=options.text,
            output_file=output,
            vocab_file=options.vocab,
            dupe_factor=options.dupe_factor,
        )
        started = time.perf_counter()
        # wait4 reports the memory of a child, which a shell's `time` does not.
        process = subprocess.Popen(
            [*command, *(f"--{name}={value}" for name, value in flags.items())],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        if status:
            raise SystemExit(f"{' '.join(command)} failed with status {status}")
        cpu = usage.ru_utime + usage.ru_stime  # Includes its workers.
        batches = tf.data.TFRecordDataset(str(output)).batch(10_000)
        records = sum(len(batch) for batch in batches)
        return seconds, cpu, usage.ru_maxrss / 1e3, records


if __name__ == "__main__":
    main()

"""Measures what the training driver costs per step compared with the bare step.

  python benchmarks/training_loop.py

The bare steps are `Trainer.train` over one batch in memory. The driver takes as many steps on
random records, written to disk at the start, with everything it does: reading, shuffling and
decoding, the progress bar (on standard error), metrics.jsonl, TensorBoard and signal handling.
Checkpoints do not count, because their number depends on the length of a run. Bare steps and the
driver alternate; the cost is the median of the ratios within a round. "Reading alone" is the time
per batch of the input pipeline when no step runs beside it.

Cases are written PRESET:BATCH_SIZE:STEPS. No step is shorter than that of tiny with one row.
"""

import argparse
import statistics
import tempfile
import time
from unittest import mock

from pretraining_step import make_trainer, random_batch
from turns import argument_parser, print_table, spread

from bert_tf.base import command

VOCAB_SIZE, LENGTH, PREDICTIONS = 30522, 128, 20
FILES, RECORDS_PER_FILE = 4, 8192


def main() -> None:
    """Prints a table with one row per case."""
    parser = argument_parser(__doc__, 4)
    parser.add_argument("cases", nargs="*", default=["tiny:1:1000", "base:16:3"])
    parser.add_argument("--precision", default="bfloat16")
    options = parser.parse_args()
    command.import_tensorflow()
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        files = _write_records(folder)
        for case in options.cases:
            preset, batch_size, steps = case.split(":")
            rows[case] = _measure(preset, int(batch_size), int(steps), files, options)
    columns = """bare step, ms | driver, ms per step | cost of the driver (lowest, highest) |
    reading alone, ms per batch"""
    print_table(" ".join(columns.split()).split(" | "), rows)


def _write_records(folder: str) -> list[str]:
    from tfrecords.features import serialize_examples, write_records

    batch = random_batch(RECORDS_PER_FILE, LENGTH, PREDICTIONS, VOCAB_SIZE)
    batch["next_sentence_labels"] = batch["next_sentence_labels"][:, None]
    del batch["example_weights"]
    files = [f"{folder}/{number}.tfrecord" for number in range(FILES)]
    for file in files:
        write_records(file, serialize_examples(batch))
    return files


def _measure(
    preset: str, batch_size: int, steps: int, files: list[str], options: argparse.Namespace
) -> list[str]:
    """Returns the cells of a row."""
    import tensorflow as tf

    from bert_tf.training.driver import Driver, Plan

    trainer = make_trainer(preset, options.precision)
    batches = iter(_dataset(trainer.strategy, files, batch_size))
    bare = iter(tf.data.Dataset.from_tensors(next(batches)).repeat())
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(folder, trainer, Plan(save_checkpoints_steps=10**9, evaluation_steps=10**9))
        for _ in range(options.rounds + 1):
            seconds = _seconds(lambda: trainer.train(bare, steps))
            trainer.restart_means()
            driver_seconds = _driver_seconds(driver, batches, batch_size, steps)
            rounds.append((seconds / steps, driver_seconds / steps))
    reading = _seconds(lambda: [next(batches) for _ in range(1000)]) / 1000
    del rounds[0]  # includes tracing
    costs = [driver / bare - 1 for bare, driver in rounds]
    bare_ms, driver_ms = (1e3 * statistics.median(column) for column in zip(*rounds, strict=True))
    return [f"{bare_ms:.4g}", f"{driver_ms:.4g}", spread(costs, "+.1%"), f"{1e3 * reading:.2g}"]


def _driver_seconds(driver, batches, batch_size: int, steps: int) -> float:
    """Returns the seconds from asking for the first batch to the checkpoint, which is left out."""
    from bert_tf.training.checkpoints import Checkpointer
    from bert_tf.training.driver import Phase

    times = []

    def first_batch(step):
        times.append(time.perf_counter())
        return batches

    phase = Phase(until_step=driver.step + steps, batch_size=batch_size, batches=first_batch)
    with mock.patch.object(Checkpointer, "save", lambda _: times.append(time.perf_counter())):
        driver.train([phase])
    return times[1] - times[0]


def _dataset(strategy, files: list[str], batch_size: int):
    from tfrecords.reader import RecordSet, training_batches

    records = RecordSet(
        files=tuple(files),
        max_seq_length=LENGTH,
        max_predictions_per_seq=PREDICTIONS,
        vocab_size=VOCAB_SIZE,
    )
    return strategy.distribute_datasets_from_function(
        lambda context: training_batches(records, batch_size, context=context)
    )


def _seconds(work) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()

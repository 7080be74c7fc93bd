"""What the training loop costs: `fit`, from TFRecords, beside the bare step.

  python benchmarks/training_loop.py

The bare steps are `Trainer.train` over one batch in memory. `fit` takes as many from records on
disk, written here at random, with all that belongs to it: reading, shuffling and decoding, the
progress bar (on standard error), metrics.jsonl, TensorBoard, listening to signals. A checkpoint
and a drawing of the curves are timed apart: how often they come is a matter of steps and minutes.
Both take turns; the cost is the median of the ratios within a round. "Reading alone" is the time
that the input pipeline needs for a batch when no step runs beside it.

The cases are PRESET:BATCH_SIZE:STEPS; a step of tiny over a single row is as short as they come.
"""

import argparse
import os
import statistics
import tempfile
import time

from contenders import make_trainer, random_batch

from tfrecords import command

VOCAB_SIZE, LENGTH, PREDICTIONS = 30522, 128, 20
FILES, RECORDS_PER_FILE = 4, 8192


def main() -> None:
    """Prints a table with a row for every case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", default=["tiny:1:1000", "base:16:3"])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--precision", default="bfloat16")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    command.import_tensorflow()
    print(
        "| case | bare step, ms | fit, ms | the loop costs (lowest, highest) | "
        "reading alone, ms a batch | a checkpoint, s | curves, s |"
    )
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        files = _write_records(folder)
        for case in options.cases:
            preset, batch_size, steps = case.split(":")
            figures = _measure(preset, int(batch_size), int(steps), files, options)
            print(f"| {case} | {figures} |", flush=True)


def _write_records(folder: str) -> list[str]:
    from tfrecords.features import serialize_examples
    from tfrecords.writer import write_records

    sizes = {"B": RECORDS_PER_FILE, "S": LENGTH, "P": PREDICTIONS, "vocab_size": VOCAB_SIZE}
    batch = random_batch(sizes)
    batch["next_sentence_labels"] = batch["next_sentence_labels"][:, None]
    del batch["example_weights"]
    files = [f"{folder}/{number}.tfrecord" for number in range(FILES)]
    for file in files:
        write_records(file, serialize_examples(batch))
    return files


def _measure(
    preset: str, batch_size: int, steps: int, files: list[str], options: argparse.Namespace
) -> str:
    """The cells of a row."""
    from bert_tf.training.checkpoints import Checkpointer
    from bert_tf.training.loop import fit
    from bert_tf.training.reports import Reports

    trainer = make_trainer(preset, options.precision)
    batches = iter(_dataset(trainer.strategy, files, batch_size))
    bare = iter(_one_batch(batches))
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        saver = Checkpointer(folder, trainer.model, trainer.state)
        no_saver = Checkpointer(folder, trainer.model, trainer.state, writes=False)
        last = (options.rounds + 1) * 2 * steps
        with Reports(folder, 0, last) as reports:
            reports.begin_phase(batch_size)
            for _ in range(options.rounds + 1):
                seconds = _seconds(lambda: trainer.train(bare, steps))
                until = int(trainer.step.numpy()) + steps
                trainer.restart_means()
                fitted = _seconds(
                    lambda until=until: fit(trainer, batches, until, no_saver, reports, 10**9)
                )
                rounds.append((seconds / steps, fitted / steps))
            saving = _seconds(saver.save)
            started = time.perf_counter()
        drawing = time.perf_counter() - started
    reading = _seconds(lambda: [next(batches) for _ in range(1000)]) / 1000
    del rounds[0]  # It traced.
    costs = [fitted / seconds - 1 for seconds, fitted in rounds]
    bare_ms, fit_ms = (1e3 * statistics.median(column) for column in zip(*rounds, strict=True))
    return (
        f"{bare_ms:.4g} | {fit_ms:.4g} | {statistics.median(costs):+.1%} ({min(costs):+.1%}, "
        f"{max(costs):+.1%}) | {1e3 * reading:.2g} | {saving:.2g} | {drawing:.2g}"
    )


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


def _one_batch(batches):
    """The first of the batches, for ever."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensors(next(batches)).repeat()


def _seconds(work) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()

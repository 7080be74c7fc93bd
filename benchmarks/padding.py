"""Compares pre-training that skips padding with pre-training that computes it, on the CPU.

  python benchmarks/padding.py --input_file=train.tfrecord --preset=base --train_batch_size=4

Both train on the same batches of records, in turns. In each round, a ratio says how many times as
fast skipping is; the table shows the median. The share of the tokens that are not padding says what
to expect: where a token costs the same wherever it is, the ratio is 1 divided by it.
"""

import statistics
import time

from pretraining_step import make_trainer
from turns import argument_parser, print_table, spread

from bert_tf.base import command


def main() -> None:
    """Prints a table with a row for each way."""
    parser = argument_parser(__doc__, 4)
    parser.add_argument("--input_file", required=True, help="A file of create_pretraining_data")
    parser.add_argument("--preset", default="base")
    parser.add_argument("--train_batch_size", type=int, default=4)
    parser.add_argument("--max_seq_length", type=int, default=512)
    parser.add_argument("--max_predictions_per_seq", type=int, default=77)
    parser.add_argument("--precision", default="bfloat16", choices=("float32", "bfloat16"))
    parser.add_argument("--steps", type=int, default=4, help="Steps in each round")
    options = parser.parse_args()
    command.import_tensorflow()
    from bert_tf.config import preset_config
    from tfrecords.reader import RecordSet, training_batches

    records = RecordSet(
        files=(options.input_file,),
        max_seq_length=options.max_seq_length,
        max_predictions_per_seq=options.max_predictions_per_seq,
        vocab_size=preset_config(options.preset).vocab_size,
    )
    ways, losses = {"computed": [], "skipped": []}, {}
    trainers = {way: make_trainer(options.preset, options.precision) for way in ways}
    trainers["computed"].model.encoder.skips_padding = False
    batches = {way: iter(training_batches(records, options.train_batch_size)) for way in ways}
    masks = training_batches(records, options.train_batch_size).map(lambda x: x["input_mask"])
    count = options.steps * options.rounds
    real = sum(float(mask.mean()) for mask in masks.take(count).as_numpy_iterator()) / count
    for way, trainer in trainers.items():
        trainer.train(batches[way], 1)
    for _ in range(options.rounds):
        for way, trainer in trainers.items():
            trainer.restart_means()
            started = time.perf_counter()
            trainer.train(batches[way], options.steps)
            ways[way].append((time.perf_counter() - started) / options.steps)
            losses[way] = trainer.training_means()["loss"]
    tokens = real * options.train_batch_size * options.max_seq_length
    print(
        f"{options.preset}, {options.precision}: batches of {options.train_batch_size} x "
        f"{options.max_seq_length}, {real:.1%} of them tokens\n"
    )
    rows = {}
    for way, seconds in ways.items():
        ratios = [a / b for a, b in zip(ways["computed"], seconds, strict=True)]
        rate = tokens / statistics.median(seconds)
        rows[f"padding {way}"] = [f"{rate:,.0f}", spread(ratios), f"{losses[way]:.3f}"]
    print_table(["tokens per second", "faster by a factor of (min, max)", "loss"], rows)


if __name__ == "__main__":
    main()

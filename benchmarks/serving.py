"""Measures a classifier under concurrent callers, with and without batching, on the CPU.

  python benchmarks/serving.py classifier --input_file=texts.txt

The model is a SavedModel of export.classifier for single texts. Each of --callers threads sends the
texts of --input_file one after another, as a server's clients do. The batched calls go through
TensorFlow's batch scheduler, which TensorFlow Serving also uses. There is no server and no network.
The settings take turns. The table shows each setting's texts per second relative to no batching:
the median, lowest and highest ratio of the rounds.
"""

import concurrent.futures
import itertools
import statistics
import time
from collections.abc import Callable

from turns import argument_parser, print_table, spread

from bert_tf.base import command

command.import_tensorflow()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
import tensorflow_text  # noqa: E402, F401

# The most texts of a batch, the milliseconds that a batch waits for more texts, and the number of
# batches that run at a time.
_SETTINGS = (32, 0, 1), (32, 1, 1), (32, 5, 1), (32, 1, 2), (8, 1, 2)


def main() -> None:
    """Prints a table with a row for each setting."""
    parser = argument_parser(__doc__, 4)
    parser.add_argument("model")
    parser.add_argument("--input_file", required=True, help="A text per line")
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=6.0, help="Seconds per setting and round")
    options = parser.parse_args()
    with open(options.input_file, encoding="utf-8") as file:
        texts = [tf.constant([line.rstrip("\n")]) for line in itertools.islice(file, 256)]
    model = tf.saved_model.load(options.model)
    serving = model.signatures["serving_default"]
    calls = {"no batching": lambda text: serving(text=text)}
    for setting in _SETTINGS:
        size, wait, threads = setting
        name = f"up to {size} texts, {wait} ms, {threads} at a time"
        calls[name] = _batched(serving, size, wait, threads)
    latencies: dict[str, list[float]] = {name: [] for name in calls}
    rates: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(options.rounds + 1):
        for name, call in calls.items():
            seconds = _serve(call, texts, options.callers, options.seconds)
            if number:  # the first round warms up
                latencies[name] += seconds
                rates[name].append(len(seconds) / options.seconds)
    rows = {}
    for name in calls:
        ratios = [a / b for a, b in zip(rates[name], rates["no batching"], strict=True)]
        milliseconds = 1e3 * np.percentile(latencies[name], [50, 99])
        rate = f"{statistics.median(rates[name]):.0f}"
        rows[name] = [rate, spread(ratios), *(f"{x:.1f}" for x in milliseconds)]
    columns = ["texts per second", "relative (min, max)", "median, ms", "99th percentile, ms"]
    print_table(columns, rows)


def _batched(serving: Callable, size: int, wait: int, threads: int) -> Callable:
    """Returns a function of one text whose concurrent calls share calls of the model."""

    @tf.nondifferentiable_batch_function(
        num_batch_threads=threads,
        max_batch_size=size,
        batch_timeout_micros=1000 * wait,
        max_enqueued_batches=1000,
    )
    def predict(text):
        return list(serving(text=text).values())

    spec = tf.TensorSpec([None], tf.string)
    return tf.function(predict, autograph=False).get_concrete_function(spec)


def _serve(call: Callable, texts: list, callers: int, seconds: float) -> list[float]:
    """Lets callers send texts for some seconds, and returns how long each text took."""
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    def send(first: int) -> None:
        for text in itertools.islice(itertools.cycle(texts), first, None):
            started = time.perf_counter()
            if started >= end:
                break
            call(text)
            latencies.append(time.perf_counter() - started)

    with concurrent.futures.ThreadPoolExecutor(callers) as pool:
        list(pool.map(send, (len(texts) * number // callers for number in range(callers))))
    return latencies


if __name__ == "__main__":
    main()

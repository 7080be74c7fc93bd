"""Compares how long models take from a raw text to its answer, one text at a time, on the CPU.

  python benchmarks/predict_latency.py mrpc mrpc-int8.tflite --input_file=pairs.tsv

The models are what predict takes as --checkpoint: a run folder computes with TensorFlow in float32,
a .tflite file with LiteRT. --input_file is that of predict, too; its first texts are used.

Each model is a process of its own, and they take turns; see turns.py. In each round, a ratio says
how many times as fast as the first model another one is. The table shows the medians. Below it, the
mean of the largest probabilities, or of the values, shows that the models compute the same.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Callable

from turns import Process, serve, take_turns


def main() -> None:
    """Compares all models, or with --serve runs one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*")
    parser.add_argument("--input_file")
    parser.add_argument("--num_texts", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--sizes", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(lambda: _predictions(options.sizes["models"][int(options.serve)], options.sizes))
    elif not options.models or not options.input_file:
        parser.error("give models and --input_file")
    else:
        _compare(options)


def _compare(options: argparse.Namespace) -> None:
    names = ("models", "input_file", "num_texts")
    sizes = {name: getattr(options, name) for name in names}
    with tempfile.TemporaryDirectory() as folder:
        processes = {
            model: Process(__file__, str(number), sys.executable, sizes, pathlib.Path(folder))
            for number, model in enumerate(options.models)
        }
        rounds = take_turns(processes, options.rounds)
    first = options.models[0]
    print(f"\n{options.num_texts} texts of {options.input_file}, {options.rounds} rounds\n")
    print(f"| | milliseconds per text | times as fast as {first} (min, max) |\n|---|---|---|")
    for model, process in processes.items():
        print(f"| {model} | {process.failure or _figures(model, first, rounds, options)} |")
    for model, process in processes.items():
        print(f"\n{model}: {process.failure or process.description}")


def _figures(
    model: str, first: str, rounds: list[dict[str, float]], options: argparse.Namespace
) -> str:
    """Returns the cells of a row."""
    seconds = statistics.median(times[model] for times in rounds) / options.num_texts
    ratios = [times[first] / times[model] for times in rounds]
    factor = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}, {max(ratios):.2f})"
    return f"{1e3 * seconds:.4g} | {'' if model == first else factor}"


def _predictions(model: str, sizes: dict) -> tuple[Callable[[int], float], str]:
    """Returns a function that predicts all texts, one by one, and a description of the result."""
    from tfrecords import command

    command.import_tensorflow()
    import tensorflow as tf

    from bert_tf.inference.examples import read_examples
    from bert_tf.inference.inference_options import PredictOptions as Options
    from bert_tf.inference.predictor import load_predictor

    options = Options(checkpoint=model, input_file=sizes["input_file"], batch_size=1)
    predictor = load_predictor(options)
    chunks = read_examples(options, predictor.signature)
    examples = [example for chunk in chunks for example in chunk][: sizes["num_texts"]]
    if len(examples) < sizes["num_texts"]:
        raise ValueError(f"{options.input_file} has only {len(examples)} texts: set --num_texts")

    def take_steps(steps: int) -> float:
        for _ in range(steps):
            answers = [predictor.predict([example])[0] for example in examples]
        return statistics.mean(map(_check, answers))

    return take_steps, f"TensorFlow {tf.__version__}; mean of the largest probabilities or values"


def _check(answer: dict) -> float:
    return max(answer["probabilities"].values()) if "probabilities" in answer else answer["value"]


if __name__ == "__main__":
    main()

"""Compares how long models take from a raw text to its answer, one text at a time, on the CPU.

  python benchmarks/predict_latency.py mrpc mrpc-int8.tflite --input_file=pairs.tsv

The models are what predict takes as --checkpoint: a run folder computes with TensorFlow in float32,
a .tflite file with LiteRT. --input_file is that of predict, too; its first texts are used.

Each model is a process of its own, and they take turns; see turns.py. In each round, a ratio says
how many times as fast as the first model another one is. The table shows the medians. Below it, the
mean of the largest probabilities, or of the values, shows that the models compute the same.
"""

import argparse
import statistics

from turns import Contender, argument_parser, calls, compare, parse, times_as_fast, versions


def main() -> None:
    """Compares all models."""
    parser = argument_parser(__doc__, 6)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--input_file", required=True)
    parser.add_argument("--num_texts", type=int, default=32)
    options = parse(parser, _predictions)
    first = options.models[0]

    def cells(model: str, rounds: list[dict]) -> list[str]:
        seconds = statistics.median(times[model] for times in rounds) / options.num_texts
        return [f"{1e3 * seconds:.4g}", times_as_fast(model, first, rounds)]

    compare(
        options,
        options.models,
        {},
        f"{options.num_texts} texts of {options.input_file}",
        ["milliseconds per text", f"times as fast as {first} (min, max)"],
        cells,
    )


def _predictions(model: str, flags: argparse.Namespace) -> Contender:
    """Returns a function that predicts all texts, one by one, and a description of the result."""
    from bert_tf.base import command

    command.import_tensorflow()
    from bert_tf.inference.inference_options import PredictOptions as Options
    from bert_tf.inference.predictor import open_predictor
    from bert_tf.inference.texts import read_examples

    options = Options(checkpoint=model, input_file=flags.input_file, batch_size=1)
    predictor = open_predictor(options)
    chunks = read_examples(options, predictor.signature)
    examples = [example for chunk in chunks for example in chunk][: flags.num_texts]
    if len(examples) < flags.num_texts:
        raise ValueError(f"{options.input_file} has only {len(examples)} texts: set --num_texts")
    return (
        calls(
            lambda: [predictor.predict([example])[0] for example in examples],
            lambda answers: statistics.mean(map(_check, answers)),
        ),
        f"{versions('tensorflow')}; mean of the largest probabilities or values",
    )


def _check(answer: dict) -> float:
    return max(answer["probabilities"].values()) if "probabilities" in answer else answer["value"]


if __name__ == "__main__":
    main()

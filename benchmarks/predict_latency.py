"""Compares how long models take from raw texts to their answers, on the CPU.

  python benchmarks/predict_latency.py mrpc mrpc-int8.tflite --input_file=pairs.tsv

  python -m venv hf && hf/bin/pip install sentence-transformers
  python benchmarks/predict_latency.py all-MiniLM-L6-v2 --vectors --input_file=texts.txt \\
    --huggingface=hf/bin/python

The models are what predict takes as --checkpoint: a run folder computes with TensorFlow in float32,
a .tflite file with LiteRT. With --vectors, they are what load_embedder takes, and the contender
Hugging Face is sentence-transformers with the first of them. --input_file is that of predict, or a
file with a text per line for --vectors; its first texts are used, one at a time, or with --at_once
all in one call.

Each model is a process of its own, and they take turns; see turns.py. In each round, a ratio says
how many times as fast as the first model another one is. The table shows the medians. Below it, the
mean of the largest probabilities, of the values, or of the vectors' absolute values, shows that the
models compute the same.
"""

import argparse
import itertools
import statistics
from collections.abc import Callable, Sequence

from turns import (
    HUGGING_FACE,
    Contender,
    argument_parser,
    calls,
    compare,
    parse,
    times_as_fast,
    versions,
)


def main() -> None:
    """Compares all models."""
    parser = argument_parser(__doc__, 6, "huggingface")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--input_file", required=True)
    parser.add_argument("--num_texts", type=int, default=32)
    parser.add_argument("--vectors", action="store_true")
    parser.add_argument("--at_once", action="store_true", help="All texts in one call")
    options = parse(parser, _contender)
    first = options.models[0]

    def cells(model: str, rounds: list[dict]) -> list[str]:
        seconds = statistics.median(times[model] for times in rounds) / options.num_texts
        return [f"{1e3 * seconds:.4g}", times_as_fast(model, first, rounds)]

    compare(
        options,
        [*options.models, *([HUGGING_FACE] if options.vectors else [])],
        {},
        f"{options.num_texts} texts of {options.input_file}, "
        f"{'all at once' if options.at_once else 'one at a time'}",
        ["milliseconds per text", f"times as fast as {first} (min, max)"],
        cells,
    )


def _contender(model: str, flags: argparse.Namespace) -> Contender:
    """Returns a function that computes all texts, and a description of the result."""
    make = _huggingface if model == HUGGING_FACE else _encoder if flags.vectors else _predictor
    compute, inputs, package = make(model, flags)
    if len(inputs) < flags.num_texts:
        raise ValueError(f"{flags.input_file} has only {len(inputs)} texts: set --num_texts")
    parts = [inputs] if flags.at_once else [[text] for text in inputs]
    steps = calls(
        lambda: [answer for part in parts for answer in compute(part)],
        lambda answers: statistics.mean(map(_check, answers)),
    )
    return steps, f"{versions(package)}; mean of the largest probabilities, or absolute values"


def _predictor(model: str, flags: argparse.Namespace) -> tuple[Callable, list[dict], str]:
    """Returns what maps examples to answers, the examples, and the package that computes."""
    from bert_tf.base import command

    command.import_tensorflow()
    from bert_tf.inference.inference_options import PredictOptions as Options
    from bert_tf.inference.predictor import open_predictor
    from bert_tf.inference.texts import read_examples

    options = Options(checkpoint=model, input_file=flags.input_file)
    predictor = open_predictor(options)
    chunks = read_examples(options, predictor.signature)
    examples = list(itertools.islice(itertools.chain.from_iterable(chunks), flags.num_texts))
    return lambda part: predictor.predict(part)[0], examples, "tensorflow"


def _encoder(model: str, flags: argparse.Namespace) -> tuple[Callable, list[str], str]:
    """Returns what maps texts to vectors, the texts, and the package that computes."""
    from bert_tf.base import command

    command.import_tensorflow()
    import bert_tf

    return bert_tf.load_embedder(model).encode, _lines(flags), "tensorflow"


def _huggingface(_: str, flags: argparse.Namespace) -> tuple[Callable, list[str], str]:
    """Does the same as `_encoder`, with the first model."""
    from sentence_transformers import SentenceTransformer

    encode = SentenceTransformer(flags.models[0], device="cpu").encode
    return encode, _lines(flags), "sentence-transformers"


def _lines(flags: argparse.Namespace) -> list[str]:
    with open(flags.input_file, encoding="utf-8") as file:
        return [line.rstrip("\n") for line in itertools.islice(file, flags.num_texts)]


def _check(answer: dict | Sequence[float]) -> float:
    if not isinstance(answer, dict):
        return float(abs(answer).mean())
    return max(answer["probabilities"].values()) if "probabilities" in answer else answer["value"]


if __name__ == "__main__":
    main()

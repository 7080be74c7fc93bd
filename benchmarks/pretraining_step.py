"""Compares the speed of a BERT pre-training step on the CPU: bert_tf, KerasHub and two others.

  python -m venv garden && garden/bin/pip install tf-models-official
  python -m venv hf && hf/bin/pip install transformers torch --extra-index-url \\
    https://download.pytorch.org/whl/cpu
  python benchmarks/pretraining_step.py --garden=garden/bin/python --huggingface=hf/bin/python
  python benchmarks/pretraining_step.py --garden=garden/bin/python \\
    --contenders bert_tf 'bert_tf, float32' 'Model Garden'

A step is the forward pass, the backward pass, clipping and AdamW over one batch in memory of random
ids without padding: 30522 tokens, dropout 0.1, masked-LM and next-sentence loss. Every contender is
what its own library trains with:

  bert_tf       Trainer
  KerasHub      BertBackbone, MaskedLMHead, a dense layer and Keras' AdamW in a tf.function
  Model Garden  MaskedLMTask (BertPretrainerV2, the original's AdamW, tf_keras)
  Hugging Face  BertForPreTraining with scaled_dot_product_attention, bfloat16 autocast and torch's
                fused AdamW

Hugging Face computes the logits of all positions, the others only those of the predictions. bert_tf
and the Garden also count accuracies.

Each contender is a process of its own, which stays alive and takes steps in turn with the others,
so that other load on the machine affects all alike. Keep the machine idle nevertheless: torch's
threads wait for each other so often that other work slows it down far more than the rest. Ratios
are taken within a round; the table shows their medians. Utilization compares the step's matrix
products (`bert_tf.models.flops`) with a large bfloat16 matmul of TensorFlow in the same round. A
contender that fails, or has no interpreter, is shown with the reason. For base, the four contenders
of the first command need 20 GB of memory together.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from contenders import CONTENDERS, MATMUL, MATMUL_SIZE, Contender

PEERS = [name for name in CONTENDERS if name != MATMUL]
TURN_SECONDS = 3.0


def main() -> None:
    """Compares all contenders, or with --serve takes the steps of one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--garden", help="Python interpreter of an environment with tf-models-official"
    )
    parser.add_argument(
        "--huggingface", help="Python interpreter of an environment with transformers and torch"
    )
    parser.add_argument("--contenders", nargs="+", choices=PEERS, default=PEERS[:4])
    parser.add_argument("--preset", default="base")
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--seq_length", type=int, default=128)
    parser.add_argument("--predictions", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--sizes", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        _serve(CONTENDERS[options.serve], options.sizes)
    else:
        _compare(options)


def _compare(options: argparse.Namespace) -> None:
    sizes = _sizes(options)
    pythons = {"Model Garden": options.garden, "Hugging Face": options.huggingface}
    with tempfile.TemporaryDirectory() as folder:
        processes = {
            name: Process(name, pythons.get(name, sys.executable), sizes, pathlib.Path(folder))
            for name in [*options.contenders, MATMUL]
        }
        rounds: list[dict[str, float]] = []
        for number in range(options.rounds):
            rounds.append({name: process.turn() for name, process in processes.items()})
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
        for process in processes.values():
            process.end()
    print(
        f"{options.preset}: batch {sizes['B']}, length {sizes['S']}, {sizes['P']} predictions, "
        f"{sizes['flops'] / 1e12:.3g} TFLOP per step, {options.rounds} rounds\n"
    )
    print("| | seconds per step | sequences/s | relative to the Garden (min, max) | utilization |")
    print("|---|---|---|---|---|")
    for name, process in processes.items():
        print(f"| {name} | {process.failure or _figures(name, rounds, sizes)} |")
    for name, process in processes.items():
        if not process.failure and name != MATMUL:
            print(f"\n{name}: {process.description}")


def _figures(name: str, rounds: list[dict], sizes: dict) -> str:
    """Returns the cells of a row."""
    seconds = statistics.median(times[name] for times in rounds)
    if name == MATMUL:
        return f"{seconds:.4g} | | | {2e-9 * MATMUL_SIZE**3 / seconds:.0f} GFLOP/s"
    ratios = [times["Model Garden"] / times[name] for times in rounds if times.get("Model Garden")]
    compared = (
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f}, {max(ratios):.2f})" if ratios else ""
    )
    work = sizes["flops"] / (2 * MATMUL_SIZE**3)  # as a number of matmuls
    used = [work * times[MATMUL] / times[name] for times in rounds if times[MATMUL]]
    utilization = f"{statistics.median(used):.0%}" if used else ""
    return f"{seconds:.4g} | {sizes['B'] / seconds:.3g} | {compared} | {utilization}"


class Process:
    """A contender in its own process, run by its own interpreter."""

    def __init__(self, name: str, python: str | None, sizes: dict, folder: pathlib.Path):
        self.failure = "" if python else "not run: no interpreter given"
        self.description = ""
        if self.failure:
            return
        self._errors = folder / name
        command = [python, __file__, f"--serve={name}", f"--sizes={json.dumps(sizes)}"]
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
        try:
            with self._errors.open("w") as errors:
                self._process = subprocess.Popen(command, stderr=errors, env=environment, **pipes)
        except OSError as error:
            self.failure = f"not run: {error}"
            return
        self.description = json.loads(self._answer() or "null")
        print(f"{name}: {self.failure or 'ready'}", file=sys.stderr)

    def turn(self) -> float:
        """Takes steps for a few seconds and returns the seconds per step; 0 after a failure."""
        if not self.failure:
            print("go", file=self._process.stdin, flush=True)
        return 0.0 if self.failure else float(self._answer() or 0)

    def end(self) -> None:
        """Ends the process."""
        if not self.failure:
            self._process.communicate()

    def _answer(self) -> str:
        answer = self._process.stdout.readline()
        if not answer:
            status = self._process.wait()
            lines = self._errors.read_text().split("\n")
            messages = [line for line in lines if line.strip()] or [f"status {status}"]
            self.failure = f"not run: {messages[-1].strip()[:200]}"
        return answer


def _serve(make: Callable[[dict], Contender], sizes: dict) -> None:
    """Describes the contender, then times steps for each line on standard input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # so that libraries cannot print among the answers
    take_steps, parameters, versions = make(sizes)
    loss = take_steps(1)
    steps = 1
    take_steps(steps)
    description = f"{versions}; {parameters:,} parameters; loss of the first step {loss:.3f}"
    print(json.dumps(description), file=answers, flush=True)
    for _ in sys.stdin:
        started = time.perf_counter()
        take_steps(steps)
        seconds = time.perf_counter() - started
        print(seconds / steps, file=answers, flush=True)
        steps = max(1, round(TURN_SECONDS * steps / seconds))


def _sizes(options: argparse.Namespace) -> dict:
    from tfrecords import command

    command.import_tensorflow()
    from bert_tf.models.flops import training_flops
    from bert_tf.presets import preset_config

    config = preset_config(options.preset)
    flops = training_flops(config, options.seq_length, options.predictions)
    return {
        "flops": options.batch_size * flops,
        "preset": options.preset,
        "B": options.batch_size,
        "S": options.seq_length,
        "P": options.predictions,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "intermediate_size": config.intermediate_size,
    }


if __name__ == "__main__":
    main()

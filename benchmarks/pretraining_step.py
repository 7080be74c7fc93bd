"""Compares the speed of a BERT pre-training step on the CPU: bert_tf, KerasHub and two others.

  python -m venv garden && garden/bin/pip install tf-models-official
  python -m venv hf && hf/bin/pip install transformers torch --extra-index-url \\
    https://download.pytorch.org/whl/cpu
  python benchmarks/pretraining_step.py --garden=garden/bin/python --huggingface=hf/bin/python
  python benchmarks/pretraining_step.py --garden=garden/bin/python --precision=float32

A step is the forward pass, the backward pass, clipping and AdamW over one batch in memory of random
ids without padding: 30522 tokens, dropout 0.1, masked-LM and next-sentence loss. Every contender is
what its own library trains with:

  bert_tf       Trainer
  KerasHub      BertBackbone, MaskedLMHead, a dense layer and Keras' AdamW in a tf.function
  Model Garden  MaskedLMTask (BertPretrainerV2, the original's AdamW, tf_keras)
  Hugging Face  BertForPreTraining with scaled_dot_product_attention, autocast and torch's fused
                AdamW

Hugging Face computes the logits of all positions, the others only those of the predictions. bert_tf
and the Garden also count accuracies.

Each contender is a process of its own, which stays alive and takes steps in turn with the others,
so that other load on the machine affects all alike. Keep the machine idle nevertheless: torch's
threads wait for each other so often that other work slows it down far more than the rest. Ratios
are taken within a round; the table shows their medians. Utilization compares the step's matrix
products (`bert_tf.models.flops`) with a large matmul of TensorFlow in the same round. A
contender that fails, or has no interpreter, is shown with the reason. For base, the four contenders
of the first command need 20 GB of memory together.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Callable

from contenders import CONTENDERS, MATMUL, MATMUL_SIZE
from turns import Process, argument_parser, serve, take_turns

PEERS = [name for name in CONTENDERS if name != MATMUL]


def main() -> None:
    """Compares all contenders, or with --serve takes the steps of one."""
    parser = argument_parser(__doc__)
    parser.add_argument("--contenders", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--precision", default="bfloat16", choices=("float32", "bfloat16"))
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--predictions", type=int, default=20)
    options = parser.parse_args()
    if options.serve:
        serve(lambda: _make(options.serve, options.sizes))
    else:
        _compare(options)


def _compare(options: argparse.Namespace) -> None:
    sizes = _sizes(options)
    pythons = {"Model Garden": options.garden, "Hugging Face": options.huggingface}
    with tempfile.TemporaryDirectory() as folder:
        processes = {
            name: Process(
                __file__, name, pythons.get(name, sys.executable), sizes, pathlib.Path(folder)
            )
            for name in [*options.contenders, MATMUL]
        }
        rounds = take_turns(processes, options.rounds)
    print(
        f"{options.preset}, {options.precision}: batch {sizes['B']}, length {sizes['S']}, "
        f"{sizes['P']} predictions, {sizes['flops'] / 1e12:.3g} TFLOP per step, "
        f"{options.rounds} rounds\n"
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


def _make(name: str, sizes: dict) -> tuple[Callable[[int], float], str]:
    take_steps, parameters, versions = CONTENDERS[name](sizes)
    return take_steps, f"{versions}; {parameters:,} parameters; loss of the first step"


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
        "precision": options.precision,
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

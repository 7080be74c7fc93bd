"""Compiles a pre-training step for a TPU, without a TPU: does it fit, and how fast might it be?

  python -m bert_tf.tpu_check --preset=base --train_batch_size=32 --topology=v5e:2x2

The step is that of run_pretraining with the flags of the same names, and the compiler is the TPU's
own: pip install 'bert-tf[tpu-check]'. It needs no data. Each compile of the base preset takes some
minutes and 7 GB of memory; the search for the largest batch takes three or four.
"""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfrecords import command
from tfrecords.command import option

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_tf.config import BertConfig
    from bert_tf.tpu.compiler import CompiledStep
    from bert_tf.training.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class Options(command.Options):
    """The flags."""

    bert_config_file: str | None = option(None, help="The encoder's bert_config.json.")
    preset: str | None = option(
        None,
        help="A published size in place of --bert_config_file: tiny, mini, small, medium, base, "
        "large or L-6_H-256 and the like.",
    )
    topology: str = option("v5e:2x2", help="The TPU: its version and the chips in each dimension.")
    train_batch_size: int = option(
        32, at_least=1, help="Sequences a step, over all chips together."
    )
    max_seq_length: int = option(128, at_least=1, help="Tokens of a sequence.")
    max_predictions_per_seq: int = option(20, at_least=1, help="Masked positions of a sequence.")
    precision: str = option(
        "bfloat16",
        help="Type of the activations and matrix products; variables stay float32.",
        choices=("float32", "bfloat16"),
    )
    rematerialize: str = option(
        "selective",
        help="What to compute anew for the gradient instead of keeping it; layers changes nothing, "
        "for the compiler finds the second computation to be the first.",
        choices=("none", "selective", "layers"),
    )
    find_largest_batch: bool = option(
        True, help="Search for the largest batch that fits; --nofind_largest_batch saves the time."
    )


def run(options: Options) -> None:
    """Prints the report.

    Raises:
        ValueError, OSError: one line that names the flag and what to do; also where the step does
            not fit.
    """
    from bert_tf.tpu import report
    from bert_tf.tpu.batch_size import attempt, find_largest_batch
    from bert_tf.tpu.chips import Topology
    from bert_tf.tpu.compiler import DoesNotFit, TpuCompiler

    started = time.perf_counter()
    config = _checked_config(options)
    topology = Topology.parse(options.topology)
    size, rest = divmod(options.train_batch_size, topology.num_replicas)
    if rest:
        raise ValueError(
            f"--train_batch_size={options.train_batch_size} cannot be shared out evenly: "
            f"{topology.name} has {topology.num_replicas} replicas"
        )
    compiler = TpuCompiler(topology)
    trainer = _trainer(options, config)
    parameters = trainer.model.count_params()
    subject = report.Subject(
        model=f"{options.preset or options.bert_config_file}, {config.num_hidden_layers} layers of "
        f"{config.hidden_size}, {parameters:,} parameters",
        precision=options.precision,
        max_seq_length=options.max_seq_length,
        max_predictions_per_seq=options.max_predictions_per_seq,
        batch_size=size,
        gradient_bytes=4 * parameters,
        topology=topology,
    )
    print(f"{report.describe_subject(subject)}\n\nCompiling", flush=True)

    def compile_at(size: int) -> "CompiledStep":
        elapsed = time.perf_counter() - started
        print(f"[{elapsed:5.0f} s] {size} sequences a {subject.replica}: ", end="", flush=True)
        try:
            step = compiler.compile(
                lambda batch: trainer.strategy.run(trainer.replica_step, (batch,)),
                _example_batch(options, size),
            )
        except DoesNotFit as error:
            print(f"do not fit, {error}", flush=True)
            raise
        print(f"fit, {step.memory / 1e9:,.2f} GB", flush=True)
        return step

    step = attempt(compile_at, size)
    print(f"\n{report.describe_step(subject, step)}\n", flush=True)
    if options.find_largest_batch:
        largest = find_largest_batch(compile_at, size, step, subject.memory)
        print(f"\n{report.describe_largest(subject, largest)}")
    if isinstance(step, DoesNotFit):
        raise ValueError(
            f"--train_batch_size={options.train_batch_size} does not fit on {topology.name}; a "
            "smaller batch or a larger slice may"
        )


def _checked_config(options: Options) -> "BertConfig":
    from bert_tf.config import BertConfig
    from bert_tf.presets import preset_config

    if (options.bert_config_file is None) == (options.preset is None):
        raise ValueError("give one of --bert_config_file and --preset")
    name = options.preset or options.bert_config_file
    config = preset_config(name) if options.preset else BertConfig.from_json_file(name)
    if options.max_seq_length > config.max_position_embeddings:
        raise ValueError(
            f"--max_seq_length={options.max_seq_length} is longer than the "
            f"max_position_embeddings {config.max_position_embeddings} of {name}"
        )
    return config


def _trainer(options: Options, config: "BertConfig") -> "Trainer":
    """What run_pretraining trains with, for one replica."""
    import tensorflow as tf

    from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective
    from bert_tf.training.optimizers import AdamW
    from bert_tf.training.schedules import make_schedule
    from bert_tf.training.strategy import set_precision
    from bert_tf.training.trainer import Trainer

    set_precision(options.precision)
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        model = BertPretrainer(config, rematerialize=options.rematerialize)
        optimizer = AdamW(model.trainable_weights)
    schedule = make_schedule("linear", 1e-4, num_train_steps=100_000, num_warmup_steps=10_000)
    return Trainer(strategy, model, PretrainingObjective(), optimizer, schedule)


def _example_batch(options: Options, size: int) -> "dict[str, tf.Tensor]":
    """What `training_batches` gives, of zeros: only shapes and types matter."""
    import tensorflow as tf

    tokens = tf.zeros([size, options.max_seq_length], tf.int32)
    words = tf.zeros([size, options.max_predictions_per_seq], tf.int32)
    return {
        "input_word_ids": tokens,
        "input_mask": tokens,
        "input_type_ids": tokens,
        "masked_lm_positions": words,
        "masked_lm_ids": words,
        "masked_lm_weights": tf.cast(words, tf.float32),
        "next_sentence_labels": tokens[:, 0],
        "example_weights": tf.zeros([size]),
    }


def main() -> None:
    """The command."""
    command.run(Options, run)


if __name__ == "__main__":
    main()

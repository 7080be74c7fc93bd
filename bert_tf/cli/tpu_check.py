"""Compiles a pre-training step for a TPU without one: does it fit?

  python -m bert_tf.tpu_check --preset=base --train_batch_size=32 --topology=v5e:2x2

The step is that of run_pretraining with the flags of the same names. The compiler is the TPU's own
(pip install 'jax>=0.10.2' 'libtpu>=0.0.52'), and no data is needed. For the base preset, a
compilation takes some minutes and 7 GB of memory; the search for the largest batch takes several
compilations.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bert_tf.choices import BATCH, REMATERIALIZATIONS, TOKENS
from tfrecords import command
from tfrecords.command import option

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_tf.config import BertConfig
    from bert_tf.training.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class Options(command.Options):
    """The flags of the command."""

    bert_config_file: str | None = option(None, help="bert_config.json of the encoder.")
    preset: str | None = option(
        None,
        help="Published size to use instead of --bert_config_file: tiny, mini, small, medium, "
        "base, large, or one like L-6_H-256.",
    )
    topology: str = option("v5e:2x2", help="TPU version and number of chips in each dimension.")
    train_batch_size: int = option(32, **BATCH, help="Sequences per step, over all chips.")
    max_seq_length: int = option(128, **TOKENS, help="Tokens per sequence.")
    max_predictions_per_seq: int = option(20, **TOKENS, help="Masked positions per sequence.")
    precision: str = option(
        "bfloat16",
        help="Type of the activations and matrix products. Variables stay in float32.",
        choices=("float32", "bfloat16"),
    )
    rematerialize: str = option(
        "selective",
        help="What to recompute in the backward pass instead of keeping it. layers has no effect, "
        "because the compiler merges the recomputation with the first computation.",
        choices=REMATERIALIZATIONS,
        rare=True,
    )
    find_largest_batch: bool = option(
        True, help="Search for the largest batch that fits, which takes more compilations."
    )


def run(options: Options) -> None:
    """Prints the report.

    Raises:
        ValueError, OSError: a flag is wrong, or the step does not fit; one line that names the
            flag and what to do.
    """
    from bert_tf.tpu.check import check_step
    from bert_tf.tpu.chips import Topology
    from bert_tf.tpu.compiler import TpuCompiler
    from bert_tf.tpu.report import Subject

    config = _read_config(options)
    topology = Topology.parse(options.topology)
    size, rest = divmod(options.train_batch_size, topology.num_replicas)
    if rest:
        raise ValueError(
            f"--train_batch_size={options.train_batch_size} is not a multiple of the "
            f"{topology.num_replicas} replicas of {topology.name}: use a multiple of it"
        )
    compiler = TpuCompiler(topology)
    trainer = _make_trainer(options, config)
    parameters = trainer.model.count_params()
    subject = Subject(
        model=f"{options.preset or options.bert_config_file}, {config.num_hidden_layers} layers of "
        f"{config.hidden_size}, {parameters:,} parameters",
        precision=options.precision,
        max_seq_length=options.max_seq_length,
        max_predictions_per_seq=options.max_predictions_per_seq,
        batch_size=size,
        gradient_bytes=4 * parameters,
        topology=topology,
    )
    fits = check_step(
        compiler,
        subject,
        step=lambda batch: trainer.strategy.run(trainer.replica_step, (batch,)),
        example_batch=lambda size: _example_batch(options, size),
        search=options.find_largest_batch,
    )
    if not fits:
        raise ValueError(
            f"--train_batch_size={options.train_batch_size} does not fit on {topology.name}: use a "
            "smaller batch or a larger slice"
        )


def _read_config(options: Options) -> "BertConfig":
    from bert_tf.config import BertConfig
    from bert_tf.presets import preset_config
    from bert_tf.resolution import check_length

    if (options.bert_config_file is None) == (options.preset is None):
        raise ValueError("give either --bert_config_file or --preset")
    if options.preset:
        config = preset_config(options.preset)
    else:
        config = BertConfig.from_json_file(options.bert_config_file)
    check_length(config, options.max_seq_length)
    return config


def _make_trainer(options: Options, config: "BertConfig") -> "Trainer":
    """Creates the trainer of run_pretraining, for one replica."""
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
    """Creates a batch of zeros with the shapes and types of training data."""
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


if __name__ == "__main__":
    command.run(Options, run)

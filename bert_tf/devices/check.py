"""Compiles a training step for a device and prints what the compiler reports."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Mapping

import tensorflow as tf

from bert_tf.base.progress import say
from bert_tf.config import BertConfig
from bert_tf.devices import report
from bert_tf.devices.batch_size import find_largest_batch
from bert_tf.devices.compiler import CompiledStep, DoesNotFit, compile_step
from bert_tf.devices.device_check_options import DeviceCheckOptions
from bert_tf.devices.gpu import GpuTarget
from bert_tf.devices.topology import Topology
from bert_tf.devices.tpu import TpuTarget
from bert_tf.models.inputs import INPUTS
from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective
from bert_tf.models.token_capacity import TokenCapacity
from bert_tf.presets import preset_config
from bert_tf.resolution import check_length
from bert_tf.tracing import compiling_for_gpu
from bert_tf.training.optimizers import AdamW, make_schedule
from bert_tf.training.strategy import set_precision
from bert_tf.training.trainer import Trainer


def check(options: DeviceCheckOptions) -> None:
    """Prints the report."""
    config = _read_config(options)
    topology = Topology.parse(options.device)
    if options.train_batch_size % topology.num_replicas:
        raise ValueError(
            f"--train_batch_size={options.train_batch_size} is not a multiple of the "
            f"{topology.num_replicas} replicas of {topology.name}: use a multiple of it"
        )
    peak_flops = topology.peak_flops(options.precision)
    target = GpuTarget(topology) if topology.is_gpu else TpuTarget(topology)
    trainer = _make_trainer(options, config)
    parameters = trainer.model.count_params()
    model = (
        f"{options.preset or options.bert_config_file}, {config.num_hidden_layers} layers of "
        f"{config.hidden_size}, {parameters:,} parameters"
    )
    subject = report.StepSetup(options, topology, peak_flops, model, gradient_bytes=4 * parameters)
    size, started = subject.batch_size, time.perf_counter()

    def compile_for(size: int) -> CompiledStep | DoesNotFit:
        elapsed = time.perf_counter() - started
        say(f"[{elapsed:5.0f} s] {size} sequences per {topology.replica}: ", end="")
        try:
            compiled = compile_with(_shortcut(options, size, TokenCapacity), size)
        except DoesNotFit as error:
            say(f"does not fit, {error}")
            return error
        say(f"fits, {compiled.memory / 1e9:,.2f} GB")
        return compiled

    def compile_with(shortcut: TokenCapacity | None, size: int) -> CompiledStep:
        def step(batch):
            with compiling_for_gpu() if topology.is_gpu else contextlib.nullcontext():
                return trainer.strategy.run(trainer.replica_step, (batch, shortcut))

        return compile_step(target, step, _example_batch(options, size))

    print(report.describe_subject(subject), flush=True)
    say("\nCompiling")
    step = compile_for(size)
    if options.fill < 1 and isinstance(step, CompiledStep):
        # The compiler counts the work of a batch that exceeds the capacity.
        usual = compile_with(_shortcut(options, size, _Unchecked), size)
        names = ("flops", "bytes_accessed", "kernels")
        step = dataclasses.replace(step, **{name: getattr(usual, name) for name in names})
    print(f"\n{report.describe_step(subject, step)}\n", flush=True)
    if options.find_largest_batch:
        largest = find_largest_batch(compile_for, size, step, topology.replica_memory)
        print(f"\n{report.describe_largest(topology, *largest)}")
    if isinstance(step, DoesNotFit):
        raise ValueError(
            f"--train_batch_size={options.train_batch_size} does not fit on {topology.name}: use a "
            "smaller batch or more memory"
        )


def _read_config(options: DeviceCheckOptions) -> BertConfig:
    if (options.bert_config_file is None) == (options.preset is None):
        raise ValueError("give either --bert_config_file or --preset")
    if options.preset:
        config = preset_config(options.preset)
    else:
        config = BertConfig.from_json_file(options.bert_config_file)
    check_length(config, options.max_seq_length)
    return config


class _Unchecked(TokenCapacity):
    """A capacity that no batch exceeds."""

    def applies(self, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return tf.constant(True)


def _shortcut(
    options: DeviceCheckOptions, size: int, kind: type[TokenCapacity]
) -> TokenCapacity | None:
    places = size * options.max_seq_length
    return kind(math.ceil(options.fill * places)) if options.fill < 1 else None


def _make_trainer(options: DeviceCheckOptions, config: BertConfig) -> Trainer:
    """Creates the trainer of run_pretraining, for one replica."""
    set_precision(options.precision)
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        model = BertPretrainer(config, rematerialize=options.rematerialize)
        optimizer = AdamW(model.trainable_weights)
    schedule = make_schedule("linear", 1e-4, num_train_steps=100_000, num_warmup_steps=10_000)
    return Trainer(strategy, model, PretrainingObjective(), optimizer, schedule)


def _example_batch(options: DeviceCheckOptions, size: int) -> dict[str, tf.Tensor]:
    """Creates a batch of zeros with the shapes and types of training data."""
    tokens = tf.zeros([size, options.max_seq_length], tf.int32)
    words = tf.zeros([size, options.max_predictions_per_seq], tf.int32)
    return {
        **dict.fromkeys(INPUTS, tokens),
        "masked_lm_positions": words,
        "masked_lm_ids": words,
        "masked_lm_weights": tf.cast(words, tf.float32),
        "next_sentence_labels": tokens[:, 0],
        "example_weights": tf.zeros([size]),
    }

"""Compiles a training step for a device and prints what the compiler reports."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Mapping

import tensorflow as tf

from bert_tf.base.progress import say
from bert_tf.base.tensorflow_ops import compiling_for_gpu
from bert_tf.config import BertConfig, preset_config
from bert_tf.devices import report
from bert_tf.devices.compiler import CompiledStep, DoesNotFit, GpuTarget, TpuTarget, compile_step
from bert_tf.devices.device_check_options import DeviceCheckOptions
from bert_tf.devices.topology import USABLE, Topology
from bert_tf.layers.padding import TokenCapacity
from bert_tf.models.inputs import INPUTS
from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective
from bert_tf.training.optimizers import AdamW, make_schedule
from bert_tf.training.strategy import set_precision
from bert_tf.training.trainer import Trainer
from bert_tf.weights.resolving import check_length


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
    schedule = make_schedule(1e-4, num_train_steps=100_000, num_warmup_steps=10_000)
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


# The search ends when this share of the usable memory is filled.
_FULL = 0.95
_MOST_COMPILES = 6
_MOST_GROWTH = 64
_MULTIPLE = 8


def find_largest_batch(
    compile_for: Callable[[int], CompiledStep | DoesNotFit],
    size: int,
    step: CompiledStep | DoesNotFit,
    memory: float,
) -> tuple[int, CompiledStep | None]:
    """Extrapolates the largest batch from two compiled sizes, and verifies it by compiling it.

    Memory grows linearly with the batch, except that the compiler makes different choices when
    memory is plentiful or tight. Every estimate is therefore compiled and improves the next one,
    until a size fits and fills the `memory` of a replica, in bytes, well. `compile_for` returns the
    step compiled for a number of sequences, or the error. It returned `step` for `size`, which was
    tried first; smaller sizes are tried until one fits.

    Returns the number of sequences and the step compiled for it; 0 and None if not even one fits.
    """
    usable = USABLE * memory
    while isinstance(step, DoesNotFit):
        if size == 1:
            return 0, None
        size = max(1, min(size // 2, int(size * 0.5 * usable / step.needed)))
        step = compile_for(size)
    free = usable - (step.memory - step.temporaries)
    # If only temporaries grow, the second size fills half of the free memory.
    growth = (free / max(step.temporaries, 1) - 1) / 2
    target = size + max(1, int(size * min(growth, _MOST_GROWTH)))
    temporaries = {size: step.temporaries}
    fits, too_large = size, None
    for _ in range(_MOST_COMPILES):
        if target > _MULTIPLE:
            target -= target % _MULTIPLE
        if target <= fits:
            break
        found = compile_for(target)
        if isinstance(found, DoesNotFit):
            temporaries[target], too_large = found.needed, target
        else:
            temporaries[target], fits, step = found.temporaries, target, found
            if found.memory >= _FULL * usable:
                break
        other = too_large or size
        slope = (temporaries[fits] - temporaries[other]) / (fits - other)
        if slope <= 0:
            break
        target = fits + int((free - temporaries[fits]) / slope)
        target = min(target, too_large - 1) if too_large else target
    return fits, step

"""A training run, put together from flags: devices, model, optimizer, weights."""

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.output_files import locked
from bert_tf.base.process import check_memory
from bert_tf.checkpoint import open_checkpoint
from bert_tf.config import BertConfig
from bert_tf.flags import DeviceOptions
from bert_tf.layers.padding import TokenCapacity
from bert_tf.models.encoder import least_activations
from bert_tf.runs.run import Run
from bert_tf.training.strategy import (
    chief_say,
    device_type,
    explain_lost_workers,
    is_chief,
    make_strategy,
    set_precision,
)
from bert_tf.weights.checkpoint import Checkpoint, VocabularyMapping, load_mapping


@contextlib.contextmanager
def training_devices(options: DeviceOptions, writes: bool) -> Iterator[tf.distribute.Strategy]:
    """Makes a context with the devices and the precision that flags name.

    `writes` says whether to lock the output folder. Afterwards, the precision and the generators of
    Python and NumPy, which a run sets, are as before.
    """
    # The workers of several machines must meet before TensorFlow computes anything.
    strategy = make_strategy(options)
    policy, states = keras.config.dtype_policy(), (random.getstate(), np.random.get_state())
    set_precision(options.precision)
    locks = writes and is_chief(strategy)
    try:
        with explain_lost_workers():
            with locked(options.output_dir) if locks else contextlib.nullcontext():
                yield strategy
    finally:
        keras.config.set_dtype_policy(policy)
        random.setstate(states[0])
        np.random.set_state(states[1])


def open_init_checkpoint(options: DeviceOptions, run: Run) -> Checkpoint | None:
    """Opens --init_checkpoint; returns None without one, or if the run resumes."""
    if not options.init_checkpoint or run.has_checkpoint:
        return None
    file = options.bert_config_file
    return open_checkpoint(
        options.init_checkpoint,
        BertConfig.from_json_file(file) if file else None,
        vocab_file=options.vocab_file,
    )


@dataclass(frozen=True)
class Session:
    """What every training run has: its flags, its devices and what it starts from.

    `init` is None for random weights, or if the run resumes; `mapping` grows its vocabulary.
    """

    options: DeviceOptions
    strategy: tf.distribute.Strategy
    run: Run
    init: Checkpoint | None = None
    mapping: VocabularyMapping | None = None

    @classmethod
    def open(
        cls,
        options: DeviceOptions,
        strategy: tf.distribute.Strategy,
        run: Run,
        init: Checkpoint | None = None,
    ) -> Self:
        """Opens what the flags name; `init` replaces --init_checkpoint."""
        mapping = load_mapping(options.init_vocab_mapping) if options.init_vocab_mapping else None
        return cls(options, strategy, run, init or open_init_checkpoint(options, run), mapping)

    @cached_property
    def is_chief(self) -> bool:
        """Whether this process writes files and messages."""
        return is_chief(self.strategy)

    @cached_property
    def say(self) -> Callable[[str], None]:
        """Prints a line, on one of several workers."""
        return chief_say(self.strategy)

    @cached_property
    def device(self) -> str:
        """The kind of the devices: CPU, GPU or TPU."""
        return device_type(self.strategy)

    @property
    def rematerialize(self) -> str:
        """What the backward pass recomputes; see `BertEncoder`."""
        default = "none" if self.device == "CPU" else "selective"
        return self.options.rematerialize or default

    def shortcut(
        self,
        model: keras.Model,
        sizes: Callable[[], tuple[np.ndarray, int]],
        batch_size: int,
        accumulation_steps: int = 1,
    ) -> TokenCapacity | None:
        """Returns how to skip padding where XLA compiles the step; on CPUs the model does it.

        There, raises a ValueError if the memory cannot hold what a step keeps.

        `sizes` returns the number of tokens of each example, or of a sample of them, and the number
        of places of an example, which includes its padding. The batch is that of all replicas.
        """
        rows = batch_size // (self.strategy.num_replicas_in_sync * accumulation_steps)
        lengths, places = sizes()
        if self.device == "CPU":
            needed = least_activations(model, rows * lengths.mean())
            check_memory(f"a step with --train_batch_size={batch_size}", needed)
            return None
        capacity = TokenCapacity.for_rows(lengths, rows, places)
        if capacity:
            self.say(
                f"Skipping padding: steps compute {capacity.tokens:,} of {rows * places:,} "
                "places, or all of them if a batch has more tokens."
            )
        return capacity

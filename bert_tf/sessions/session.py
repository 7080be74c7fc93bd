"""What a run has, also one that only evaluates: flags, devices, folder, initial weights."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.ops import gradient_registry

from bert_tf.base.common_options import DeviceOptions
from bert_tf.base.output_files import locked
from bert_tf.base.process import check_memory
from bert_tf.config import BertConfig
from bert_tf.layers.initial_weights import seeded
from bert_tf.layers.padding import TokenCapacity
from bert_tf.models.bert_encoder import least_activations
from bert_tf.runs.run import Run
from bert_tf.training import strategy as strategies
from bert_tf.weights.checkpoint import Checkpoint, VocabularyMapping, load_mapping
from bert_tf.weights.opening import open_checkpoint

# For each run under way, in any thread, the gradients that TensorFlow knew before the first began.
_known: list[set[str]] = []


@contextlib.contextmanager
def training_devices(options: DeviceOptions, writes: bool) -> Iterator[tf.distribute.Strategy]:
    """Makes a context with the devices and the precision that flags name.

    `writes` says whether to lock the output folder. Afterwards, the precision is as before, and
    TensorFlow no longer keeps the graphs of runs. Several threads may train at once.
    """
    if tf.distribute.has_strategy():
        raise ValueError(
            "a strategy is in scope here: leave its scope; --strategy chooses the devices, by "
            "default all GPUs"
        )
    # The workers of several machines must meet before TensorFlow computes anything.
    strategy = strategies.make_strategy(options)
    policy = keras.config.dtype_policy()
    strategies.set_precision(options.precision)
    # Functions with a custom gradient, which refer to the graphs of all that they are part of.
    kept = gradient_registry._registry
    known = _known[0] if _known else {*kept}
    _known.append(known)
    locks = writes and strategies.is_chief(strategy)
    try:
        lock = locked(options.output_dir) if locks else contextlib.nullcontext()
        # Seeded also for models whose weights are loaded.
        with strategies.explain_lost_workers(), lock, seeded(0):
            yield strategy
    finally:
        keras.config.set_dtype_policy(policy)
        _known.pop()
        for name in () if _known else kept.keys() - known:
            if name.startswith("CustomGradient-"):
                del kept[name]


def open_init_checkpoint(options: DeviceOptions) -> Checkpoint | None:
    """Opens --init_checkpoint; returns None without one."""
    if not options.init_checkpoint:
        return None
    file = options.bert_config_file
    return open_checkpoint(
        options.init_checkpoint,
        BertConfig.from_json_file(file) if file else None,
        vocab_file=options.vocab_file,
    )


@dataclass(frozen=True)
class Session:
    """What a run has, also one that only evaluates: flags, devices, folder, initial weights.

    `init` is None for random weights, or if the run resumes; `mapping` grows the vocabulary of
    `init`. `resumed` is the folder whose weights train on or are evaluated, None in a new run.
    """

    options: DeviceOptions
    strategy: tf.distribute.Strategy
    run: Run
    init: Checkpoint | None = None
    mapping: VocabularyMapping | None = None
    resumed: Run | None = None

    def opened(self, init: Checkpoint | None = None) -> Self:
        """Returns the session with its weights; `init` replaces --init_checkpoint."""
        path = self.options.init_vocab_mapping
        # What a start that failed before its first checkpoint left in the folder does not count.
        resumed = self.run if self.run.has_checkpoint else None
        return dataclasses.replace(
            self,
            mapping=load_mapping(path) if path else None,
            init=init or (None if resumed else open_init_checkpoint(self.options)),
            resumed=resumed,
        )

    @cached_property
    def is_chief(self) -> bool:
        """Whether this process writes files and messages."""
        return strategies.is_chief(self.strategy)

    @cached_property
    def say(self) -> Callable[[str], None]:
        """Prints a line, on one of several workers."""
        return strategies.chief_say(self.strategy)

    @cached_property
    def device(self) -> str:
        """The kind of the devices: CPU, GPU or TPU."""
        return strategies.device_type(self.strategy)

    @property
    def rematerialize(self) -> str:
        """What the backward pass recomputes; see `BertEncoder`."""
        default = "none" if self.device == "CPU" else "selective"
        return self.options.rematerialize or default

    def shortcut(
        self,
        model: keras.Model,
        lengths: np.ndarray,
        places: int,
        batch_size: int,
        accumulation_steps: int = 1,
    ) -> TokenCapacity | None:
        """Returns how to skip padding where XLA compiles the step; on CPUs the model does it.

        There, raises a ValueError if the memory cannot hold what a step keeps.

        `lengths` are the numbers of tokens of each example, or of a sample of them, and `places`
        are those of an example with its padding. The batch is that of all replicas.
        """
        rows = batch_size // (self.strategy.num_replicas_in_sync * accumulation_steps)
        if self.device == "CPU":
            needed = least_activations(model, rows * lengths.mean())
            check_memory(f"a step with --train_batch_size={batch_size}", needed)
            return None
        capacity = TokenCapacity.for_rows(lengths, rows, places)
        if capacity:
            self.say(
                f"Skipping padding: steps compute {capacity.tokens:,} of {rows * places:,} "
                "positions, or all of them if a batch has more tokens."
            )
        return capacity

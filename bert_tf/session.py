"""A training run, put together from flags: devices, model, optimizer, weights."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.folder_lock import locked
from bert_tf.base.input_files import shortened
from bert_tf.base.process import check_memory
from bert_tf.checkpoint import open_checkpoint
from bert_tf.config import BertConfig
from bert_tf.flags import DeviceOptions
from bert_tf.models.encoder import least_activations, skip_padding
from bert_tf.models.token_capacity import TokenCapacity
from bert_tf.runs.run import Run
from bert_tf.training.driver import Driver
from bert_tf.training.optimizers import AdamW, Schedule
from bert_tf.training.strategy import (
    chief_say,
    device_type,
    explain_lost_workers,
    is_chief,
    make_strategy,
    set_precision,
)
from bert_tf.training.trainer import Objective, Trainer
from bert_tf.weights.checkpoint import OPTIONAL, Checkpoint, load_weights
from bert_tf.weights.growing import VocabularyMapping, load_mapping


@contextlib.contextmanager
def training_devices(options: DeviceOptions, writes: bool) -> Iterator[tf.distribute.Strategy]:
    """Makes a context with the devices and the precision that flags name.

    `writes` says whether to lock the output folder.
    """
    # The workers of several machines must meet before TensorFlow computes anything.
    strategy = make_strategy(options)
    set_precision(options.precision)
    locks = writes and is_chief(strategy)
    with explain_lost_workers():
        with locked(options.output_dir) if locks else contextlib.nullcontext():
            yield strategy


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

    def make_trainer(
        self,
        build_model: Callable[[], keras.Model],
        make_optimizer: Callable[[keras.Model], AdamW],
        objective: Objective,
        schedule: Schedule,
        accumulation_steps: int = 1,
    ) -> Trainer:
        """Creates a model with random weights on the devices, and its trainer."""
        keras.utils.set_random_seed(self.options.random_seed)
        with self.strategy.scope():
            model = build_model()
            if device_type(self.strategy) == "CPU":
                skip_padding(model)
            optimizer = make_optimizer(model)
        return Trainer(
            self.strategy,
            model,
            objective,
            optimizer,
            schedule,
            accumulation_steps=accumulation_steps,
            seed=self.options.random_seed,
        )

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
        if device_type(self.strategy) == "CPU":
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

    def set_weights(
        self,
        driver: Driver,
        model: keras.Model,
        weights: Sequence[keras.Variable],
        preset: Collection[str] = (),
    ) -> bool:
        """Sets the weights from the first of these sources that exists, and prints which one.

        1. The run's own newest readable checkpoint, which restores the whole state, so that
           training resumes exactly.
        2. The initial checkpoint, whose tables `mapping` grows. Pooler and heads that it lacks keep
           their random values.
        3. The random values that the model was created with.

        The initial checkpoint sets `weights`, and those with the paths `preset` have their values
        already. Returns whether the run resumes.
        """
        init, say = self.init, self.say
        if path := driver.restore():
            say(f"Resuming from {path}, step {driver.step:,}.")
            return True
        if not init:
            say(f"Initializing all{' other' if preset else ''} weights randomly.")
            return False
        kept = load_weights(init.path, init.tensors, weights, self.mapping, OPTIONAL)
        loaded = {weight.path for weight in weights} - set(kept)
        kind = f" ({init.format})" if init.format else ""
        say(f"Initializing {len(loaded)} weights from {init.path}{kind}.")
        if self.mapping:
            say(self.mapping.describe())
        paths = [weight.path for weight in model.weights]
        if random := [path for path in paths if path not in {*loaded, *preset}]:
            say(f"Initializing randomly: {', '.join(random)}.")
        if unused := sorted(init.tensors.keys() - loaded) + list(init.unused):
            say(f"Left out of the checkpoint: {shortened(unused)}.")
        return False

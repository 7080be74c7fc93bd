"""A training run, put together from flags: devices and weights; what it trains, and how."""

import abc
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.ops import gradient_registry

from bert_tf.base.common_options import DeviceOptions
from bert_tf.base.files import shortened
from bert_tf.base.made import Inputs
from bert_tf.base.output_files import locked
from bert_tf.base.process import check_memory
from bert_tf.config import BertConfig, ModelSpec
from bert_tf.layers.initial_weights import seeded
from bert_tf.layers.padding import TokenCapacity
from bert_tf.models.bert_encoder import least_activations, skip_padding
from bert_tf.runs.run import Run
from bert_tf.training import strategy as strategies
from bert_tf.training.driver import Driver, Metrics, Phase, Plan
from bert_tf.training.optimizers import AdamW, Schedule
from bert_tf.training.trainer import Objective, Trainer
from bert_tf.weights.checkpoint import (
    OPTIONAL,
    Checkpoint,
    VocabularyMapping,
    load_mapping,
    load_weights,
)
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
                "positions, or all of them if a batch has more tokens."
            )
        return capacity


class Learner(abc.ABC):
    """What a run trains, and how: everything but the devices and the examples.

    Attributes:
        readers: other models that read the same examples, by their paths.
        made_from: what the run learns from beside its examples; see `Run.made_from`.
        init: what a new run starts with, in place of --init_checkpoint.
    """

    readers: Mapping[str, ModelSpec] = {}
    made_from: Inputs = ()
    init: Checkpoint | None = None

    @abc.abstractmethod
    def build_model(self, session: Session, spec: ModelSpec) -> keras.Model:
        """Returns the model to train, with random weights."""

    @abc.abstractmethod
    def objective(self, spec: ModelSpec, num_train_steps: int) -> Objective:
        """Returns what to minimize."""

    def initial_weights(self, model: keras.Model) -> Sequence[keras.Variable]:
        """Returns the weights of the model that are set from the initial checkpoint."""
        return model.weights

    def preset_weights(self, model: keras.Model) -> Sequence[keras.Variable]:
        """Returns the weights to which `build_model` gave their initial values."""
        return ()

    def make_optimizer(
        self,
        optimizer: type[AdamW],
        weights: Sequence[keras.Variable],
        num_first_steps: int,
        **arguments: Any,
    ) -> AdamW:
        """Returns an optimizer of the kind that flags choose, and with their `arguments`.

        `num_first_steps` is the number of steps before the first evaluation, at most half of all.
        """
        return optimizer(weights, **arguments)

    def first_best_step(self, num_train_steps: int) -> int:
        """Returns the first step whose weights may be kept as the best."""
        return 0

    def evaluated_weights(self, model: keras.Model) -> AbstractContextManager:
        """Makes a context in which the model has the weights to evaluate and to keep as the best.

        By default, they are the ones that train.
        """
        return contextlib.nullcontext()

    def finish(self, training: "Training") -> None:
        """Does what remains after the last step: makes the best weights those of the model."""
        if training.driver.plan.best_metric:
            training.driver.restore_best()


class Training:
    """A learner on the devices of a session, and in its run folder.

    Args:
        freezes_encoder: whether the encoder keeps its weights and has no dropout.
        optimizer, num_first_steps, arguments: see `Learner.make_optimizer`.

    Attributes:
        model: has random weights before `set_weights`.
        driver: keeps the run folder.
    """

    def __init__(
        self,
        session: Session,
        learner: Learner,
        spec: ModelSpec,
        objective: Objective,
        schedule: Schedule,
        plan: Plan,
        *,
        optimizer: type[AdamW] = AdamW,
        num_first_steps: int = 0,
        freezes_encoder: bool = False,
        accumulation_steps: int = 1,
        peak_flops: float = 0.0,
        **arguments: Any,
    ):
        self.session, self.learner, self.spec = session, learner, spec
        self.peak_flops = peak_flops
        strategy, seed = session.strategy, session.options.random_seed
        with seeded(seed), strategy.scope():
            self.model = model = learner.build_model(session, spec)
            if freezes_encoder:
                model.encoder.trainable = False
            if session.device == "CPU":
                skip_padding(model)
            weights = model.trainable_weights
            made = learner.make_optimizer(optimizer, weights, num_first_steps, **arguments)
        parts = dict(accumulation_steps=accumulation_steps, seed=seed)
        self.trainer = Trainer(strategy, model, objective, made, schedule, **parts)
        self.driver = Driver(
            session.run.path,
            self.trainer,
            plan,
            peak_flops,
            evaluated_weights=lambda: learner.evaluated_weights(model),
        )

    def set_weights(self) -> None:
        """Sets the weights from the first of these sources that exists, and prints which one.

        1. The run's own newest readable checkpoint, which restores the whole state, so that
           training resumes exactly.
        2. The initial checkpoint, whose tables `mapping` grows. Pooler and heads that it lacks keep
           their random values.
        3. The random values that the model was created with.
        """
        init, say, mapping = self.session.init, self.session.say, self.session.mapping
        preset = [weight.path for weight in self.learner.preset_weights(self.model)]
        if path := self.driver.restore():
            say(f"Resuming from {path}, step {self.driver.step:,}.")
            return
        if not init:
            say(f"Initializing all{' other' if preset else ''} weights randomly.")
            return
        weights = self.learner.initial_weights(self.model)
        kept = load_weights(init.path, init.tensors, weights, mapping, OPTIONAL)
        loaded = {weight.path for weight in weights} - set(kept)
        kind = f" ({init.format})" if init.format else ""
        say(f"Initializing {len(loaded)} weights from {init.path}{kind}.")
        if mapping:
            say(mapping.describe())
        paths = [weight.path for weight in self.model.weights]
        if random := [path for path in paths if path not in {*loaded, *preset}]:
            say(f"Initializing randomly: {', '.join(random)}.")
        if unused := sorted(init.tensors.keys() - loaded) + list(init.unused):
            say(f"Left out of the checkpoint: {shortened(unused)}.")

    def run(self, phases: Sequence[Phase]) -> Metrics:
        """Trains and evaluates in all phases, or, without --do_train, only evaluates in one."""
        if not self.session.options.do_train:
            step = self.driver.step
            phase = next((phase for phase in phases if step <= phase.until_step), phases[-1])
            return self.driver.evaluate(phase.evaluate)
        results = self.driver.train(phases)
        self.learner.finish(self)
        return results

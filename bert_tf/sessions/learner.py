"""What a run trains, and the one way in which all runs train."""

import abc
import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import keras

from bert_tf.base.files import shortened
from bert_tf.base.made import Inputs
from bert_tf.config import ModelSpec
from bert_tf.layers.initial_weights import seeded
from bert_tf.models.bert_encoder import skip_padding
from bert_tf.sessions.session import Session
from bert_tf.training.driver import Driver, Metrics, Phase, Plan
from bert_tf.training.optimizers import AdamW, Schedule
from bert_tf.training.trainer import Objective, Trainer
from bert_tf.weights.checkpoint import OPTIONAL, Checkpoint, load_weights


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

"""Pre-trains an encoder in one or more phases, and evaluates it on records it never trains on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bert_tf.config import BertConfig
from bert_tf.models.flops import training_flops
from bert_tf.pretraining.phases import Phase
from bert_tf.training.checkpoints import Checkpointer
from bert_tf.training.loop import NonFiniteLoss, fit
from bert_tf.training.peak import peak_flops
from bert_tf.training.reports import Reports
from bert_tf.training.strategy import is_chief
from bert_tf.training.trainer import Trainer
from tfrecords.order import records_of_step
from tfrecords.reader import pretraining_dataset
from tfrecords.writer import atomic_write

_RECORDS_NAMED = 5


@dataclass(frozen=True)
class Settings:
    """How to train and evaluate; the names are those of the flags of run_pretraining."""

    output_dir: str
    phases: Sequence[Phase]
    do_train: bool
    do_eval: bool
    eval_batch_size: int
    max_eval_steps: int
    save_checkpoints_steps: int
    log_steps: int
    iterations_per_loop: int
    precision: str


class PreTrainer:
    """Takes the steps of all phases, from where the trainer's step stands.

    Args:
        trainer, checkpointer: whose weights have been set.
        config: of the encoder.
    """

    def __init__(
        self, settings: Settings, config: BertConfig, trainer: Trainer, checkpointer: Checkpointer
    ):
        self._settings = settings
        self._config = config
        self._trainer = trainer
        self._checkpointer = checkpointer
        self._results: dict[str, float] = {}

    def run(self) -> dict[str, float]:
        """Trains and evaluates; returns the last evaluation, {} without one.

        Raises:
            NonFiniteLoss: names the step and the records of its batch.
            Interrupted: a signal has stopped training.
        """
        settings, trainer = self._settings, self._trainer
        step = int(trainer.step.numpy())
        last = settings.phases[-1].until_step
        peak, _ = peak_flops(trainer.strategy, settings.precision)
        writes = is_chief(trainer.strategy)
        with Reports(settings.output_dir, step, last, peak, writes) as self._reports:
            if settings.do_eval and self._evaluation_is_due(step):
                self._evaluate(self._phase_of(step), step)
            if settings.do_train:
                for phase in settings.phases:
                    self._train(phase)
        return self._results or self._reports.last_evaluation

    def _train(self, phase: Phase) -> None:
        settings, trainer = self._settings, self._trainer
        step = int(trainer.step.numpy())
        if step >= phase.until_step:
            return
        flops = training_flops(self._config, phase.max_seq_length, phase.max_predictions_per_seq)
        self._reports.begin_phase(phase.train_batch_size, flops)
        evaluate = (lambda step: self._evaluate(phase, step)) if settings.do_eval else None
        try:
            fit(
                trainer,
                iter(self._dataset(phase, step - phase.first_step)),
                phase.until_step,
                self._checkpointer,
                self._reports,
                settings.save_checkpoints_steps,
                settings.log_steps,
                settings.iterations_per_loop,
                evaluate,
            )
        except NonFiniteLoss as error:
            raise ValueError(f"{error}. {self._records_of(phase, error.step)}") from None

    def _evaluate(self, phase: Phase, step: int) -> None:
        batches = self._dataset(phase)
        results = self._trainer.evaluate(batches, self._settings.max_eval_steps)
        results["masked_lm_perplexity"] = math.exp(min(results["masked_lm_loss"], 700.0))
        self._results = results | {"global_step": step}
        self._reports.evaluation(step, results)

    def _evaluation_is_due(self, step: int) -> bool:
        """Whether to evaluate before, or without, training."""
        settings = self._settings
        if not settings.do_train or step >= settings.phases[-1].until_step:
            return True
        # The run may have been killed between saving and evaluating.
        ends = [phase.until_step for phase in settings.phases]
        saved = step > 0 and (step % settings.save_checkpoints_steps == 0 or step in ends)
        return saved and self._reports.last_evaluation.get("global_step") != step

    def _phase_of(self, step: int) -> Phase:
        """The phase that takes this step."""
        phases = self._settings.phases
        return next((phase for phase in phases if step <= phase.until_step), phases[-1])

    def _dataset(self, phase: Phase, first_step: int | None = None):
        """Batches to train on from a step of the phase, or, without one, to evaluate on."""
        training = first_step is not None
        files = phase.files if training else phase.eval_files
        part = ("train" if training else "held_out") if phase.splits else "all"
        size = phase.train_batch_size if training else self._settings.eval_batch_size
        return self._trainer.strategy.distribute_datasets_from_function(
            lambda context: pretraining_dataset(
                files,
                phase.max_seq_length,
                phase.max_predictions_per_seq,
                self._config.vocab_size,
                context.get_per_replica_batch_size(size),
                training,
                phase.seed,
                context,
                phase.masking,
                first_step or 0,
                part,
            )
        )

    def _records_of(self, phase: Phase, step: int) -> str:
        """Names the records of a step, all of them in a file, some in the sentence returned."""
        records = records_of_step(
            phase.files,
            phase.train_batch_size,
            phase.seed,
            step - 1 - phase.first_step,
            "train" if phase.splits else "all",
        )
        path = f"{self._settings.output_dir}/records-of-step-{step}.txt"
        atomic_write(path, "".join(f"{file}\t{number}\n" for file, number in records))
        some = ", ".join(f"{file} {number}" for file, number in records[:_RECORDS_NAMED])
        more = len(records) - _RECORDS_NAMED
        return f"Its records: {some}{f' and {more} more' if more > 0 else ''}, listed in {path}"

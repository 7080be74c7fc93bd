"""The training loop: steps, reports, checkpoints and evaluations in their time."""

import signal
import time
from collections.abc import Callable, Iterator

from bert_tf.training.checkpoints import Checkpointer
from bert_tf.training.interruption import Interrupted, StopRequest
from bert_tf.training.reports import Reports
from bert_tf.training.strategy import mean_over_workers
from bert_tf.training.trainer import Batch, Trainer

_REPORT_SECONDS = 5.0


class NonFiniteLoss(ValueError):
    """The loss is infinite or not a number; what was saved before is kept.

    Attributes:
        step: the first with such a loss, counted from 1.
    """

    def __init__(self, step: int):
        super().__init__(
            f"the loss of step {step:,} is not finite; what was saved before is kept: try a "
            "lower learning rate or a longer warm-up"
        )
        self.step = step


def fit(
    trainer: Trainer,
    iterator: Iterator[Batch],
    until_step: int,
    checkpointer: Checkpointer,
    reports: Reports,
    save_checkpoints_steps: int,
    log_steps: int = 100,
    iterations_per_loop: int = 1000,
    on_checkpoint: Callable[[int], None] | None = None,
) -> None:
    """Trains from where the trainer's step stands up to `until_step`.

    Reports every `log_steps`; saves a checkpoint every `save_checkpoints_steps` and at the end,
    each followed by a call of `on_checkpoint` with the step. Control returns from the device after
    at most `iterations_per_loop` steps, and about every `_REPORT_SECONDS`, so that slow steps are
    shown one by one and fast ones cost nothing. What is reported and saved does not depend on that.

    Raises:
        NonFiniteLoss: what was saved before is kept.
        Interrupted: SIGTERM or Ctrl-C came; what was done until then is saved.
    """
    step, steps = int(trainer.step.numpy()), 1
    stop = StopRequest()
    with stop.listen():
        while step < until_step:
            limits = (_next(step, log_steps), _next(step, save_checkpoints_steps), until_step)
            steps = min(steps, iterations_per_loop, min(limits) - step)
            started = time.perf_counter()
            bad_step = trainer.train(iterator, steps)
            seconds = time.perf_counter() - started
            step += steps
            if bad_step:
                raise NonFiniteLoss(bad_step)
            reports.steps_done(step, steps, seconds, trainer.training_means())
            if step % log_steps == 0 or step == until_step:
                reports.log(step, float(trainer.schedule(step - 1)))
                trainer.restart_means()
            # All workers stop and return to their loops at the same steps.
            stopped, seconds = mean_over_workers(trainer.strategy, [bool(stop.signal), seconds])
            if step % save_checkpoints_steps == 0 or step == until_step or stopped:
                checkpointer.save()
            if stopped:
                reports.stopped(step)
                raise Interrupted(stop.signal or signal.SIGTERM)
            if on_checkpoint and (step % save_checkpoints_steps == 0 or step == until_step):
                on_checkpoint(step)
            steps = max(1, round(_REPORT_SECONDS * steps / seconds))


def _next(step: int, interval: int) -> int:
    """The first multiple of `interval` after `step`."""
    return step - step % interval + interval

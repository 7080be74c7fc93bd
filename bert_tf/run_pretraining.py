"""Pre-trains an encoder on the examples that create_pretraining_data made.

  python -m bert_tf.run_pretraining --input_file='train-*.tfrecord' --preset=tiny \\
    --vocab_file=vocab.txt --do_train --num_train_steps=20000 --num_warmup_steps=1000 \\
    --learning_rate=1e-3 --do_eval --eval_input_file=heldout.tfrecord --output_dir=runs/tiny

The same command again goes on where the run stopped, as if it had not stopped. --strategy says
where to train: the CPU, all GPUs of the machine, many machines, or a TPU; --preset or
--bert_config_file says how large an encoder. Without --eval_input_file the first of every hundred
records of a file is held out of training to evaluate on. Flags and defaults are those of
google-research/bert's script of the same name.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from bert_tf.pretraining.records import (
    checked_phases,
    made_with_other_vocabulary,
    objective,
)
from bert_tf.pretraining.start import checked_config, set_weights
from bert_tf.run_pretraining_flags import Options
from tfrecords import command

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_tf.config import BertConfig
    from bert_tf.pretraining.phases import Phase
    from bert_tf.training.trainer import Trainer


def run(options: Options) -> dict[str, float]:
    """Trains and evaluates as the flags say.

    Returns the last evaluation's results, empty without --do_eval.

    Raises:
        ValueError, OSError: one line that names the flag or file and what to do.
    """
    from bert_tf.pretraining.run import PreTrainer, Settings
    from bert_tf.run_folder import CONFIG, save_flags
    from bert_tf.training.checkpoints import Checkpointer
    from bert_tf.training.strategy import check_batch_size, is_chief
    from tfrecords.writer import make_folder

    config = checked_config(options)
    # Before anything is computed: many machines have to come together first.
    strategy = _strategy(options)
    chief = is_chief(strategy)
    say = print if chief else _say_nothing
    phases = checked_phases(options, config)
    if options.do_eval:
        check_batch_size(strategy, "eval_batch_size", options.eval_batch_size)
    for phase in phases if options.do_train else ():
        check_batch_size(
            strategy,
            "train_batch_size",
            phase.train_batch_size,
            options.gradient_accumulation_steps,
        )
    trainer = _trainer(options, config, strategy, objective(options, phases))
    checkpointer = Checkpointer(
        options.output_dir, trainer.model, trainer.state, options.keep_checkpoints, chief
    )
    set_weights(options, trainer, checkpointer, say)
    make_folder(options.output_dir)
    _check_start_of_workers(trainer)
    if options.do_train and chief:
        config.to_json_file(os.path.join(options.output_dir, CONFIG))
        split = [file for phase in phases if phase.splits for file in phase.files]
        save_flags(options.output_dir, dataclasses.asdict(options), split)
    _say_what(options, config, trainer, phases, say)
    names = [field.name for field in dataclasses.fields(Settings) if field.name != "phases"]
    settings = Settings(phases=phases, **{name: getattr(options, name) for name in names})
    with _explained(phases, config.vocab_size):
        results = PreTrainer(settings, config, trainer, checkpointer).run()
    made = ["eval_results.txt"] * options.do_eval
    made += ["checkpoints", "curves.png", "metrics.jsonl"] * options.do_train
    say(
        f"Wrote {options.output_dir}: {', '.join(made)}; for TensorBoard: "
        f"tensorboard --logdir={options.output_dir}\n"
        f"Next: python -m export.encoder --checkpoint={options.output_dir} "
        f"--vocab_file={options.vocab_file or 'vocab.txt'} --output_dir=encoder"
    )
    return results


@contextlib.contextmanager
def _explained(phases: list["Phase"], vocab_size: int) -> Iterator[None]:
    """Turns what TensorFlow raises over bad records and lost workers into one line."""
    import tensorflow as tf

    from tfrecords.reader import explain_bad_record

    try:
        yield
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError):
        for phase in phases:
            files = [*phase.files, *phase.eval_files]
            contract = (phase.max_seq_length, phase.max_predictions_per_seq, vocab_size)
            if problem := explain_bad_record(files, *contract):
                raise ValueError(problem) from None
        raise
    except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError) as error:
        raise OSError(
            "the connection to another machine is lost; start the same command again, on all "
            "workers where there are several: training goes on from the last checkpoint"
        ) from error


def _say_nothing(*_) -> None:
    """Of many workers the chief speaks."""


def _strategy(options: Options) -> "tf.distribute.Strategy":
    from bert_tf.training import strategy as strategies

    name = options.strategy
    if options.use_tpu:
        if name not in ("auto", "tpu"):
            raise ValueError(f"--use_tpu and --strategy={name} contradict each other")
        name = "tpu"
    workers = options.worker_hosts or options.task_index is not None
    for asked, flag, names in (
        (workers, "--worker_hosts", ("auto", "multi_worker")),
        (options.tpu_name, "--tpu_name", ("auto", "tpu")),
    ):
        if asked and name not in names:
            raise ValueError(f"{flag} and --strategy={name} contradict each other")
    hosts = options.worker_hosts.split(",") if options.worker_hosts else ()
    return strategies.make_strategy(
        name,
        options.tpu_name,
        options.tpu_zone,
        options.gcp_project,
        [host.strip() for host in hosts],
        options.task_index,
    )


def _trainer(
    options: Options, config: "BertConfig", strategy: "tf.distribute.Strategy", objective: str
) -> "Trainer":
    """The model with random weights, and what trains it."""
    import keras

    from bert_tf.models.pretrainer import BertPretrainer, PretrainingObjective
    from bert_tf.training import optimizers, schedules
    from bert_tf.training.strategy import device_type, set_precision
    from bert_tf.training.trainer import Trainer

    set_precision(options.precision)
    keras.utils.set_random_seed(options.random_seed)
    correction = {}
    if options.bias_correction is not None:
        correction["bias_correction"] = options.bias_correction
    optimizer_type = {"adamw": optimizers.AdamW, "lamb": optimizers.Lamb}[options.optimizer]
    default = "none" if device_type(strategy) == "CPU" else "selective"
    with strategy.scope():
        model = BertPretrainer(config, options.rematerialize or default)
        optimizer = optimizer_type(model.trainable_weights, **correction)
    schedule = schedules.make_schedule(
        options.learning_rate_schedule,
        options.learning_rate,
        options.num_train_steps,
        options.num_warmup_steps,
        options.learning_rate_power,
    )
    return Trainer(
        strategy,
        model,
        PretrainingObjective(next_sentence=objective != "mlm"),
        optimizer,
        schedule,
        accumulation_steps=options.gradient_accumulation_steps,
        seed=options.random_seed,
    )


def _check_start_of_workers(trainer: "Trainer") -> None:
    """Raises a ValueError where workers found different checkpoints."""
    from bert_tf.training.strategy import mean_over_workers

    step = float(trainer.step.numpy())
    if mean_over_workers(trainer.strategy, [step]) != [step]:
        raise ValueError(
            f"the workers do not start from the same checkpoint, this one from step {step:.0f}: "
            "--output_dir must be a folder that all of them see"
        )


def _say_what(
    options: Options,
    config: "BertConfig",
    trainer: "Trainer",
    phases: list["Phase"],
    say: Callable[[str], None],
) -> None:
    from bert_tf.training.strategy import describe

    say(
        f"{config.num_hidden_layers} layers of {config.hidden_size}, "
        f"{trainer.model.count_params():,} parameters, on {describe(trainer.strategy)}."
    )
    if options.do_train and options.num_warmup_steps >= options.num_train_steps:
        say(
            f"WARNING: the learning rate rises over --num_warmup_steps={options.num_warmup_steps}, "
            f"but --num_train_steps={options.num_train_steps} end before: give fewer warm-up steps."
        )
    if file := made_with_other_vocabulary(options, phases):
        say(
            f"WARNING: {file} was made with another vocabulary than {options.vocab_file}: with "
            "other ids its words are others. Give the one it was made with, or make it anew."
        )
    if any(phase.splits for phase in phases):
        say(
            "Of each file the first of every hundred records is held out to evaluate on"
            f"{'' if options.do_eval else ', with --do_eval'}. Where a text was used several "
            "times (--dupe_factor), its other copies are trained on: to measure on new text, give "
            "--eval_input_file."
        )


def main() -> None:
    """The command."""
    command.run(Options, run)


if __name__ == "__main__":
    main()

"""Pre-trains an encoder in one or more phases and evaluates it on held-out records."""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

import keras
import tensorflow as tf

from bert_tf.base.files import absolute_path
from bert_tf.base.progress import counted
from bert_tf.config import ModelSpec
from bert_tf.pretraining import phase_data
from bert_tf.pretraining import run_records as records
from bert_tf.pretraining.phase_data import PretrainingLearner
from bert_tf.pretraining.pretraining_options import PretrainingOptions
from bert_tf.pretraining.run_records import NamedRecords, PhaseRecords
from bert_tf.runs.run import COMMAND, LEARNED_OBJECTIVE, SOME_TEXTS, Run
from bert_tf.sessions.learner import Training
from bert_tf.sessions.session import Session, training_devices
from bert_tf.training.chips import peak_flops
from bert_tf.training.driver import Plan
from bert_tf.training.optimizers import OPTIMIZERS, make_schedule
from bert_tf.training.reports import EVAL_RESULTS, read_results
from bert_tf.training.strategy import check_batch_size
from bert_tf.training.trainer import Objective
from bert_tf.weights.resolving import check_length, resolve_model
from tfrecords.reader import explain_bad_record
from tfrecords.vocabulary import warn_about_casing

# The key in flags.json for the files from which the run holds out records for evaluation.
HELD_OUT_FROM = "split_files"


def pretrain(
    options: PretrainingOptions, learner: PretrainingLearner | None = None
) -> dict[str, float]:
    """Trains and evaluates according to the options; resumes the run in the output folder.

    Args:
        learner: what to train, and how; by default a `BertPretrainer`.

    Returns:
        the metrics of the last evaluation; {} without `do_eval`.

    Raises:
        ValueError, OSError: one line that names the flag or file and what to do; also if another
            process trains in the output folder.
        Interrupted: a signal stopped training, after a checkpoint was saved.
    """
    run = Run(options.output_dir)
    if "task" in run.flags:
        raise ValueError(f"{run.path} holds a fine-tuning run: choose another --output_dir")
    if options.do_train:
        run.check_own()
        run.check_flags({COMMAND: options.command})
    read_results(run.file(EVAL_RESULTS))  # raises an error for a file of others
    named = records.name_records(options)
    learned = records.resolve_objective(options, named)
    learner = learner or PretrainingLearner(learned != "mlm")
    # Evaluation alone may go on beside training.
    with training_devices(options, writes=options.do_train) as strategy:
        session = Session(options, strategy, Run(options.output_dir))
        return _pretrain(session.opened(learner.init), learner, named, learned)


def _pretrain(
    session: Session, learner: PretrainingLearner, named: Sequence[NamedRecords], learned: str
) -> dict[str, float]:
    """Trains or evaluates a learner; `learned` is the objective of the records."""
    options, run, say = session.options, session.run, session.say
    vocabs, casings = records.stated_by_manifests(named)
    for path, reader in learner.readers.items():
        vocabs[path], casings[path] = reader.vocab, reader.lower_case
    spec = resolve_model(session.resumed, options, vocabs, casings, session.init, session.mapping)
    inputs = []
    if options.do_train:
        inputs = records.describe_records(named)
        records.check_unchanged(run, inputs)
        run.check_made_from(learner.made_from)
        inputs += learner.made_from
    held_out_from = run.flags.get(HELD_OUT_FROM, [])
    if held_out_from and not options.do_train:
        held_out_from = held_out_from + records.copies_of_records(run, named)
    phases = records.check_records(options, spec, named, held_out_from)
    for reader, phase in itertools.product(learner.readers.values(), phases):
        check_length(reader.config, phase.train.max_seq_length)
    if options.do_eval:
        check_batch_size(session.strategy, "eval_batch_size", options.eval_batch_size)
    for phase in phases if options.do_train else ():
        parts = options.gradient_accumulation_steps
        check_batch_size(session.strategy, "train_batch_size", phase.train_batch_size, parts)
    objective = learner.objective(spec, options.num_train_steps)
    training = _start(session, learner, spec, objective)
    if options.do_train and session.is_chief:
        learned_from = _flags(options, run, phases) | {LEARNED_OBJECTIVE: learned}
        with _bad_records_explained(phases):
            texts = phase_data.some_texts(phases[-1].evaluation)
        run.write(spec, learned_from | {SOME_TEXTS: texts})
        run.record_made_from(inputs)
    _announce(session, spec, phases, learner.initial_weights(training.model))
    step = training.driver.step
    if options.do_train and step < phases[-1].until_step:
        peak, flops = training.peak_flops, learner.training_flops
        say(phase_data.announce_duration(spec.config, phases, step, peak, flops))
    warned: list[str] = []
    with _bad_records_explained(phases):
        with_pairs = "next_sentence_loss" in objective.losses
        for warning in phase_data.record_warnings(options, phases, with_pairs):
            say(warning)
        results = training.run([phase_data.PhaseData(training, x, warned).phase() for x in phases])
    if session.is_chief:
        print(phase_data.summary(options, run, results))
    say(phase_data.next_step(spec, run))
    return results


def _start(
    session: Session, learner: PretrainingLearner, spec: ModelSpec, objective: Objective
) -> Training:
    """Creates the model on its devices, and sets its weights."""
    options, run, say = session.options, session.run, session.say
    steps = options.num_train_steps, options.num_warmup_steps
    training = Training(
        session,
        learner,
        spec,
        objective,
        make_schedule(options.learning_rate, *steps),
        Plan(
            save_checkpoints_steps=options.save_checkpoints_steps,
            evaluation_steps=options.save_checkpoints_steps,
            log_steps=options.log_steps,
            iterations_per_loop=options.iterations_per_loop,
            keep_checkpoints=options.keep_checkpoints,
        ),
        optimizer=OPTIMIZERS[options.optimizer],
        accumulation_steps=options.gradient_accumulation_steps,
        peak_flops=peak_flops(session.strategy, options.precision),
        bias_correction=options.bias_correction,
    )
    if not (options.do_train or session.resumed or options.init_checkpoint):
        raise ValueError(f"{run.path} holds no checkpoint to evaluate: train first")
    training.set_weights()
    if session.resumed and options.do_train:
        for name, (then, now) in run.changed_flags(options.values("place")).items():
            say(f"Changed since the last start: --{name} {then} -> {now}.")
        if training.driver.step >= options.num_train_steps:
            say(f"Training is complete: --num_train_steps={options.num_train_steps}.")
    return training


def _flags(
    options: PretrainingOptions, run: Run, phases: Sequence[PhaseRecords]
) -> dict[str, object]:
    """Returns the flags to store, and the files whose held-out records stay held out for good."""
    split = [file for phase in phases if phase.train.part == "train" for file in phase.train.files]
    held_out_from = {*run.flags.get(HELD_OUT_FROM, []), *map(absolute_path, split)}
    flags = dataclasses.asdict(options) | {COMMAND: options.command}
    return flags | {HELD_OUT_FROM: sorted(held_out_from)}


def _announce(
    session: Session,
    spec: ModelSpec,
    phases: Sequence[PhaseRecords],
    weights: Sequence[keras.Variable],
) -> None:
    options, say, config = session.options, session.say, spec.config
    parameters = sum(math.prod(weight.shape) for weight in weights)
    replicas = counted(session.strategy.num_replicas_in_sync, f"{session.device} replica")
    warn_about_casing(spec.vocab, spec.lower_case, say=say)
    say(
        f"{config.num_hidden_layers} layers of {config.hidden_size}, "
        f"{parameters:,} parameters, on {replicas}."
    )
    if options.do_train and options.num_warmup_steps >= options.num_train_steps:
        say(
            f"WARNING: the learning rate is still rising when training ends: "
            f"--num_warmup_steps={options.num_warmup_steps} is not less than "
            f"--num_train_steps={options.num_train_steps}."
        )
    if any(phase.evaluation.part == "held_out" for phase in phases):
        say(
            "One record in a hundred of each file is held out of training for evaluation"
            f"{'' if options.do_eval else ', which --do_eval turns on'}. If data creation made "
            "several passes over the text (--dupe_factor), the run trains on other copies of "
            "held-out text; to measure on new text, give --eval_input_file."
        )


@contextlib.contextmanager
def _bad_records_explained(phases: Sequence[PhaseRecords]) -> Iterator[None]:
    """Turns TensorFlow's errors for bad records into one line that names the record."""
    try:
        yield
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError, UnicodeDecodeError):
        for phase in phases:
            files = tuple(dict.fromkeys([*phase.train.files, *phase.evaluation.files]))
            if problem := explain_bad_record(dataclasses.replace(phase.train, files=files)):
                raise ValueError(problem) from None
        raise

"""Fine-tunes, evaluates and predicts, from flags to a run folder."""

import dataclasses
import shlex

from bert_tf.base.choices import VECTOR_TYPES
from bert_tf.base.command_help import command_line, unused_name
from bert_tf.base.files import check_single
from bert_tf.base.progress import for_caller
from bert_tf.config import EMBEDDING, ModelSpec
from bert_tf.finetuning import fine_tuned, saved_run
from bert_tf.finetuning.evaluating import Evaluator, load_evaluator, report_splits
from bert_tf.finetuning.finetuning_options import EVAL_RESULTS_JSON, FineTuningOptions
from bert_tf.finetuning.lora import LoraLearner
from bert_tf.finetuning.multi_task import MultiTask, MultiTaskLearner
from bert_tf.finetuning.preparing import checked_splits, model_spec, prepare, read_reported
from bert_tf.finetuning.registry import MAKERS, TASKS, make_task, task_name
from bert_tf.finetuning.task import TRAIN, Task
from bert_tf.finetuning.task_learner import TaskLearner, make_training, training_phase
from bert_tf.finetuning.tokenizing import Features
from bert_tf.runs.run import FINISHED, Run
from bert_tf.sessions.session import Session, training_devices
from bert_tf.training.reports import EVAL_RESULTS, read_results
from bert_tf.training.strategy import check_batch_size
from bert_tf.weights.checkpoint import Checkpoint, describe_model
from bert_tf.weights.opening import open_checkpoint

# At the rates of large encoders, small ones hardly learn; see docs/results.md.
_NARROW, _LOW_RATE = 128, 1e-4


def fine_tune(
    options: FineTuningOptions, task: Task | None = None, learner: TaskLearner | None = None
) -> dict[str, float]:
    """Trains, or else evaluates and predicts; resumes the run in output_dir.

    Args:
        task: replaces the registered task with the name `options.task`.
        learner: trains its task in place of the learner that the flags ask for.

    Returns:
        the results in `eval_results.txt`: `eval_<metric>` of the best weights on the dev set,
        `test_<metric>` on a test set with targets, and `global_step`.

    Raises:
        ValueError, OSError: one line that names the flag or file and what to do; also if another
            process trains in the output folder.
        Interrupted: a signal stopped training, after a checkpoint was saved.
    """
    options = options.changed(task=task.name if task else task_name(options.task))
    # Before a model is downloaded.
    for path in (options.train_file, options.dev_file, options.test_file):
        if isinstance(path, str):
            check_single(path)
    if task and options.metric:
        task = task.with_metric(options.metric)
    with training_devices(options, writes=True) as strategy:
        for flag in ("train_batch_size", "eval_batch_size"):
            check_batch_size(strategy, flag, getattr(options, flag))
        run = Run(options.output_dir)
        session = Session(options, strategy, run)
        if options.do_train:
            flags = saved_run.resumed_flags(options, run)
            session = dataclasses.replace(session, options=flags)
            if not run.finished:
                return _train(session, task, learner)
            session.say(f"{run.path} holds a finished run: not training again.")
        if run.finished is not None:
            return _evaluate_run(session, task)
        run.check_single()
        return _evaluate_model(session, task)


def _train(session: Session, task: Task | None, learner: TaskLearner | None) -> dict[str, float]:
    """Trains and reports the best weights; resumes a run that was interrupted."""
    options, run, init = session.options, session.run, learner and learner.init
    if not init and _is_ensemble(options):
        raise ValueError(
            f"--init_checkpoint={options.init_checkpoint} names several models, which can only be "
            "evaluated: omit --do_train"
        )
    session = session.opened(init)
    made_from = [*learner.made_from] if learner else []
    if session.init and not init:
        made_from += describe_model("--init_checkpoint", session.init)
    run.check_made_from(made_from)
    # A run that stopped before its first checkpoint may have had other data.
    head = session.resumed and session.resumed.head
    session, spec, task = prepare(session, head, learner.task if learner else task)
    learner = learner or _make_learner(session, task)
    reported, splits = read_reported(session, task, spec, [TRAIN, task.dev_splits[0]])
    data = saved_run.check_same_data(run, splits)
    if note := task.check_metric(splits[task.dev_splits[0]]):
        session.say(f"WARNING: {note}")
    if spec.config.hidden_size <= _NARROW and options.learning_rate <= _LOW_RATE:
        session.say("An encoder this small needs a higher --learning_rate, such as 3e-4.")
    training = make_training(session, learner, spec, splits[TRAIN])
    evaluator = Evaluator(task, training.trainer, splits, options.eval_batch_size)
    training.set_weights()
    _record(session, spec, task, finished=False)
    if session.is_chief:
        run.record_made_from([*made_from, *data])

    def evaluate() -> dict[str, float]:
        best_step = training.driver.best_results.get("global_step")
        return evaluator.evaluate(task.dev_splits[0], best_step)

    results = training.run([training_phase(training, splits[TRAIN], evaluate)])
    _record(session, spec, task, finished=True)
    results = report_splits(session, evaluator, task, reported, results)
    session.say(after_fine_tuning(task, run.path))
    return results


def _make_learner(session: Session, task: Task) -> TaskLearner:
    if session.options.lora_rank:
        if not (session.init or session.resumed):
            raise ValueError("--lora_rank needs trained weights: give --init_checkpoint")
        return LoraLearner(task)
    return MultiTaskLearner(task) if isinstance(task, MultiTask) else TaskLearner(task)


def _record(session: Session, spec: ModelSpec, task: Task, finished: bool) -> None:
    """Writes what a run is: its flags, and beside both its weights the encoder and the head."""
    if not session.is_chief:
        return
    run, flags = session.run, saved_run.recorded(session.options)
    run.write(spec, flags | dict(task.columns) | {FINISHED: finished}, task.head)
    run.best.write(spec, head=task.head)


def _is_ensemble(options: FineTuningOptions) -> bool:
    return len(fine_tuned.member_paths(options.init_checkpoint or "")) > 1


def _evaluate_run(session: Session, task: Task | None) -> dict[str, float]:
    """Evaluates the best weights of the run in the output folder, on its own data."""
    options, run = session.options, session.run
    if not run.best.has_checkpoint:
        raise ValueError(
            f"{run.best.path} holds no checkpoint ckpt-*: finish the run with --do_train, or "
            "restore it"
        )
    if _is_ensemble(options):
        raise ValueError(
            f"{run.path} holds a run: to evaluate --init_checkpoint={options.init_checkpoint}, "
            "choose another --output_dir"
        )
    options = saved_run.own_flags(options, run)
    session = dataclasses.replace(session, options=options, resumed=run.best)
    model = open_checkpoint(run.best.path, any_encoder=True)
    spec = model_spec(session)
    task = task or make_task(options, run.head)
    compared = checked_splits(options, task) if options.do_train else []
    reported, splits = read_reported(session, task, spec, compared)
    needed = saved_run.splits_of_other_files(options, run, reported)
    saved_run.check_same_data(run, splits, needed)
    return _report(session, task, model, reported, splits)


def _evaluate_model(session: Session, task: Task | None) -> dict[str, float]:
    """Evaluates the initial checkpoint, which may be an ensemble, in a folder without a run.

    Every encoder computes vectors.
    """
    options, run, members = session.options, session.run, None
    if _is_ensemble(options):
        flags = options.init_checkpoint, options.max_seq_length
        members = fine_tuned.open_members(*flags, vocab_file=options.vocab_file)[0]
    session = session.opened(members)
    model = session.init
    if model and model.run:
        model.run.check_one_task()
    fits = model and (model.head or options.label_type in VECTOR_TYPES)
    if not fits or "," in options.task:
        raise ValueError(
            f"{run.path} holds no fine-tuned weights to evaluate: give --do_train, the "
            "--output_dir of a fine-tuning run, or a fine-tuned model as --init_checkpoint"
        )
    session = dataclasses.replace(session, options=saved_run.flags_of_model(options, model))
    session, spec, task = prepare(session, model.head, task)
    reported, splits = read_reported(session, task, spec)
    if session.is_chief:
        saved_run.record_evaluation(run, session.init, splits)
    return _report(session, task, session.init, reported, splits)


def _report(
    session: Session,
    task: Task,
    model: Checkpoint,
    reported: list[str],
    splits: dict[str, Features],
) -> dict[str, float]:
    """Evaluates a model; returns its results on some splits beside those of earlier commands."""
    run = session.run
    results = run.read_json(EVAL_RESULTS_JSON, dict[str, float])
    results |= read_results(run.best.file(EVAL_RESULTS))
    evaluator = load_evaluator(session, task, model, splits)
    return report_splits(session, evaluator, task, reported, results)


def after_fine_tuning(task: Task, folder: str) -> str:
    """Returns lines that say how to use a run."""
    curves = f"For TensorBoard: tensorboard --logdir={shlex.quote(folder)}"
    output = unused_name("classifier")
    python = 'run.predict("..."), run.plot(), run.export("classifier")'
    if isinstance(task, MultiTask):
        task = task.tasks[0]
        folder = f"{folder}/{task.name}"
        python = f'bert_tf.load_predictor({folder!r})("...")'
    if task.head and task.head.kind == EMBEDDING:
        arguments = dict(checkpoint=folder, output_dir=unused_name("embedder"))
        export = command_line("export.embedder", **arguments)
        return for_caller(
            f"{curves}\nNext, export a SavedModel that computes vectors:\n  {export}",
            'Try: bert_tf.load_embedder(run), run.plot(), run.export("embedder")',
        )
    if task.name in (*TASKS, *MAKERS):
        predict = command_line("bert_tf.predict", checkpoint=folder)
        export = command_line("export.classifier", checkpoint=folder, output_dir=output)
        return for_caller(
            f"{curves}\nNext, predict new text, or export a SavedModel:\n  {predict}\n  {export}",
            f"Try: {python}",
        )
    return f"Next, in Python: export.classifier.export_classifier({folder!r}, {output!r}, task)"

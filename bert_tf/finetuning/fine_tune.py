"""Fine-tunes, evaluates and predicts, from flags to a run folder."""

import dataclasses
from collections.abc import Callable, Collection

import tensorflow as tf

from bert_tf.base.command_help import command_line, unused_name
from bert_tf.base.files import check_single, errors_at
from bert_tf.base.output_files import write_json
from bert_tf.checkpoint import open_checkpoint
from bert_tf.choices import VECTOR_TYPES
from bert_tf.config import EMBEDDING, Head, ModelSpec
from bert_tf.finetuning import fine_tuned, saved_run
from bert_tf.finetuning.features import Features
from bert_tf.finetuning.fine_tuner import Evaluator, FineTuner, TaskLearner
from bert_tf.finetuning.finetuning_options import EVAL_RESULTS_JSON, FineTuningOptions
from bert_tf.finetuning.lora import LoraLearner
from bert_tf.finetuning.metrics import OF_A_CLASS
from bert_tf.finetuning.multi_task import MultiTask, MultiTaskLearner
from bert_tf.finetuning.predictions import aligned
from bert_tf.finetuning.registry import MAKERS, TASKS, make_task, task_name, with_length
from bert_tf.finetuning.task import DataFiles, Task
from bert_tf.models.encoder import skip_padding
from bert_tf.resolution import resolve_model
from bert_tf.runs.run import COMMAND, FINISHED, FLAGS, Run
from bert_tf.session import Session, training_devices
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.checkpoints import BEST
from bert_tf.training.reports import EVAL_RESULTS, read_results, write_results
from bert_tf.training.strategy import check_batch_size, chief_say
from bert_tf.training.trainer import Trainer
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.formats.sentence_transformers import EmbeddingSettings, settings_of
from tfrecords.vocabulary import warn_about_casing

# The most classes, of all splits together, whose metrics are printed.
_CLASSES_SHOWN = 20
# At the rates of large encoders, small ones hardly learn; see docs/results.md.
_NARROW, _LOW_RATE = 128, 1e-4


def fine_tune(
    options: FineTuningOptions,
    task: Task | None = None,
    init: Checkpoint | None = None,
    learner: TaskLearner | None = None,
) -> dict[str, float]:
    """Trains, evaluates and predicts according to the options; resumes the run in output_dir.

    Args:
        task: replaces the registered task with the name `options.task`.
        init: replaces `options.init_checkpoint`; a run that resumes needs neither.
        learner: trains its task in place of the learner that the flags ask for.

    Returns:
        the results in `eval_results.txt`: `eval_<metric>` of the best weights on the dev set,
        `test_<metric>` on a test set with targets, and `global_step`.

    Raises:
        ValueError, OSError: one line that names the flag or file and what to do; also if another
            process trains in the output folder.
        Interrupted: a signal stopped training, after a checkpoint was saved.
    """
    options = dataclasses.replace(options, task=task.name if task else task_name(options.task))
    # Before a model is downloaded.
    for path in filter(None, (options.train_file, options.dev_file, options.test_file)):
        check_single(path)
    with training_devices(options, writes=True) as strategy:
        return _fine_tune(options, task, init, learner, strategy)


def _fine_tune(
    options: FineTuningOptions,
    task: Task | None,
    init: Checkpoint | None,
    learner: TaskLearner | None,
    strategy: tf.distribute.Strategy,
) -> dict[str, float]:
    run, say = Run(options.output_dir), chief_say(strategy)
    options = saved_run.with_flags_of(options, run)
    trains = options.do_train and not saved_run.check_resumable(options, run)
    if options.do_train and not trains:
        say(f"{run.path} holds a finished run: not training again.")
    if not init and len(fine_tuned.member_paths(options.init_checkpoint or "")) > 1:
        if trains or run.best.has_checkpoint:
            raise ValueError(
                f"--init_checkpoint={options.init_checkpoint} names several models, which can only "
                "be evaluated: omit --do_train, and give an --output_dir without a run"
            )
        paths = options.init_checkpoint, options.max_seq_length
        init = fine_tuned.open_members(*paths, vocab_file=options.vocab_file)[0]
    session = Session.open(options, strategy, run, init)
    settings = _embedding_settings(session)
    if settings.dense:
        tensors = {**session.init.tensors, **settings.dense}
        init = dataclasses.replace(session.init, tensors=tensors)
        session = dataclasses.replace(session, init=init)
    trained = None if trains else _open_trained(run, session.init, options)
    # A run may have lost all other checkpoints, or have none, as one task of several.
    spec = model_spec(session if trains else dataclasses.replace(session, run=run.best))
    session = _with_flags_of_model(session, trained, spec, settings)
    options = session.options
    task = learner.task if learner else _make_task(session, task, trained, settings.head)
    learner = learner or (None if trained else _make_learner(options, task))
    for flag in ("train_batch_size", "eval_batch_size"):
        check_batch_size(strategy, flag, getattr(options, flag))
    warn_about_casing(spec.vocab, spec.lower_case, say=say)
    reported = list(task.dev_splits) if options.do_eval else []
    optional = task.optional_splits
    if options.do_predict:
        reported += task.test_splits
    elif options.do_eval:
        reported += [name for name in task.test_splits if name not in optional]
        # A test set that no flag names may be missing or have no answers.
        optional = () if options.test_file else task.test_splits
    compared = saved_run.compared_splits(options, run, task)
    names = dict.fromkeys([*compared, *reported])
    splits = read_features(options, task, spec, names, say, optional)
    reported = [name for name in reported if name in splits]
    checksums = saved_run.data_checksums({name: splits[name] for name in compared})
    saved_run.check_same_data(run, checksums)
    folder = run
    if trained:
        folder, sources = saved_run.results_folder(options, run, reported, task)
        results = _earlier_results(options, folder)
        evaluator = load_evaluator(session, task, trained, splits)
        if session.is_chief and sources:
            write_json(folder.file(saved_run.RESULTS_OF), sources)
    else:
        results, evaluator = _train(session, learner, spec, splits, checksums)
    return _report(session, task, results, evaluator, reported, folder, bool(trained))


def _embedding_settings(session: Session) -> EmbeddingSettings:
    """Returns how the initial checkpoint computes vectors, or defaults."""
    found = None
    if session.init and session.options.label_type in VECTOR_TYPES:
        found = settings_of(session.init, session.options.pooling)
    return found or EmbeddingSettings()


def _with_flags_of_model(
    session: Session, trained: Checkpoint | None, spec: ModelSpec, settings: EmbeddingSettings
) -> Session:
    """Returns the session with the flags that are not given as the model has them."""
    options = session.options
    if trained and trained is session.init and trained.run:
        with errors_at(trained.run.file(FLAGS)):
            options = options.with_saved(trained.run.flags, "setting", "length")
    if options.label_type in VECTOR_TYPES:
        values = dataclasses.asdict(settings.head) | {"max_seq_length": settings.max_seq_length}
        options = options.with_saved(values, "setting")
    options = with_length(options, options.task, spec.config, session.say)
    return dataclasses.replace(session, options=options)


def _make_task(
    session: Session, task: Task | None, trained: Checkpoint | None, vectors: Head
) -> Task:
    """Returns `task` or, without one, the task of the flags, with their metric.

    A new task of vectors has the dense layer that `vectors` has.
    """
    options, run = session.options, session.run
    # A run that stopped before its first checkpoint may have had other data.
    head = trained.head if trained else run.head if run.has_checkpoint else None
    task = task or make_task(options, head)
    if not head and options.label_type in VECTOR_TYPES:
        layer = dict(outputs=vectors.outputs, activation=vectors.activation)
        task = dataclasses.replace(task, head=dataclasses.replace(task.head, **layer))
    if options.metric not in (None, task.metric):
        task = task.with_metric(options.metric)
    return task


def _make_learner(options: FineTuningOptions, task: Task) -> TaskLearner:
    if options.lora_rank:
        if not options.init_checkpoint:
            raise ValueError("--lora_rank needs trained weights: give --init_checkpoint")
        return LoraLearner(task)
    return MultiTaskLearner(task) if isinstance(task, MultiTask) else TaskLearner(task)


def _report(
    session: Session,
    task: Task,
    results: dict[str, float],
    evaluator: Evaluator,
    splits: list[str],
    folder: Run,
    only_evaluated: bool,
) -> dict[str, float]:
    """Reports the splits; writes all results to the folder, prints and returns them."""
    options, files = session.options, []
    for split in splits:
        metrics, names = evaluator.report(split, folder.path)
        results, files = results | metrics, files + names
    if session.is_chief and results:
        write_results(folder.file(EVAL_RESULTS), results)
        write_json(folder.file(EVAL_RESULTS_JSON), results, sort_keys=True)
        files = [EVAL_RESULTS, EVAL_RESULTS_JSON, *files]
    if session.is_chief:
        options = dataclasses.replace(options, output_dir=folder.path)
        print(_summary(options, task, results, files, only_evaluated))
    if not only_evaluated:
        session.say(after_fine_tuning(task, folder.path))
    return results


def check_data_of(options: FineTuningOptions) -> None:
    """Checks that the data of a finished run has not changed."""
    run = Run(options.output_dir)
    # A command may find the seed itself.
    options = dataclasses.replace(options, hold_out_seed=run.flags.get("hold_out_seed"))
    options = saved_run.with_flags_of(options, run)
    task = make_task(options, run.head)
    names = saved_run.compared_splits(options, run, task)
    splits = read_features(options, task, run.spec, names, lambda line: None)
    saved_run.check_same_data(run, saved_run.data_checksums(splits))


def _open_trained(run: Run, init: Checkpoint | None, options: FineTuningOptions) -> Checkpoint:
    """Opens the weights to evaluate: the best of the run in the output folder, or `init`.

    Every encoder computes vectors.
    """
    if run.best.has_checkpoint:
        return open_checkpoint(run.best.path, any_encoder=True)
    run.check_single()
    if init and init.run:
        init.run.check_one_task()
    fits = init and (init.head or options.label_type in VECTOR_TYPES)
    if not fits or "," in options.task:
        raise ValueError(
            f"{run.path} holds no fine-tuned weights to evaluate: give --do_train, the "
            "--output_dir of a fine-tuning run, or a fine-tuned model as --init_checkpoint"
        )
    return init


def _earlier_results(options: FineTuningOptions, run: Run) -> dict[str, float]:
    """Returns the results in a folder, without those that this run computes again."""
    results = run.read_json(EVAL_RESULTS_JSON, dict[str, float])
    results |= read_results(run.best.file(EVAL_RESULTS))
    # Predictions for the test set replace the earlier ones, whose metrics they need not have.
    replaced = {"eval_": options.do_eval, "test_": options.do_predict or options.test_file}
    prefixes = tuple(prefix for prefix, is_replaced in replaced.items() if is_replaced)
    return {name: value for name, value in results.items() if not name.startswith(prefixes)}


def _train(
    session: Session,
    learner: TaskLearner,
    spec: ModelSpec,
    splits: dict[str, Features],
    checksums: dict[str, int],
) -> tuple[dict[str, float], Evaluator]:
    """Trains; returns the results of the best weights and an evaluator that has them."""
    run, task = session.run, learner.task
    if note := task.check_metric(splits[task.dev_splits[0]]):
        session.say(f"WARNING: {note}")
    if spec.config.hidden_size <= _NARROW and session.options.learning_rate <= _LOW_RATE:
        session.say("An encoder this small needs a higher --learning_rate, such as 1e-3.")
    tuner = FineTuner(session, learner, spec, splits)
    tuner.training.set_weights()
    flags = dataclasses.asdict(session.options) | dict(task.columns)
    flags |= {COMMAND: session.options.command, saved_run.DATA_CHECKSUMS: checksums}
    if session.is_chief:
        run.write(spec, flags | {FINISHED: False})
        run.best.write(spec)
        if task.head:
            run.write_head(task.head)
            run.best.write_head(task.head)
    results = tuner.train()
    if session.is_chief:
        run.write(spec, flags | {FINISHED: True})
    return results, tuner.evaluator


def load_evaluator(
    session: Session, task: Task, trained: Checkpoint, splits: dict[str, Features]
) -> Evaluator:
    """Returns an evaluator of fine-tuned weights."""
    session.say(f"Evaluating {trained.path}.")
    trained = fine_tuned.in_task_order(trained, task, session.say)
    if not trained.head:  # an encoder that computes vectors untrained
        trained = dataclasses.replace(trained, head=task.head)
    with session.strategy.scope():
        model = fine_tuned.load_task_model(task, trained)
    if session.device == "CPU":
        skip_padding(model)  # as in training, so that no digit differs
    trainer = Trainer(session.strategy, model, task.objective)
    return Evaluator(task, trainer, splits, session.options.eval_batch_size)


def model_spec(session: Session) -> ModelSpec:
    """Returns the encoder's configuration with its vocabulary and casing."""
    options = session.options
    if session.mapping and not options.init_checkpoint:
        raise ValueError("--init_vocab_mapping needs --init_checkpoint, the checkpoint to grow")
    spec = resolve_model(session.run, options, init=session.init, mapping=session.mapping)
    if spec.vocab is None:
        raise ValueError("no vocab.txt beside --init_checkpoint: give --vocab_file")
    return dataclasses.replace(spec, lower_case=spec.lower_case is not False)


def read_features(
    options: FineTuningOptions,
    task: Task,
    spec: ModelSpec,
    names: Collection[str],
    say: Callable[[str], None],
    optional: Collection[str] = (),
) -> dict[str, Features]:
    """Reads and tokenizes some splits.

    Leaves out `optional` splits without a file and, without --do_predict, those without targets.
    """
    tokenizer = WordPieceTokenizer(spec.vocab, spec.lower_case)
    files = DataFiles.of(options)
    seed = options.random_seed if options.hold_out_seed is None else options.hold_out_seed
    found, splits = task.read_splits([x for x in names if x not in optional], files, seed), {}
    for name in filter(optional.__contains__, names):
        try:
            found |= task.read_splits([name], files, seed)
        except FileNotFoundError as error:
            if options.do_predict:
                say(f"WARNING: no predictions for {name.upper()}: {error}.")
    for name, examples in found.items():
        features = task.featurize(examples, tokenizer, options.max_seq_length)
        if features.targets or options.do_predict or name not in optional:
            splits[name] = features
            say(f"{name}: {features.describe()}")
    return splits


def _summary(
    options: FineTuningOptions,
    task: Task,
    results: dict[str, float],
    files: list[str],
    only_evaluated: bool,
) -> str:
    metric, folder = task.metric, options.output_dir
    name = metric[0].upper() + metric[1:]
    trained = not only_evaluated and options.num_train_epochs > 0
    lines = []
    if f"eval_{metric}" in results and (options.do_train or options.do_eval):
        chosen = ", used to choose the best epoch" if trained else ""
        lines.append(f"{name} {results[f'eval_{metric}']:.4f} on {task.dev_set}{chosen}.")
    if f"test_{metric}" in results:
        lines.append(f"{name} {results[f'test_{metric}']:.4f} on the test set.")
    lines += _class_table(results)
    if trained:
        files = [*files, f"{BEST} (the best weights)", "curves.png", "metrics.jsonl"]
    lines.append(f"Wrote {folder}: {', '.join(files)}.")
    if trained:
        lines[-1] += f" For TensorBoard: tensorboard --logdir={folder}"
    return "\n".join(lines)


def _class_table(results: dict[str, float]) -> list[str]:
    """Returns precision, recall and F1 of each class on each split, as lines."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name in OF_A_CLASS:
        for key, value in results.items():
            split, found, label = key.partition(f"_{name}/")
            if found:
                rows.setdefault((split, label), []).append(f"{value:.4f}")
    if len(rows) > _CLASSES_SHOWN:
        return [f"{EVAL_RESULTS} lists precision, recall and F1 of each class."]
    table = [[f"{split}: {label[:40]}", *values] for (split, label), values in rows.items()]
    return [aligned([["", *OF_A_CLASS], *table])] if table else []


def after_fine_tuning(task: Task, folder: str) -> str:
    """Returns lines that say how to use a run."""
    output = unused_name("classifier")
    if isinstance(task, MultiTask):
        task = task.tasks[0]
        folder = f"{folder}/{task.name}"
    if task.head and task.head.kind == EMBEDDING:
        arguments = dict(checkpoint=folder, output_dir=unused_name("embedder"))
        export = command_line("export.embedder", **arguments)
        load = f"in Python, bert_tf.load_embedder({folder!r})"
        return f"Next, export a SavedModel that computes vectors, or load it:\n  {export}\n  {load}"
    if task.name in (*TASKS, *MAKERS):
        predict = command_line("bert_tf.predict", checkpoint=folder)
        export = command_line("export.classifier", checkpoint=folder, output_dir=output)
        return f"Next, predict new text, or export a SavedModel:\n  {predict}\n  {export}"
    return f"Next, in Python: export.classifier.export_classifier({folder!r}, {output!r}, task)"

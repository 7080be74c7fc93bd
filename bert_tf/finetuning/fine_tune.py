"""Fine-tunes, evaluates and predicts, from flags to a run folder."""

import dataclasses
from collections.abc import Callable, Collection, Mapping

import tensorflow as tf

from bert_tf.base.choices import VECTOR_TYPES
from bert_tf.base.command_help import command_line, unused_name
from bert_tf.base.files import check_single
from bert_tf.base.output_files import write_json
from bert_tf.config import EMBEDDING, Head, ModelSpec
from bert_tf.devices.session import Session, training_devices
from bert_tf.finetuning import fine_tuned, saved_run
from bert_tf.finetuning.fine_tuner import Evaluator, FineTuner, TaskLearner
from bert_tf.finetuning.finetuning_options import EVAL_RESULTS_JSON, FineTuningOptions
from bert_tf.finetuning.lora import LoraLearner
from bert_tf.finetuning.metrics import OF_A_CLASS
from bert_tf.finetuning.multi_task import MultiTask, MultiTaskLearner
from bert_tf.finetuning.predictions import aligned
from bert_tf.finetuning.registry import MAKERS, TASKS, make_task, task_name, with_length
from bert_tf.finetuning.task import TRAIN, DataFiles, Task
from bert_tf.finetuning.tokenizing import Features
from bert_tf.models.bert_encoder import skip_padding
from bert_tf.runs.run import FINISHED, Run
from bert_tf.tables.memory import TableInMemory
from bert_tf.text.tokenizer import WordPieceTokenizer
from bert_tf.training.checkpoints import BEST
from bert_tf.training.reports import EVAL_RESULTS, read_results, write_results
from bert_tf.training.strategy import check_batch_size, chief_say
from bert_tf.training.trainer import Trainer
from bert_tf.weights.checkpoint import Checkpoint
from bert_tf.weights.formats.sentence_transformers import EmbeddingSettings, settings_of
from bert_tf.weights.opening import open_checkpoint
from bert_tf.weights.resolving import resolve_model
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
    """Trains, or else evaluates and predicts; resumes the run in output_dir.

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
        if options.do_train and not saved_run.run_is_finished(options, run):
            return _train(options, strategy, run, task, init, learner)
        if options.do_train:
            chief_say(strategy)(f"{run.path} holds a finished run: not training again.")
        if run.finished is not None:
            return _evaluate_run(options, strategy, run, task)
        run.check_single()
        return _evaluate_model(options, strategy, run, task, init)


def _train(
    options: FineTuningOptions,
    strategy: tf.distribute.Strategy,
    run: Run,
    task: Task | None,
    init: Checkpoint | None,
    learner: TaskLearner | None,
) -> dict[str, float]:
    """Trains and reports the best weights; resumes a run that was interrupted."""
    if not init and _is_ensemble(options):
        raise ValueError(
            f"--init_checkpoint={options.init_checkpoint} names several models, which can only be "
            "evaluated: omit --do_train"
        )
    if run.has_checkpoint:
        options = options.with_saved(run.flags, "training")
    session = Session.open(options, strategy, run, init)
    made_from = {**learner.made_from} if learner else {}
    if session.init and not init:
        made_from |= saved_run.describe_init(session.init)
    run.check_made_from(made_from)
    settings = _embedding_settings(options, session.init)
    if settings.dense:
        tensors = {**session.init.tensors, **settings.dense}
        session = dataclasses.replace(
            session, init=dataclasses.replace(session.init, tensors=tensors)
        )
    spec = model_spec(session)
    options = _with_lengths(options, spec, settings, session.say)
    if not learner:
        # A run that stopped before its first checkpoint may have had other data.
        head = run.head if run.has_checkpoint else None
        task = task or _make_task(options, head, settings.head)
        learner = _make_learner(options, task, bool(session.init or run.has_checkpoint))
    session, task = dataclasses.replace(session, options=options), learner.task
    warn_about_casing(spec.vocab, spec.lower_case, say=session.say)
    reported, optional = _reported(options, task)
    names = dict.fromkeys([TRAIN, task.dev_splits[0], *reported])
    splits = read_features(options, task, spec, names, session.say, optional)
    data = saved_run.describe_data(splits)
    saved_run.check_same_data(run, data)
    if note := task.check_metric(splits[task.dev_splits[0]]):
        session.say(f"WARNING: {note}")
    if spec.config.hidden_size <= _NARROW and options.learning_rate <= _LOW_RATE:
        session.say("An encoder this small needs a higher --learning_rate, such as 1e-3.")
    tuner = FineTuner(session, learner, spec, splits)
    tuner.training.set_weights()
    flags = saved_run.recorded(options) | dict(task.columns)
    if session.is_chief:
        run.write(spec, flags | {FINISHED: False})
        run.record_made_from(made_from | data)
        run.best.write(spec)
        if task.head:
            run.write_head(task.head)
            run.best.write_head(task.head)
    results = tuner.train()
    if session.is_chief:
        run.write(spec, flags | {FINISHED: True})
    reported = [name for name in reported if name in splits]
    results = _report(session, tuner.evaluator, task, reported, results)
    session.say(after_fine_tuning(task, run.path))
    return results


def _is_ensemble(options: FineTuningOptions) -> bool:
    return len(fine_tuned.member_paths(options.init_checkpoint or "")) > 1


def _evaluate_run(
    options: FineTuningOptions,
    strategy: tf.distribute.Strategy,
    run: Run,
    task: Task | None,
) -> dict[str, float]:
    """Evaluates the best weights of the run in the output folder, on its own data."""
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
    given, options = options, saved_run.own_flags(options, run)
    session = Session(options, strategy, run)
    model = open_checkpoint(run.best.path, any_encoder=True)
    spec = model_spec(dataclasses.replace(session, run=run.best))
    task = task or _make_task(options, run.head, Head(EMBEDDING))
    compared = [TRAIN] if options.do_train and not options.changes_examples else []
    compared += [task.dev_splits[0]] if options.do_train else []
    reported, splits = _read_reported(session, task, spec, compared)
    needed = saved_run.splits_of_other_files(given, run, reported)
    saved_run.check_same_data(run, saved_run.describe_data(splits), needed)
    results = run.read_json(EVAL_RESULTS_JSON, dict[str, float])
    results |= read_results(run.best.file(EVAL_RESULTS))
    evaluator = load_evaluator(session, task, model, splits)
    return _report(session, evaluator, task, reported, results)


def _evaluate_model(
    options: FineTuningOptions,
    strategy: tf.distribute.Strategy,
    run: Run,
    task: Task | None,
    model: Checkpoint | None,
) -> dict[str, float]:
    """Evaluates the initial checkpoint, which may be an ensemble, in a folder without a run.

    Every encoder computes vectors.
    """
    if not model and _is_ensemble(options):
        flags = options.init_checkpoint, options.max_seq_length
        model = fine_tuned.open_members(*flags, vocab_file=options.vocab_file)[0]
    session = Session.open(options, strategy, run, model)
    model = session.init
    if model and model.run:
        model.run.check_one_task()
    fits = model and (model.head or options.label_type in VECTOR_TYPES)
    if not fits or "," in options.task:
        raise ValueError(
            f"{run.path} holds no fine-tuned weights to evaluate: give --do_train, the "
            "--output_dir of a fine-tuning run, or a fine-tuned model as --init_checkpoint"
        )
    options = saved_run.flags_of_model(options, model)
    settings = _embedding_settings(options, model)
    model = dataclasses.replace(model, tensors={**model.tensors, **settings.dense})
    spec = model_spec(session)
    options = _with_lengths(options, spec, settings, session.say)
    session = dataclasses.replace(session, options=options, init=model)
    task = task or _make_task(options, model.head, settings.head)
    reported, splits = _read_reported(session, task, spec)
    if session.is_chief:
        saved_run.record_evaluation(run, model, saved_run.describe_data(splits))
    results = run.read_json(EVAL_RESULTS_JSON, dict[str, float])
    return _report(session, load_evaluator(session, task, model, splits), task, reported, results)


def _reported(options: FineTuningOptions, task: Task) -> tuple[list[str], Collection[str]]:
    """Returns the splits to report, and those of them that may be missing or lack answers."""
    reported = list(task.dev_splits) if options.do_eval else []
    if options.do_predict:
        return reported + list(task.test_splits), task.optional_splits
    if options.do_eval:
        reported += [name for name in task.test_splits if name not in task.optional_splits]
    # A test set that no flag names may be missing or have no answers.
    return reported, () if options.test_file else task.test_splits


def _read_reported(
    session: Session, task: Task, spec: ModelSpec, compared: Collection[str] = ()
) -> tuple[list[str], dict[str, Features]]:
    """Reads the splits to report, and others to compare; returns the former that exist, and all."""
    warn_about_casing(spec.vocab, spec.lower_case, say=session.say)
    reported, optional = _reported(session.options, task)
    names = dict.fromkeys([*compared, *reported])
    splits = read_features(session.options, task, spec, names, session.say, optional)
    return [name for name in reported if name in splits], splits


def _embedding_settings(options: FineTuningOptions, init: Checkpoint | None) -> EmbeddingSettings:
    """Returns how the initial checkpoint computes vectors, or defaults."""
    found = None
    if init and options.label_type in VECTOR_TYPES:
        found = settings_of(init, options.pooling)
    return found or EmbeddingSettings()


def _with_lengths(
    options: FineTuningOptions,
    spec: ModelSpec,
    settings: EmbeddingSettings,
    say: Callable[[str], None],
) -> FineTuningOptions:
    """Returns the flags with the length of examples, and with the settings of vectors."""
    if options.label_type in VECTOR_TYPES:
        values = dataclasses.asdict(settings.head) | {"max_seq_length": settings.max_seq_length}
        unset = {x: y for x, y in values.items() if getattr(options, x, 0) is None}
        options = options.changed(**unset)
    return with_length(options, options.task, spec.config, say)


def _make_task(options: FineTuningOptions, head: Head | None, vectors: Head) -> Task:
    """Returns the task of a trained `head`, or a new one with the dense layer of `vectors`."""
    task = make_task(options, head)
    if not head and options.label_type in VECTOR_TYPES:
        layer = dict(outputs=vectors.outputs, activation=vectors.activation)
        task = dataclasses.replace(task, head=dataclasses.replace(task.head, **layer))
    return task


def _make_learner(options: FineTuningOptions, task: Task, has_weights: bool) -> TaskLearner:
    if options.lora_rank:
        if not has_weights:
            raise ValueError("--lora_rank needs trained weights: give --init_checkpoint")
        return LoraLearner(task)
    return MultiTaskLearner(task) if isinstance(task, MultiTask) else TaskLearner(task)


def _report(
    session: Session,
    evaluator: Evaluator,
    task: Task,
    splits: Collection[str],
    results: Mapping[str, float],
) -> dict[str, float]:
    """Reports splits; writes their results beside earlier ones, prints and returns all."""
    folder, files, results = session.run, [], dict(results)
    for split in splits:
        metrics, names = evaluator.report(split, folder.path)
        results, files = results | metrics, files + names
    if session.is_chief and results:
        write_results(folder.file(EVAL_RESULTS), results)
        write_json(folder.file(EVAL_RESULTS_JSON), results, sort_keys=True)
        files = [EVAL_RESULTS, EVAL_RESULTS_JSON, *files]
    if session.is_chief:
        print(_summary(session.options, task, results, files))
    return results


def evaluate(path: str | tuple[str, ...], data: str | TableInMemory) -> dict[str, float]:
    """Returns the metrics of a fine-tuned model, or of an ensemble, on data; writes nothing.

    The names are those of the dev set's, such as `eval_accuracy`.

    Raises:
        ValueError: the data have no labels, or those of other classes.
    """
    model, task, length = fine_tuned.open_members(path)
    files = DataFiles(dev_file=data)
    task, spec = task.with_files(files), model.spec
    options = FineTuningOptions(task=task.name, output_dir=model.path, do_eval=True)
    options = options.changed(dev_file=data, max_seq_length=length)
    with training_devices(options, writes=False) as strategy:
        session = Session(options, strategy, Run(model.path))
        splits = read_features(options, task, spec, task.dev_splits, session.say)
        return load_evaluator(session, task, model, splits).evaluate(task.dev_splits[0])


def check_data_of(options: FineTuningOptions) -> None:
    """Checks that the data of a finished run has not changed."""
    run = Run(options.output_dir)
    options = saved_run.own_flags(options, run)
    task = make_task(options, run.head)
    names = [task.dev_splits[0], *([] if options.changes_examples else [TRAIN])]
    splits = read_features(options, task, run.spec, names, lambda line: None)
    saved_run.check_same_data(run, saved_run.describe_data(splits))


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
    files, splits = DataFiles.of(options), {}
    found = task.read_splits([x for x in names if x not in optional], files)
    for name in filter(optional.__contains__, names):
        try:
            found |= task.read_splits([name], files)
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
) -> str:
    metric, folder = task.metric, options.output_dir
    name = metric[0].upper() + metric[1:]
    trained = options.do_train and options.num_train_epochs > 0
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
